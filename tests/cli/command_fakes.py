"""The commands as a test calls them: in this process by click's runner, or as a process of their own."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

TINY: dict[str, Any] = {
    "schema": 1,
    "name": "tiny",
    "dataset": {"name": "digits"},
    "trainable": {"method": "dp_sgd", "model": "logistic_regression", "batch_size": 128, "epochs": 1},
    "privacy": {"epsilon": 8.5, "noise_multiplier": 2.0},
    "search": {
        "trials": 2,
        "sampler": "random",
        "rungs": 2,
        "space": {"learning_rate": {"log_uniform": [0.1, 2.0]}},
    },
}
STEPS = 10
"""Steps of one trial of `TINY`: one epoch of 1261 records in batches of 128."""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All of it, with the line breaks of panels taken out."""
        return " ".join((self.out + self.err).replace("│", " ").split())

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command printed
        return json.loads(self.out)


class Tune:
    """The commands in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, code: int | None = 0) -> Said:
        """Run a command here; `code` is the exit code that it must have, None for any."""
        from tuner.cli.app import cli

        done = CliRunner().invoke(cli, words)
        said = Said(done.exit_code, done.stdout, done.stderr)
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        assert "Traceback" not in said.out + said.err
        assert code is None or said.code == code, f"{said.code} instead of {code}:\n{said.out}\n{said.err}"
        return said

    def process(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command as a process of its own, which leads a process group, as in a shell."""
        return subprocess.Popen(
            [sys.executable, "-u", "-m", "tuner", *words],
            cwd=self.folder,
            process_group=0,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run under nohup
        )

    def write(self, file: str = "tiny.yaml", **changes: object) -> str:
        """An experiment file: `TINY` with other values, ``section__key=value``."""
        values = json.loads(json.dumps(TINY))
        for key, value in changes.items():
            *sections, last = key.split("__")
            place = values
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        (self.folder / file).write_text(yaml.safe_dump(values, sort_keys=False))
        return file

    @property
    def sweeps(self) -> list[Path]:
        """Folders of sweeps, oldest first."""
        runs = self.folder / "runs"
        return sorted(path for path in runs.glob("*-*-*") if path.is_dir()) if runs.exists() else []

    @property
    def entries(self) -> list[str]:
        """Kinds of the ledger's lines, read without the program; empty when there is no ledger."""
        path = self.folder / "dp-tuner" / "ledger.db"
        if not path.exists():
            return []
        with sqlite3.connect(path) as raw:
            return [kind for (kind,) in raw.execute("SELECT kind FROM entries ORDER BY id")]

    @property
    def ledger_url(self) -> str:
        return f"sqlite:///{self.folder / 'dp-tuner' / 'ledger.db'}"

    def search_state(self, sweep: str) -> Any:  # noqa: ANN401 - a SearchState, whose module a test may not import yet
        from tuner.privacy.ledger.ledger import Ledger

        return Ledger.open(self.ledger_url, create=False).search_state(sweep)

    def mlflow_runs(self, experiment: str = "tiny") -> list[Any]:
        """Runs of an MLflow experiment; empty when there is no database or no such experiment."""
        path = self.folder / "runs" / "mlflow.db"
        if not path.exists():
            return []
        from tuner.recorder.mlflow_store import connect

        client = connect(f"sqlite:///{path}")
        found = client.get_experiment_by_name(experiment)
        return list(client.search_runs([found.experiment_id])) if found else []


def with_mlflow(folder: Path, ready_mlflow: Path) -> Tune:
    """The commands in an empty folder, to which MLflow's empty database is copied."""
    (folder / "runs").mkdir()
    shutil.copy(ready_mlflow, folder / "runs" / "mlflow.db")
    return Tune(folder)


def write_images(path: Path, records: int, **more: np.ndarray) -> None:
    """A file of noisy images of ten shapes: so many training records and a hundred test records."""
    generator = np.random.default_rng(0)
    centres = generator.integers(0, 256, (10, 1, 8, 8))
    labels = generator.integers(0, 10, records + 100)
    images = np.clip(centres[labels] + generator.normal(0, 40, (records + 100, 1, 8, 8)), 0, 255).astype(np.uint8)
    here, there = slice(records), slice(records, None)
    np.savez(path, x_train=images[here], y_train=labels[here], x_test=images[there], y_test=labels[there], **more)


def until(process: subprocess.Popen[str], words: str) -> None:
    """Read what the process says until a line holds `words`."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return
    assert process.stderr is not None
    raise AssertionError(f"it ended without {words!r}:\n{''.join(seen)}\n{process.stderr.read()}")


class Died(BaseException):
    """Death of the process: an exception that nothing in the program catches."""


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def dies(*_: object, **__: object) -> NoReturn:
    raise Died


def run_until_death(file: str) -> None:
    """Run an experiment in which some function was replaced by `dies`."""
    from tuner.runner.commands import RunOptions, run_file

    with pytest.raises(Died):
        run_file(file, (), RunOptions(local=True, quiet=True))


def dying_of_interrupts(patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Let an interruption in a training end the process with `error`. The wall lets nothing else out."""
    from trainables import rungs

    wall = rungs.behind

    def dying(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the wall's own
        try:
            return wall(*arguments, **options)
        except KeyboardInterrupt:
            raise error from None

    patch.setattr(rungs, "behind", dying)


def raising_at(
    patch: pytest.MonkeyPatch, at: int, error: type[BaseException] = KeyboardInterrupt, after: int = 0
) -> None:
    """Raise an error in the n-th rung of all trainings, once, after some of its steps."""
    from trainables.training import PrivateTraining

    dying_of_interrupts(patch, error)
    real, calls = PrivateTraining.run_to, iter(range(10_000))

    def raises(training: PrivateTraining, step: int) -> None:
        if next(calls) == at:
            if after:
                real(training, training.step + after)
            raise KeyboardInterrupt
        real(training, step)

    patch.setattr(PrivateTraining, "run_to", raises)
