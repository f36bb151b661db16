"""K as fidelity through the commands: planned, searched with a pruner, exported, trained again, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_fakes import Tune

from trainables.rungs import checkpoint_path
from trainables.spec import TrainingSpec, spec_fingerprint
from trainables.training import PrivateTraining
from tuner.experiment import load_experiment
from tuner.export.configuration import standalone_yaml
from tuner.export.exported_trial import ExportedTrial
from tuner.plan.plan import make_plan, plan_from
from tuner.sweep import folder as sweeps
from tuner.sweep.trial_spec import training_spec

SPACE: dict[str, Any] = {
    "R": {"log_uniform": [0.5, 2.0]},
    "K": {"promote": [1, 3]},
    "learning_rate": {"choice": [1e-6, 0.5]},
}
CHANGES: dict[str, Any] = {
    "trainable__method": "dplis",
    "trainable__epochs": 2,
    "privacy__epsilon": 20,
    "search__trials": 5,
    "search__rungs": 4,
    "search__pruner": {"name": "median", "n_startup_trials": 1, "n_warmup_steps": 0},
    "search__space": SPACE,
}
STEPS, RISE = 20, 10
EXPORT = "exports/tiny/experiment.yaml"


def spec_of_trial(tune: Tune, number: int) -> TrainingSpec:
    """What a trial of the first sweep was trained with."""
    folder = tune.sweeps[0]
    experiment = load_experiment(folder / "experiment.yaml")
    plan = plan_from(json.loads((folder / "plan.json").read_text()), trials=experiment.search.trials)
    trial = next(each for each in tune("show", "tiny", "--json").json["trials"] if each["number"] == number)
    return training_spec(experiment, experiment.dataset_request(), plan, parameters=trial["parameters"], number=number)


def spec_of_export() -> TrainingSpec:
    experiment = load_experiment(Path(EXPORT))
    request = experiment.dataset_request()
    space = experiment.space
    assert not space.searched
    return training_spec(
        experiment,
        request,
        make_plan(experiment, request),
        parameters=space.sample(None),  # type: ignore[arg-type]  # nothing is asked
        number=0,
    )


def test_a_search_with_a_pruner_raises_k_in_the_trials_that_survive(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K by what the engine was really asked for, step by step."""
    from trainables.engine.objective import Smoothed

    samples: list[int] = []
    real = Smoothed.points

    def noted(self: Smoothed, *args: Any, **keywords: Any) -> object:  # noqa: ANN401
        samples.append(self.samples)
        return real(self, *args, **keywords)

    monkeypatch.setattr(Smoothed, "points", noted)
    tune("run", tune.write(**CHANGES), "--local", "--quiet")
    trials = tune("show", "tiny", "--json").json["trials"]
    steps = [trial["step"] for trial in trials]
    assert {trial["state"] for trial in trials} == {"complete", "pruned"}, "some were cut, some were promoted"
    assert samples == [k for taken in steps for k in ([1] * RISE + [3] * (STEPS - RISE))[:taken]]
    assert tune.search_state(tune.sweeps[0].name).leased_steps == sum(steps), "K costs no step and no ε"
    assert all(trial["parameters"]["smoothing_samples"] == {"promote": [1, 3]} for trial in trials)
    assert "smoothing_samples=1→3" in tune("show", "tiny").text, "as people read it"
    runs = [run for run in tune.mlflow_runs() if "learning_rate" in run.data.params]
    assert {run.data.params["smoothing_samples.promote"] for run in runs} == {"[1, 3]"}
    assert json.loads((tune.sweeps[0] / "plan.json").read_text())["promoted"] == {
        "smoothing_samples": {"levels": [1, 3], "from_step": [0, RISE]}
    }


def test_an_export_carries_the_promotion_and_trains_again(tune: Tune) -> None:
    tune("run", tune.write(**CHANGES), "--local", "--quiet")
    export = tune("export", "tiny", "--json").json
    card = json.loads(Path("exports/tiny/privacy_card.json").read_text())
    assert card["configuration"]["parameters"]["smoothing_samples"] == {"promote": [1, 3]}
    assert "smoothing_samples = promote 1, 3" in Path("exports/tiny/privacy_card.md").read_text()
    assert tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"] == "yes"
    assert yaml.safe_load(Path(EXPORT).read_text())["search"]["rungs"] == 4, "of the same length: as it was"
    assert spec_fingerprint(spec_of_export()) == spec_fingerprint(spec_of_trial(tune, export["trial"]["number"]))
    said = tune("train", EXPORT, "--local", "--json").json
    assert said["trial"]["parameters"] == export["trial"]["parameters"]
    assert tune("verify", str(Path(said["folder"]) / "privacy_card.json"), "--json").json["answer"] == "yes"


def test_an_export_of_another_length_rises_at_the_same_steps(tune: Tune) -> None:
    """A fifth of 42 steps is not a fifth of 21, by rounding: K rose at 12, and 5 rungs of its own would say 13."""
    space = {**SPACE, "epochs": {"choice": [2.1, 4.3]}}
    file = tune.write(**CHANGES | {"search__space": space, "search__rungs": 5, "privacy__epsilon": 40})
    experiment = load_experiment(Path(file))
    request = experiment.dataset_request()
    plan = make_plan(experiment, request)
    for epochs, steps, rise in ((2.1, 21, 12), (4.3, 42, 25)):
        chosen: dict[str, object] = {
            "smoothing_radius": 1.0,
            "smoothing_samples": {"promote": [1, 3]},
            "learning_rate": 0.5,
            "epochs": epochs,
        }
        trained = training_spec(experiment, request, plan, parameters=chosen, number=0)
        assert trained.parameters["smoothing_samples"] == {"promote": [1, 3], "from_step": [0, rise]}
        best = ExportedTrial(id="t", number=0, parameters=chosen, score=0.5, seed=trained.seed, checkpoint=Path("none"))
        Path(EXPORT).parent.mkdir(parents=True, exist_ok=True)
        Path(EXPORT).write_text(standalone_yaml(experiment, plan, best))
        again = spec_of_export()
        assert again.steps == steps
        assert again.parameters["smoothing_samples"] == trained.parameters["smoothing_samples"]
    assert tune("train", EXPORT, "--local", "--json").json["trial"]["parameters"]["smoothing_samples"] == {
        "promote": [1, 3]
    }


def test_a_sweep_that_was_cut_off_goes_on_with_the_k_of_its_step(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study with seeded noise: cut off after a rung below the rise, it ends as one that never was."""
    study = {
        **CHANGES,
        "privacy": {"epsilon": 20, "noise_multiplier": 2.0, "private": False, "noise_seed": 1},
        "search__trials": 1,
        "search__pruner": "none",
        "search__space": {**SPACE, "R": 2.0, "learning_rate": 0.5},
    }
    tune("run", tune.write(**study), "--local", "--quiet")
    whole = tune("show", "tiny", "--json").json["trials"][0]
    real, calls = PrivateTraining.run_to, []

    def cut(self: PrivateTraining, step: int) -> None:
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, step)

    monkeypatch.setattr(PrivateTraining, "run_to", cut)
    (first,) = tune.sweeps
    tune("run", tune.write(**study), "--local", "--quiet", code=130)
    (folder,) = set(tune.sweeps) - {first}
    trial = next((folder / "trials").iterdir()).name
    assert "step-00000010" in str(checkpoint_path(folder, trial))
    tune("resume", folder.name, "--local", "--quiet")
    resumed = tune("show", folder.name, "--json").json["trials"][0]
    assert resumed["curve"] == whole["curve"]
    assert resumed["step"] == STEPS


def test_a_plan_says_where_k_rises(tune: Tune) -> None:
    said = tune("plan", tune.write(**CHANGES), "--no-timing").text
    assert "smoothing_samples promoted: 1 at first, 3 from step 10; the same for every trial, and free" in said
    lengths = {**CHANGES, "search__space": {**SPACE, "epochs": {"choice": [1, 2]}}}
    said = tune("plan", tune.write(**lengths), "--no-timing").text
    assert "3 from step 10 (and at the same fractions of a shorter trial)" in said
    plain = {**CHANGES, "search__space": {**SPACE, "K": 3}}
    assert "promoted" not in tune("plan", tune.write(**plain), "--no-timing").text
    values = tune("plan", tune.write(**CHANGES), "--no-timing", "--json").json
    assert values["free"] == ["smoothing_radius", "learning_rate"]


def test_the_wall_time_is_that_of_each_level_for_its_share(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "trainables.timing.seconds_per_step", lambda spec, **_: [float(spec.parameters["smoothing_samples"])] * 3
    )
    trials = 5
    seconds = {}
    for name, samples in (("rising", {"promote": [1, 3]}), ("one", 1), ("three", 3)):
        file = tune.write(**CHANGES | {"search__space": {**SPACE, "K": samples}})
        seconds[name] = tune("plan", file, "--json").json["wall_time_seconds"]
    assert seconds == {"one": 1 * STEPS * trials, "three": 3 * STEPS * trials, "rising": 2 * STEPS * trials}


def test_what_is_too_short_for_its_levels_is_refused_before_anything_is_charged(tune: Tune) -> None:
    few = {**CHANGES, "search__space": {**SPACE, "K": {"promote": [1, 3, 10]}}}
    said = tune("run", tune.write(**few | {"trainable__epochs": 0.3}), "--local", code=2)
    assert "[promotion-steps]" in said.text
    said = tune("run", tune.write(**few | {"search__rungs": 2}), "--local", code=2)
    assert "search.space.K: a promotion needs at least as many rungs as levels" in said.text
    assert said.text.count("rungs as levels") == 1
    assert tune.sweeps == []
    assert "open_search" not in tune.entries
    tune("plan", tune.write(**few), "--no-timing")


def test_a_resumed_sweep_keeps_its_plan_of_k(tune: Tune) -> None:
    tune("run", tune.write(**CHANGES), "--local", "--quiet")
    said = tune("resume", "tiny", "--set", "search.space.smoothing_samples={promote: [1, 9]}", code=2).text
    assert "search.space.smoothing_samples" in said
    assert "search.rungs" in tune("resume", "tiny", "--set", "search.rungs=2", code=2).text
    assert sweeps.read_json(tune.sweeps[0] / "plan.json")["promoted"]["smoothing_samples"]["levels"] == [1, 3]
