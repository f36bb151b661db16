"""Wrong input: one error and exit code 2, before a folder, a run or an entry of the ledger is made."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from command_fakes import Tune

from trainables.training import PrivateTraining


def refused(tune: Tune, *words: str) -> str:
    """The one error of a run that must not start."""
    said = tune("run", *words, "--local", code=2)
    assert said.err.strip()
    assert not (tune.folder / "dp-tuner" / "ledger.db").exists(), "not even an empty ledger is made"
    assert tune.sweeps == []
    assert tune.mlflow_runs() == []
    return said.err


PROMOTED = {"R": {"log_uniform": [0.5, 2.0]}, "K": {"promote": [1, 3, 10]}, "learning_rate": 0.5}
CASES: dict[str, tuple[dict[str, object], str]] = {
    "a value of the file": ({"privacy__epsilon": float("nan")}, "privacy.epsilon"),
    "a data set that is not there": ({"dataset__name": "mnist"}, "mnist"),
    "a user's model that is not there": ({"trainable__model": "no_such_module:build"}, "no_such_module"),
    "a precision that the model cannot have": (
        {"trainable__model": "own_models:Scaled", "trainable__precision": "bfloat16"},
        "[mixed-precision-unsupported]",
    ),
    "a word for a sampler's number": ({"search__sampler": {"name": "tpe", "n_startup_trials": "x"}}, "tpe"),
    "a trial too short for its levels": (
        {"trainable__method": "dplis", "search__space": PROMOTED, "search__rungs": 4, "trainable__epochs": 0.3},
        "[promotion-steps]",
    ),
    "a regression with protected scores": (
        {
            "dataset": {"name": "regression_1d", "validation": {"fraction": 0.2, "protected": True}},
            "trainable__task": "regression",
            "search__metric": {"name": "validation_loss", "mode": "min"},
        },
        "[metric-not-protectable]",
    ),
    "several workers in one process": ({"resources__workers_per_trial": 2}, "[workers-local]"),
    "a folder for MLflow": ({"tracking__uri": "runs/mlflow"}, "tracking.uri"),
    "a server without a host": ({"tracking__uri": "http://"}, "tracking.uri"),
    "a server with a port that is none": ({"tracking__uri": "http://host:99999"}, "tracking.uri"),
    "a tracking server with a password": (
        {"tracking__uri": "http://me:secret@host:5000"},
        "[tracking-uri-password]",
    ),
    "a ledger with a password": ({"ledger": "postgresql://me:secret@host/db"}, "[ledger-url-password]"),
    "a storage that is a file": ({"storage": "tiny.yaml"}, "storage"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_error_and_nothing_started(bare: Tune, case: str, tmp_path: Path) -> None:
    changes, names = CASES[case]
    (tmp_path / "empty").mkdir()
    error = refused(bare, bare.write(**changes), "--data-dir", "empty")
    assert names in error
    assert error.count("error:") == 1
    assert "secret" not in error


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
