"""Whatever is wrong is said once, before anything starts: exit 2, no line in the ledger, no run, no folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command_fakes import Tune
from torch import nn


def batch_norm_model(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


class Scaled(nn.Module):
    """A parameter beside a layer, which no hook sees."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(classes))
        self.layer = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.layer(x.flatten(1))


def model_with_a_parameter_of_its_own(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Scaled(classes)


def sequence_of_logits(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(1, 2), nn.Linear(8, classes))


def too_many_logits(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 3))


class Endless(nn.Linear):
    """Its logits are no numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1)) / 0


def logits_without_end(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Endless(64, classes)


def bare_lstm(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(1, 2), nn.LSTM(8, classes, batch_first=True))


def rows_of_floats(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Embedding(17, 2), nn.Flatten(), nn.Linear(128, classes))


def of_two_inputs(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Bilinear(64, 64, classes)


class Rows(nn.Module):
    """A valid model of numbers of rows, which come as floats."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(17, 2)
        self.last = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rows((16 * x.flatten(1)).long()).flatten(1))


def rows_of_numbers(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Rows(classes)


def model_that_fails(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    raise KeyError("mine")


def refused(tune: Tune, *words: str) -> str:
    """The one error of a run that must not start."""
    said = tune("run", *words, "--local", code=2)
    assert said.err.strip()
    assert not (tune.folder / "runs" / "ledger.db").exists(), "not even an empty ledger is made"
    assert tune.sweeps == []
    assert tune.mlflow_runs() == []
    return said.err


CASES: dict[str, tuple[dict[str, object], str]] = {
    "epsilon is NaN": ({"privacy__epsilon": float("nan")}, "privacy.epsilon"),
    "epsilon is negative": ({"privacy__epsilon": -1}, "privacy.epsilon"),
    "epsilon is zero": ({"privacy__epsilon": 0}, "privacy.epsilon"),
    "epsilon is infinite": ({"privacy__epsilon": float("inf")}, "privacy.epsilon"),
    "noise is NaN": ({"privacy__noise_multiplier": float("nan")}, "privacy.noise_multiplier"),
    "delta is NaN": ({"privacy__delta": float("nan")}, "privacy.delta"),
    "an unknown key": ({"privacy__epsilonn": 1}, "[key-unknown]"),
    "a data set that is not there": ({"dataset__name": "mnist"}, "mnist"),
    "an unknown data set": ({"dataset__name": "digit"}, "[dataset-unknown]"),
    "a parameter that the method lacks": ({"search__space": {"smoothing_radius": "default"}}, "smoothing_radius"),
    "a priced parameter": ({"search__space": {"batch_size": 64}}, "[priced-value-fixed]"),
    "augmented rows of a table": (
        {"dataset__name": "breast_cancer", "search__space": {"learning_rate": "default", "augmentation": "flip"}},
        "search.space.augmentation",
    ),
    "copies without an augmentation": (
        {"search__space": {"learning_rate": "default", "M": {"choice": [1, 4]}}},
        "search.space.M",
    ),
    "a precision that there is not": ({"trainable__precision": "float16"}, "trainable.precision"),
    "a precision that the model cannot have": (
        {"trainable__model": "test_bad_input:model_with_a_parameter_of_its_own", "trainable__precision": "bfloat16"},
        "[mixed-precision-unsupported]",
    ),
    "BatchNorm by name": ({"trainable__normalization": "batch"}, "[batch-norm-refused]"),
    "BatchNorm in the user's model": ({"trainable__model": "test_bad_input:batch_norm_model"}, "BatchNorm"),
    "a user's model that fails": ({"trainable__model": "test_bad_input:model_that_fails"}, "KeyError: 'mine'"),
    "a user's model of one output a row": ({"trainable__model": "test_bad_input:sequence_of_logits"}, "(3, 8, 10)"),
    "a user's model of too many outputs": ({"trainable__model": "test_bad_input:too_many_logits"}, "(3, 13)"),
    "a user's model of no numbers": ({"trainable__model": "test_bad_input:logits_without_end"}, "finite logits"),
    "a user's model that is not there": ({"trainable__model": "no_such_module:build"}, "no_such_module"),
    "shuffled batches": ({"trainable__sampling": "shuffle"}, "[batches-not-poisson]"),
    "a score of the test set": ({"search__metric": {"name": "test_accuracy"}}, "[metric-not-validation]"),
    "a pruner that is not there": ({"search__pruner": "medain"}, "[pruner-unknown]"),
    "an option that the pruner has not": ({"search__pruner": {"name": "median", "warm": 1}}, "[option-unknown]"),
    "a value that the pruner refuses": ({"search__pruner": {"name": "patient", "patience": -1}}, "patience"),
    "a word for a pruner's number": ({"search__pruner": {"name": "median", "n_startup_trials": "x"}}, "median"),
    "a word for a sampler's number": ({"search__sampler": {"name": "tpe", "n_startup_trials": "x"}}, "tpe"),
    "a grid of no points": ({"search__sampler": {"name": "grid", "points": 0}}, "points"),
    "a folder for MLflow": ({"tracking__uri": "runs/mlflow"}, "tracking.uri"),
    "an unknown kind of tracking": ({"tracking__uri": "gopher://host/x"}, "tracking.uri"),
    "a server without a host": ({"tracking__uri": "http://"}, "tracking.uri"),
    "a server with a port that is none": ({"tracking__uri": "http://host:99999"}, "tracking.uri"),
    "a ledger that is no address": ({"ledger": "ledger.db"}, "ledger"),
    "a ledger in memory": ({"ledger": "sqlite://"}, "ledger"),
    "a ledger of another kind": ({"ledger": "mysql://host/db"}, "ledger"),
    "a ledger with a password": ({"ledger": "postgresql://me:secret@host/db"}, "[ledger-url-password]"),
    "a storage that is a file": ({"storage": "tiny.yaml"}, "storage"),
    "a storage that cannot be written": ({"storage": "/proc/runs"}, "storage"),
    "a fixed seed of private noise": ({"privacy__noise_seed": 3}, "[noise-seed-private]"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_error_and_nothing_started(bare: Tune, case: str, tmp_path: Path) -> None:
    changes, names = CASES[case]
    (tmp_path / "empty").mkdir()
    error = refused(bare, bare.write(**changes), "--data-dir", "empty")
    assert names in error
    assert error.count("error:") == 1


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_plan_and_validate_find_what_run_would_refuse(bare: Tune, command: str) -> None:
    file = bare.write(search__pruner={"name": "patient", "patience": -1})
    assert "patience" in bare(command, file, code=2).err


@pytest.mark.parametrize("timing", ["--timing", "--no-timing"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bare_lstm", "[model-output-shape]"),
        ("rows_of_floats", "RuntimeError"),
        ("of_two_inputs", "TypeError"),
        ("sequence_of_logits", "(3, 8, 10)"),
        ("model_that_fails", "KeyError: 'mine'"),
        ("batch_norm_model", "BatchNorm"),
    ],
)
def test_a_plan_says_where_the_model_stands_that_no_run_could_train(
    bare: Tune, name: str, words: str, timing: str
) -> None:
    file = bare.write(trainable__model=f"test_bad_input:{name}")
    line = (bare.folder / file).read_text().splitlines().index(f"  model: test_bad_input:{name}") + 1
    said = bare("plan", file, timing, code=2)
    assert f"error: {file}:{line}: trainable.model: " in said.err
    assert words in said.err
    assert said.err.count("error:") == 1
    option = f"trainable.model=test_bad_input:{name}"
    assert f"error: --set {option}: trainable.model: " in bare("plan", bare.write(), "--set", option, code=2).err


def test_a_model_of_rows_is_planned_as_it_is_run(tune: Tune) -> None:
    """The inputs that it is timed on are those that it was checked on: none is below 0."""
    file = tune.write(trainable__model="test_bad_input:rows_of_numbers", search__trials=1)
    assert tune("plan", file, "--json").json["wall_time_seconds"] > 0
    assert tune("run", file, "--local", "--json").json["trials"][0]["state"] == "complete"


@pytest.mark.parametrize("command", ["plan", "run"])
def test_augmented_rows_of_ones_own_table_are_refused_by_a_plan_too(bare: Tune, command: str) -> None:
    x, y = np.zeros((240, 6), dtype=np.float32), np.arange(240) % 2
    np.savez(bare.folder / "own.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    own = {"dataset__name": "own", "dataset__path": "own.npz", "dataset__public_size": 200}
    space = {"learning_rate": "default", "augmentation": {"choice": ["none", "crop"]}}
    file = bare.write(**own, trainable__batch_size=45, search__space=space)
    assert "[augmentation-needs-images]" in bare(command, file, code=2).err
    assert bare.sweeps == []


def test_all_problems_of_a_file_come_at_once(bare: Tune) -> None:
    error = refused(bare, bare.write(privacy__epsilon=-1, trainable__sampling="shuffle", serach={}))
    assert [key in error for key in ("privacy.epsilon", "trainable.sampling", "serach")] == [True] * 3
    assert "tiny.yaml:" in error


def test_files_that_cannot_be_read(bare: Tune, tmp_path: Path) -> None:
    (tmp_path / "noise.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "broken.yaml").write_text("name: [")
    for name in ("noise.yaml", "folder.yaml", "empty.yaml", "broken.yaml"):
        assert name in refused(bare, name)
    assert "cifar10_dplis.yaml" in refused(bare, "cifar10_dpli.yaml")
    assert "nothing_like_it" in refused(bare, "nothing_like_it")
    assert "--set search.trials=none" in refused(bare, bare.write(), "--set", "search.trials=none")
    assert "trials" in refused(bare, bare.write(), "--set", "search.trails=3")


def test_a_damaged_ledger_stops_everything_and_is_never_started_afresh(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    tune("run", file, "--local", "--quiet")
    folders = tune.sweeps
    path = tune.folder / "runs" / "ledger.db"
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
    assert bare.entries == []
    assert bare.sweeps == []
    assert bare.mlflow_runs() == []
    assert "[options-conflict]" in bare("run", bare.write(), "--dry-run", "--resume", code=2).err


def test_a_model_of_ones_own_is_found_in_the_current_folder(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "my_small_models.py").write_text(
        "from torch import nn\n\n"
        "def linear(*, input_shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    file = tune.write(trainable__model="my_small_models:linear", search__trials=1)
    assert tune("run", file, "--local", "--json").json["trials"][0]["state"] == "complete"


def test_trials_that_all_fail_end_the_sweep_with_one(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.training import PrivateTraining

    def broken(self: PrivateTraining, step: int) -> None:
        raise RuntimeError("a record: 17")

    monkeypatch.setattr(PrivateTraining, "run_to", broken)
    said = tune("run", tune.write(search__trials=5), "--local", code=1)
    assert "first 3 trials all failed" in said.text
    assert "a record: 17" not in said.text, "what a model says may show data"
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert (status["state"], status["trials"]["failed"]) == ("failed", 3)
    state = tune.search_state(tune.sweeps[0].name)
    assert (state.leased_steps, state.status) == (0, "closed"), "no step was taken: nothing is committed"
    assert {run.info.status for run in tune.mlflow_runs()} == {"FAILED"}
