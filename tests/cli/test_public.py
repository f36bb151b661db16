"""Public mode: the search runs on records that anyone may see, and one charged run of its best on the private ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import STEPS, Tune, dies, raising_at, run_until_death

import tuner.runner.public
from trainables.training import PrivateTraining, TrainingSpec
from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.privacy.accountant.pld import epsilon
from tuner.runner import start
from tuner.study.surrogate.stored import choose_by_proxy
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.identity import admit_open_use
from tuner.sweep.preflight import prepare
from tuner.sweep.sweep_study import open_sweep_study, search_setting

PUBLIC_SIZE = 500


def both(tune: Tune) -> tuple[SweepFolder, SweepFolder]:
    """The search and its charged run."""
    search, charged = (SweepFolder(root) for root in sorted(tune.sweeps, key=lambda root: "charged" in root.name))
    return search, charged


def test_one_command_searches_in_public_and_charges_one_run(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[TrainingSpec] = []
    real = PrivateTraining.__init__

    def noted(training: PrivateTraining, spec: TrainingSpec, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        specs.append(spec)
        real(training, spec, *arguments, **more)

    monkeypatch.setattr(PrivateTraining, "__init__", noted)
    told = tune("run", tune.write(**public), "--local", "--json").json
    search, charged = both(tune)
    first, second, *leases, settled, closed = tune.entries
    assert (first, second, settled, closed) == ("open_search", "reserve", "settle", "close_search")
    assert set(leases) == {"lease"}
    state = tune.search_state(charged.id)
    assert (state.epsilon, state.leased_steps, state.filter.step_cap) == (3.0, STEPS, STEPS)
    assert epsilon(state.mechanism, STEPS, state.delta) <= 3.0
    shown = tune("show", search.id, "--json").json["trials"]
    best = max((trial for trial in shown if trial["state"] == "complete"), key=lambda trial: trial["score"])
    (run,) = tune("show", charged.id, "--json").json["trials"]
    assert run["parameters"] == best["parameters"], "the best configuration was trained"
    assert state.details["public_search"] == {
        "dataset": "open",
        "path": "open.npz",
        "sweep": search.id,
        "trials": 3,
        "sampler": "tpe",
        "pruner": "median",
        "declared_by": "the experiment file",
    }
    assert (told["sweep"], told["claim"]) == (charged.id, {"epsilon": 3.0, "delta": 1e-5})
    assert (told["public_search"]["sweep"], len(told["public_search"]["trials"])) == (search.id, 3)
    check_specs(*specs)
    assert [each["sweep"] for each in tune("status", "--json").json["sweeps"]] == [search.id, charged.id]
    page = Path(tune("report", search.id).out.split()[-1]).read_text()
    assert "declares public" in page
    assert "logistic_regression on open<" in page, "what it was searched on, and not the private records"
    assert f"sample rate {128 / (PUBLIC_SIZE * 0.9):.6g}" in page
    runs = [run.data for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-"]
    params = {run.tags["dp_tuner.sweep"]: run.params for run in runs}
    assert set(params) == {search.id, charged.id}, "all of both may be seen"
    assert params[search.id]["dataset.name"] == "open"
    assert params[search.id]["charged_run.dataset.name"] == params[charged.id]["dataset.name"] == "digits"

    exported = tune("export", "tiny", "--json").json
    assert (exported["sweep"], exported["claim"]) == (charged.id, {"epsilon": 3.0, "delta": 1e-5})
    assert Path(exported["folder"]) == Path("exports/tiny")
    assert tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"] == "yes"
    text = Path("exports/tiny/privacy_card.json").read_text()
    card = json.loads(text)
    assert (card["claim"]["mode"], card["public_search"]["dataset"]) == ("public", "open")
    assert card["public_search"]["label"].startswith("ASSUMED")
    assert str(tune.folder) not in text, "no path of this machine"
    plan = tune("plan", "exports/tiny/experiment.yaml", "--json", "--no-timing").json
    assert (plan["trials"], plan["accounting"]) == (1, "composition")


def test_with_the_surrogate_all_public_scores_choose_the_charged_run(tune: Tune, public: dict[str, object]) -> None:
    told = tune("run", tune.write(**{**public, "search__sampler": "surrogate", "search__pruner": "none"}), "--local")
    assert "the surrogate chose the configuration after 3 public trials" in told.out
    search, charged = both(tune)
    experiment = load_experiment(search.experiment)
    plan = plan_from(sweeps.read_json(search.plan), trials=3)
    study = open_sweep_study(search, experiment, plan)
    found = choose_by_proxy(study, experiment.space, search_setting(experiment, plan.rungs, plan), seed=experiment.seed)
    assert found is not None
    (run,) = tune("show", charged.id, "--json").json["trials"]
    assert run["parameters"]["learning_rate"] == pytest.approx(found.parameters["learning_rate"])
    assert tune.search_state(charged.id).leased_steps == STEPS


def check_specs(*specs: TrainingSpec) -> None:
    """The search has the steps, the batch and the noise of the charged run, which is on the private records."""
    *searched, charged = specs
    assert len(searched) == 3
    assert {spec.dataset.name for spec in searched} == {"open"}
    assert charged.dataset.name == "digits"
    for spec in searched:
        assert (spec.steps, spec.batch_size, spec.noise_multiplier) == (
            charged.steps, charged.batch_size, charged.noise_multiplier
        )  # fmt: skip
        assert spec.sample_rate == spec.batch_size / (PUBLIC_SIZE * 0.9)
    assert charged.sample_rate != searched[0].sample_rate
    assert charged.seed in {spec.seed for spec in searched}


def test_room_that_was_taken_meanwhile_keeps_the_search(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("budget", "set", "digits", "--epsilon", "5", "--delta", "1e-4")
    real = tuner.runner.public.run_open

    def beside(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        ended = real(*arguments, **more)
        tune("budget", "set", "digits", "--epsilon", "1", "--delta", "1e-4")
        return ended

    file = tune.write(**public)
    assert "[dataset-cap-exceeded]" in tune("run", file, "--local", "--set", "privacy.epsilon=6", code=3).err
    assert (tune.sweeps, tune.mlflow_runs()) == ([], []), "what has no room is refused before the search"
    with monkeypatch.context() as patch:
        patch.setattr(tuner.runner.public, "run_open", beside)
        tune("run", file, "--local", code=3)
    (folder,) = tune.sweeps
    assert "open_search" not in tune.entries
    assert f"to continue: tune resume {folder.name} --local" in tune("status").out, "its charged run is missing"
    tune("budget", "set", "digits", "--epsilon", "5", "--delta", "1e-4")
    tune("resume", "tiny", "--local")
    assert tune.search_state(both(tune)[1].id).leased_steps == STEPS
    assert both(tune)[0].root == folder


@pytest.mark.parametrize("changed", ["order", "test records"])
def test_the_private_records_under_another_name_are_refused(
    tune: Tune, public: dict[str, object], changed: str
) -> None:
    with np.load(tune.folder / "open.npz") as stored:
        arrays = dict(stored)
    np.savez(tune.folder / "own.npz", **arrays)
    if changed == "order":
        arrays |= {key: arrays[key][::-1] for key in ("x_train", "y_train")}
    else:
        arrays |= {key: arrays[key][:50] for key in ("x_test", "y_test")}
    np.savez(tune.folder / "open.npz", **arrays)
    own = {"name": "own", "path": "own.npz", "public_size": 500}
    file = tune.write(**{**public, "dataset": own})
    assert "[records-not-admitted]" in tune("run", file, "--local", code=3).text
    assert tune.sweeps == []
    # Other records get the same answer, so it tells nothing. Once the owner has entered them, they are admitted.
    told = tune("run", file, "--local", "--json", code=3)
    arrays["x_train"] = arrays["x_train"].copy()
    arrays["x_train"][0] = 0
    np.savez(tune.folder / "open.npz", **arrays)
    assert tune("run", file, "--local", "--json", code=3).err == told.err
    tune("budget", "public", "open", "open.npz")
    request = prepare(file, (), data_dir=None).experiment
    use = admit_open_use(request.ledger, request.public_request(), beside=request.dataset_request())
    assert use.refusal is None


def test_records_of_another_shape_are_refused(tune: Tune, public: dict[str, object]) -> None:
    flat = np.zeros((100, 8, 8), dtype=np.uint8)
    labels = np.arange(100) % 10
    np.savez(tune.folder / "open.npz", x_train=flat, y_train=labels, x_test=flat[:10], y_test=labels[:10])
    file = tune.write(**{**public, "search__public": {"name": "open", "path": "open.npz", "public_size": 200}})
    error = tune("run", file, "--local", code=2).err
    assert "[public-records-shape]" in error
    assert tune.sweeps == []


# -- interrupted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "phase"), [(3, "the search"), (7, "the charged run")])
def test_it_goes_on_in_the_phase_in_which_it_was_left(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch, at: int, phase: str
) -> None:
    public["search__pruner"] = "none"
    with monkeypatch.context() as patch:
        raising_at(patch, at)
        said = tune("run", tune.write(**public), "--local", code=130)
    searching = phase == "the search"
    assert len(tune.sweeps) == (1 if searching else 2)
    assert "tune resume tiny" in said.err
    if searching:
        assert tune.entries == []
        assert "[charged-run-missing]" in tune("export", "tiny", code=2).err
    more = ("--set", "search.trials=4")
    if not searching:
        assert "[resume-changes-setting]" in tune("resume", "tiny", "--local", *more, code=2).err
    tune("resume", "tiny", "--local", *(more if searching else ()))
    search, charged = both(tune)
    assert len(tune("show", search.id, "--json").json["trials"]) == (4 if searching else 3)
    state = tune.search_state(charged.id)
    assert (state.leased_steps, state.status) == (STEPS, "closed")
    assert tune.entries.count("open_search") == 1
    before = tune.entries
    assert "nothing to do" in tune("resume", "tiny", "--local").out
    assert tune.search_state(charged.id).leased_steps == STEPS, "nothing was left to do"
    assert {kind: tune.entries.count(kind) for kind in ("lease", "open_search")} == {
        kind: before.count(kind) for kind in ("lease", "open_search")
    }


@pytest.mark.parametrize("at", ["create_as", "enter", "_run"])
def test_a_charged_run_that_was_half_begun_is_begun_once(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    real = sweeps.create_as

    def searches_only(storage: Path, sweep: str, **more: Any) -> SweepFolder:  # noqa: ANN401
        return dies() if sweeps.CHARGED in sweep else real(storage, sweep, **more)

    with monkeypatch.context() as patch:
        if at == "create_as":
            patch.setattr(sweeps, at, searches_only)
        else:
            patch.setattr(start, at, dies)
        run_until_death(tune.write(**public))
    tune("resume", "tiny", "--local", "--quiet")
    search, charged = both(tune)
    assert search.read_status()["charged_run"] == charged.id
    assert tune.entries.count("open_search") == 1
    assert tune.search_state(charged.id).leased_steps == STEPS
    assert tune.search_state(charged.id).details["public_search"]["sweep"] == search.id


def test_a_search_that_is_stopped_charges_nothing(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PrivateTraining.run_to

    def stopping(training: PrivateTraining, step: int) -> None:
        tune("stop", "tiny")
        real(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateTraining, "run_to", stopping)
        tune("run", tune.write(**public), "--local", "--quiet")
    assert tune.entries == []
    begun = len(tune("show", "tiny", "--json").json["trials"])
    assert begun == 1
    tune("resume", "tiny", "--local", "--set", f"search.trials={begun}")
    assert tune.search_state(both(tune)[1].id).leased_steps == STEPS


def test_a_search_in_which_every_trial_fails_charges_nothing(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(PrivateTraining, "run_to", breaks)
    tune("run", tune.write(**public), "--local", code=1)
    assert tune.entries == []
    assert len(tune.sweeps) == 1


@pytest.mark.slow
def test_on_ray(tune: Tune, public: dict[str, object]) -> None:
    process = tune.process("run", tune.write(**public), "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["state"] == "done"
    assert tune.search_state(both(tune)[1].id).leased_steps == STEPS
