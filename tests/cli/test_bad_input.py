"""Starts that are refused, in more than one command, and the damage that stops everything; see also the formal list."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from command_fakes import Tune

from trainables.training import PrivateTraining
from tuner.sweep import own_machine


def refused(tune: Tune, *words: str) -> str:
    """The one error of a run that must not start."""
    said = tune("run", *words, "--local", code=2)
    assert said.err.strip()
    assert not (tune.folder / "dp-tuner" / "ledger.db").exists(), "not even an empty ledger is made"
    assert tune.sweeps == []
    assert tune.mlflow_runs() == []
    return said.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("of_two_inputs", "TypeError"),
        ("failing", "KeyError: 'mine' ("),
        ("batch_norm", "BatchNorm"),
        ("Unclamped", "[model-raises]"),
    ],
)
def test_a_model_that_no_run_could_train_is_refused_at_its_line(bare: Tune, name: str, words: str) -> None:
    model = f"own_models:{name}"
    file = bare.write(trainable__model=model)
    line = (bare.folder / file).read_text().splitlines().index(f"  model: {model}") + 1
    planned = bare("plan", file, "--no-timing", code=2).err
    for said in (planned, refused(bare, file)):
        assert f"error: {file}:{line}: trainable.model: " in said
        assert words in said
        assert said.count("error:") == 1
    option = f"trainable.model={model}"
    assert f"error: --set {option}: trainable.model: " in bare("plan", bare.write(), "--set", option, code=2).err


def test_a_model_of_rows_from_the_current_folder_is_planned_as_it_is_run(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is timed on the same inputs on which it is checked. None of them is negative."""
    (tune.folder / "my_rows.py").write_text("from own_models import Rows as build\n")
    file = tune.write(trainable__model="my_rows:build", search__trials=1)
    assert tune("plan", file, "--json").json["wall_time_seconds"] > 0
    assert tune("run", file, "--local", "--json").json["trials"][0]["state"] == "complete"
    # An installed program does not find the current folder by itself, and `tune export` is another process.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tune.folder))])
    sys.modules.pop("my_rows")
    tune("export", "tiny")


def test_augmented_rows_of_ones_own_table_are_refused_by_a_plan_too(bare: Tune) -> None:
    x, y = np.zeros((240, 6), dtype=np.float32), np.arange(240) % 2
    np.savez(bare.folder / "own.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    own = {"dataset__name": "own", "dataset__path": "own.npz", "dataset__public_size": 200}
    space = {"learning_rate": "default", "augmentation": {"choice": ["none", "crop"]}}
    file = bare.write(**own, trainable__batch_size=45, search__space=space)
    assert "[augmentation-needs-images]" in bare("plan", file, code=2).err
    assert "[augmentation-needs-images]" in refused(bare, file)


def test_a_damaged_ledger_stops_everything_and_is_never_started_afresh(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    tune("run", file, "--local", "--quiet")
    folders = tune.sweeps
    path = tune.folder / "dp-tuner" / "ledger.db"
    damaged = b"not a ledger" * 100
    path.write_bytes(damaged)
    for wal in path.parent.glob("ledger.db-*"):
        wal.unlink()
    for words in (("run", file, "--local"), ("status", "tiny"), ("export", "tiny"), ("budget",)):
        assert "ledger" in tune(*words, code=1).err
    assert path.read_bytes() == damaged
    assert tune.sweeps == folders
    listed = tune("status", "--json").json["sweeps"]
    assert [each["state"] for each in listed] == ["unreadable"]


def test_a_dry_run_starts_nothing(bare: Tune) -> None:
    plan = bare("run", bare.write(), "--dry-run", "--json").json
    assert plan["step_cap"] >= 20
    assert (bare.entries, bare.sweeps, bare.mlflow_runs()) == ([], [], [])
    assert "[options-conflict]" in bare("run", bare.write(), "--dry-run", "--resume", code=2).err


def test_trials_that_all_fail_end_the_sweep_with_one(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: PrivateTraining, step: int) -> None:
        raise RuntimeError("a record: 17")

    monkeypatch.setattr(PrivateTraining, "run_to", broken)
    said = tune("run", tune.write(search__trials=5), "--local", code=1)
    assert "[first-trials-failed]" in said.err
    assert "a record: 17" not in said.text, "what a model says may show data"
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert (status["state"], status["trials"]["failed"]) == ("failed", 3)
    state = tune.search_state(tune.sweeps[0].name)
    assert (state.leased_steps, state.status) == (3 * 10, "open"), "charged whole: no count tells at which step it was"
    assert {run.info.status for run in tune.mlflow_runs()} == {"FAILED"}
    for _ in range(2):  # the two trials that are left fail too, and then no other can start
        said = tune("resume", "tiny", "--local", code=1)
        assert "[all-trials-failed]" in said.err
        assert "all 5 trials failed (the last one: its training raised an error" in said.err
        status = tune("status", "tiny", "--json").json["sweeps"][0]
        assert (status["state"], status["trials"]["failed"]) == ("failed", 5)
    assert "all 5 trials failed" in tune("export", "tiny", code=2).err, "the cause, not only that it has not ended"
    assert "to continue, once the cause is fixed: tune resume" in tune("status", "tiny").text


def test_a_search_whose_first_trials_failed_goes_on_when_the_cause_is_fixed(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTraining, "run_to", lambda self, step: [][step])
        tune("run", tune.write(search__trials=4), "--local", code=1)
    tune("resume", "tiny", "--local")
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert (status["state"], status["trials"]["failed"], status["trials"]["complete"]) == ("done", 3, 1)


def test_a_plan_for_gpus_is_made_on_a_machine_without_one(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be for a cluster, so it is a warning at the line of the file, and only a run here is refused."""
    monkeypatch.setattr(own_machine, "_gpus", lambda: 0)
    file = bare.write(resources__gpus_per_trial=1)
    number = (bare.folder / file).read_text().splitlines().index("  gpus_per_trial: 1") + 1
    planned = bare("plan", file, "--json").json
    (warning,) = (each for each in planned["warnings"] if "GPU" in each)
    assert warning.startswith(f"{file}:{number}: resources.gpus_per_trial: one trial needs 1 GPU")
    assert planned["wall_time_seconds"] is None
    assert f"error: {file}:{number}: resources.gpus_per_trial: " in bare("run", file, "--local", code=2).err


def test_a_plan_and_a_check_tell_of_public_records_that_are_not_there(bare: Tune) -> None:
    public = {"name": "open", "path": "open.npz", "public_size": 900}
    file = bare.write(privacy__accounting="public", search__public=public)
    (said,) = (each for each in bare("plan", file, "--no-timing", "--json").json["warnings"] if "open.npz" in each)
    assert said.startswith("a run needs the public records")
    assert said in bare("validate", file).err
