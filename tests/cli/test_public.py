"""Public mode: the search runs on records that anyone may see, and one charged run of its best on the private ones."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fakes import STEPS, Tune

import tuner.runner.public
from trainables.data import DatasetRequest, load_records
from trainables.training import PrivateTraining
from tuner.privacy.accountant.pld import epsilon
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder

PUBLIC_SIZE = 500


@pytest.fixture
def public(tune: Tune) -> dict[str, object]:
    """Changes of the tiny file that make it a search on public records, written beside it."""
    generator = np.random.default_rng(0)
    centres = generator.integers(0, 256, (10, 1, 8, 8))
    labels = generator.integers(0, 10, 600)
    images = np.clip(centres[labels] + generator.normal(0, 40, (600, 1, 8, 8)), 0, 255).astype(np.uint8)
    write_records(tune.folder / "open.npz", images[:500], labels[:500], images[500:], labels[500:])
    return {
        "privacy__accounting": "public",
        "privacy__epsilon": 3.0,
        "privacy__noise_multiplier": "auto",
        "search__trials": 3,
        "search__sampler": "tpe",
        "search__pruner": "median",
        "search__public": {"name": "open", "path": "open.npz", "public_size": PUBLIC_SIZE},
    }


def write_records(path: Path, x_train: Any, y_train: Any, x_test: Any, y_test: Any) -> None:  # noqa: ANN401 - arrays
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def both(tune: Tune) -> tuple[SweepFolder, SweepFolder]:
    """The search and its charged run."""
    search, charged = (SweepFolder(root) for root in sorted(tune.sweeps, key=lambda root: "charged" in root.name))
    return search, charged


def test_one_command_searches_in_public_and_charges_one_run(tune: Tune, public: dict[str, object]) -> None:
    said = tune("run", tune.write(**public), "--local")
    search, charged = both(tune)
    assert tune.entries == ["open_search", "reserve", "lease", "lease", "settle", "close_search"]
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
    assert "declares public: nothing is charged" in said.text
    assert "NOT PRIVATE" not in said.text
    assert f"trial {best['number']} was the best; it is now trained once on the private records" in said.text
    parents = {run.data.tags["dp_tuner.sweep"] for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-"}
    assert parents == {search.id, charged.id}, "all of both may be seen"
    assert [each["sweep"] for each in tune("status", "--json").json["sweeps"]] == [search.id, charged.id]
    page = Path(tune("report", search.id).out.split()[-1]).read_text()
    assert "declares public" in page
    assert "logistic_regression on open<" in page, "what it was searched on, and not the private records"
    assert "open (declared public)" in page
    assert "nothing charged" in page
    rate = f"sample rate {128 / (PUBLIC_SIZE * 0.9):.6g}"
    assert rate in page
    assert rate in said.text
    params = {
        run.data.tags["dp_tuner.sweep"]: run.data.params
        for run in tune.mlflow_runs()
        if run.data.tags["dp_tuner.trial"] == "-"
    }
    assert params[search.id]["dataset.name"] == "open"
    assert params[search.id]["charged_run.dataset.name"] == "digits"
    assert params[charged.id]["dataset.name"] == "digits"
    assert "nothing to do" in tune("resume", "tiny", "--local").out


def test_the_search_has_the_steps_batch_and_noise_of_the_charged_run(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = []
    real = PrivateTraining.__init__

    def noted(training: PrivateTraining, spec: Any, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        specs.append(spec)
        real(training, spec, *arguments, **more)

    monkeypatch.setattr(PrivateTraining, "__init__", noted)
    tune("run", tune.write(**public), "--local", "--quiet")
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


def test_its_answer_to_a_program_is_one_object(tune: Tune, public: dict[str, object]) -> None:
    told = tune("run", tune.write(**public), "--local", "--json").json
    search, charged = both(tune)
    assert told["sweep"] == charged.id
    assert told["claim"] == {"epsilon": 3.0, "delta": 1e-5}
    assert told["public_search"]["sweep"] == search.id
    assert len(told["public_search"]["trials"]) == 3


def test_what_the_data_set_has_no_room_for_is_refused_before_the_search(tune: Tune, public: dict[str, object]) -> None:
    tune("budget", "set", "digits", "--epsilon", "2", "--delta", "1e-4")
    entries = tune.entries
    error = tune("run", tune.write(**public), "--local", code=3).err
    assert "digits" in error
    assert (tune.entries, tune.sweeps, tune.mlflow_runs()) == (entries, [], [])


def test_room_that_was_taken_meanwhile_keeps_the_search(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("budget", "set", "digits", "--epsilon", "5", "--delta", "1e-4")
    real = tuner.runner.public.run_open

    def beside(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        ended = real(*arguments, **more)
        tune("budget", "set", "digits", "--epsilon", "1", "--delta", "1e-4")
        return ended

    with monkeypatch.context() as patch:
        patch.setattr(tuner.runner.public, "run_open", beside)
        tune("run", tune.write(**public), "--local", code=3)
    (folder,) = tune.sweeps
    assert "open_search" not in tune.entries
    tune("budget", "set", "digits", "--epsilon", "5", "--delta", "1e-4")
    tune("resume", "tiny", "--local")
    assert tune.search_state(both(tune)[1].id).leased_steps == STEPS
    assert both(tune)[0].root == folder


def test_the_private_records_under_another_name_are_refused(tune: Tune, public: dict[str, object]) -> None:
    splits = load_records(DatasetRequest(name="digits"))
    images = np.concatenate([splits.x_train, splits.x_validation]).reshape(-1, 1, 8, 8)
    labels = np.concatenate([splits.y_train, splits.y_validation])
    arrays = (images, labels, splits.x_test.numpy().reshape(-1, 1, 8, 8), splits.y_test.numpy())
    private = tune.folder / "private.npz"
    write_records(private, *arrays)
    own = {"name": "own", "path": "private.npz", "public_size": len(images)}
    write_records(tune.folder / "copy.npz", *arrays)
    file = tune.write(**{**public, "dataset": own, "search__public": {**own, "name": "copy", "path": "copy.npz"}})
    error = tune("run", file, "--local", code=2).err
    assert "[public-records-private]" in error
    assert tune.sweeps == []
    changed = images.copy()
    changed[0] = 0
    write_records(tune.folder / "copy.npz", changed, *arrays[1:])
    tune("run", file, "--dry-run")
    tune("run", file, "--local", "--quiet", "--set", "search.trials=2")


def test_records_of_another_shape_are_refused(tune: Tune, public: dict[str, object]) -> None:
    flat = np.zeros((100, 8, 8), dtype=np.uint8)
    write_records(tune.folder / "open.npz", flat, np.arange(100) % 10, flat[:10], np.arange(10))
    file = tune.write(**{**public, "search__public": {"name": "open", "path": "open.npz", "public_size": 200}})
    error = tune("run", file, "--local", code=2).err
    assert "[public-records-shape]" in error
    assert tune.sweeps == []


# -- interrupted -----------------------------------------------------------------------------------------------------


def interrupting_at(patch: pytest.MonkeyPatch, at: int) -> None:
    real, calls = PrivateTraining.run_to, iter(range(10_000))

    def stops(training: PrivateTraining, step: int) -> None:
        if next(calls) == at:
            raise KeyboardInterrupt
        real(training, step)

    patch.setattr(PrivateTraining, "run_to", stops)


@pytest.mark.parametrize(("at", "phase"), [(3, "the search"), (7, "the charged run")])
def test_it_goes_on_in_the_phase_in_which_it_was_left(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch, at: int, phase: str
) -> None:
    public["search__pruner"] = "none"
    with monkeypatch.context() as patch:
        interrupting_at(patch, at)
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


class Died(BaseException):
    """Stands for the death of the process: nothing in the program catches it."""


@pytest.mark.parametrize("at", ["create_as", "enter", "_run"])
def test_a_charged_run_that_was_half_begun_is_begun_once(
    tune: Tune, public: dict[str, object], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    import tuner.runner.start
    from tuner.runner.commands import RunOptions, run_file

    def dies(*_: object, **__: object) -> None:
        raise Died

    place: Any = sweeps if at == "create_as" else tuner.runner.start
    with monkeypatch.context() as patch:
        if at == "create_as":
            patch.setattr(tuner.runner.public.sweeps, "create", real_create)
        patch.setattr(place, at, dies)
        with pytest.raises(Died):
            run_file(tune.write(**public), (), RunOptions(local=True, quiet=True))
    tune("resume", "tiny", "--local", "--quiet")
    search, charged = both(tune)
    assert search.read_status()["charged_run"] == charged.id
    assert tune.entries.count("open_search") == 1
    assert tune.search_state(charged.id).leased_steps == STEPS
    assert tune.search_state(charged.id).details["public_search"]["sweep"] == search.id


def real_create(storage: Path, name: str) -> SweepFolder:
    folder = SweepFolder(storage.resolve() / sweeps.new_sweep_id(name))
    folder.trials.mkdir(parents=True)
    return folder


def test_a_search_that_is_stopped_charges_nothing(tune: Tune, public: dict[str, object]) -> None:
    process = tune.process("run", tune.write(**{**public, "search__trials": 500}), "--local")
    assert process.stdout is not None
    for line in process.stdout:
        if "trial 0 complete" in line:
            break
    assert "no new one starts" in tune("stop", "tiny").out
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "The charged run has not started" in out
    assert tune.entries == []
    begun = len(tune("show", "tiny", "--json").json["trials"])
    assert begun < 500
    tune("resume", "tiny", "--local", "--set", f"search.trials={begun}")
    assert tune.search_state(both(tune)[1].id).leased_steps == STEPS


@pytest.mark.slow
def test_ctrl_c_in_the_search_ends_in_130(tune: Tune, public: dict[str, object]) -> None:
    process = tune.process("run", tune.write(**{**public, "search__trials": 500}), "--local")
    assert process.stdout is not None
    for line in process.stdout:
        if "trial 0 complete" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "tune resume tiny" in err
    assert tune.entries == []


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
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    assert json.loads(out)["state"] == "done"
    assert tune.search_state(both(tune)[1].id).leased_steps == STEPS


def test_the_export_is_that_of_the_charged_run(tune: Tune, public: dict[str, object]) -> None:
    tune("run", tune.write(**public), "--local", "--quiet")
    exported = tune("export", "tiny", "--json").json
    search, charged = both(tune)
    assert exported["sweep"] == charged.id
    assert exported["claim"] == {"epsilon": 3.0, "delta": 1e-5}
    assert Path(exported["folder"]) == Path("exports/tiny")
    card = Path("exports/tiny/privacy_card.md").read_text()
    assert "open" in card
    assert "public" in card
    assert tune("verify", "exports/tiny/privacy_card.json").code == 0
    assert "epsilon" in Path(tune("report", charged.id).out.split()[-1]).read_text()
    assert search.id != charged.id


@pytest.mark.parametrize("changed", ["order", "test records"])
def test_the_private_records_in_another_order_are_no_public_ones(
    tune: Tune, public: dict[str, object], changed: str
) -> None:
    with np.load(tune.folder / "open.npz") as stored:
        arrays = dict(stored)
    write_records(tune.folder / "own.npz", **arrays)
    if changed == "order":
        arrays |= {key: arrays[key][::-1] for key in ("x_train", "y_train")}
    else:
        arrays |= {key: arrays[key][:50] for key in ("x_test", "y_test")}
    write_records(tune.folder / "open.npz", **arrays)
    own = {"name": "own", "path": "own.npz", "public_size": 500}
    file = tune.write(**{**public, "dataset": own})
    assert "[public-records-private]" in tune("run", file, "--local", code=2).text
    assert tune.sweeps == []
