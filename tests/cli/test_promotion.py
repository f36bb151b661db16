"""K as fidelity through the commands: planned, searched with a pruner, exported, trained again, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_fakes import Tune

from trainables.spec import TrainingSpec, spec_fingerprint
from tuner.experiment import load_experiment
from tuner.export.configuration import standalone_yaml
from tuner.export.exported_trial import ExportedTrial
from tuner.plan.plan import make_plan, plan_from
from tuner.sweep.trial_spec import training_spec

ORIGIN = {"ledger": "0" * 32, "entries": 1, "head": "0" * 64}
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


@pytest.mark.slow
def test_a_search_with_a_pruner_raises_k_in_the_trials_that_survive_and_its_export_trains_again(
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
    runs = [run for run in tune.mlflow_runs() if "learning_rate" in run.data.params]
    assert {run.data.params["smoothing_samples.promote"] for run in runs} == {"[1, 3]"}
    assert json.loads((tune.sweeps[0] / "plan.json").read_text())["promoted"] == {
        "smoothing_samples": {"levels": [1, 3], "from_step": [0, RISE]}
    }
    again = ("resume", "tiny", "--set", "search.space.smoothing_samples={promote: [1, 9]}")
    assert "[resume-changes-setting]" in tune(*again, code=2).err

    export = tune("export", "tiny", "--json").json
    card = json.loads(Path("exports/tiny/privacy_card.json").read_text())
    assert card["configuration"]["parameters"]["smoothing_samples"] == {"promote": [1, 3]}
    assert tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"] == "yes"
    assert yaml.safe_load(Path(EXPORT).read_text())["search"]["rungs"] == 4, "of the same length: as it was"
    assert spec_fingerprint(spec_of_export()) == spec_fingerprint(spec_of_trial(tune, export["trial"]["number"]))
    said = tune("train", EXPORT, "--local", "--json").json
    assert said["trial"]["parameters"] == export["trial"]["parameters"]


def test_an_export_of_another_length_rises_at_the_same_steps(bare: Tune) -> None:
    """A fifth of 42 steps is not a fifth of 21, by rounding: K rose at 12, and 5 rungs of its own would say 13."""
    space = {**SPACE, "epochs": {"choice": [2.1, 4.3]}}
    file = bare.write(**CHANGES | {"search__space": space, "search__rungs": 5, "privacy__epsilon": 40})
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
        Path(EXPORT).write_text(standalone_yaml(experiment, plan, best, origin=ORIGIN))
        again = spec_of_export()
        assert again.steps == steps
        assert again.parameters["smoothing_samples"] == trained.parameters["smoothing_samples"]
