"""The commands in a folder of their own, with made-up records and an experiment file, for the known breaks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

__all__ = ["RECORDS", "Bench", "Said", "copy_ledger"]

RECORDS, _SIDE, _CLASSES = 60, 4, 3
_EXPERIMENT: Final[dict[str, Any]] = {
    "schema": 1,
    "name": "break",
    "dataset": {"name": "own", "path": "own.npz", "public_size": RECORDS, "validation": {"fraction": 0.3}},
    "trainable": {"method": "dp_sgd", "model": "logistic_regression", "batch_size": 15, "epochs": 4},
    "privacy": {"epsilon": 9.0, "delta": 1e-3, "noise_multiplier": 2.0},
    "search": {"trials": 1, "sampler": "random", "rungs": 1, "space": {"learning_rate": {"log_uniform": [0.05, 0.2]}}},
}


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    text: str

    @property
    def refused(self) -> bool:
        """Whether it refused by an error of its own."""
        return self.code in (1, 2, 3) and "error:" in self.text and "Traceback" not in self.text


class Bench:
    """The commands in a folder of their own."""

    def __init__(self, folder: Path, mlflow: Path) -> None:
        self.folder = folder
        (folder / "runs").mkdir(parents=True)
        shutil.copy(mlflow, folder / "runs" / "mlflow.db")

    def __call__(self, *words: str) -> Said:
        """Run a command."""
        from click.testing import CliRunner

        from tuner.cli.app import cli

        with contextlib.chdir(self.folder), warnings.catch_warnings():
            warnings.simplefilter("always")
            done = CliRunner().invoke(cli, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout + done.stderr)

    def write(self, file: str = "break.yaml", **changes: object) -> str:
        """Write an experiment file with changes, ``section__key=value``."""
        values = json.loads(json.dumps(_EXPERIMENT))
        for key, value in {"ledger": f"sqlite:///{self.folder}/runs/ledger.db", **changes}.items():
            *sections, last = key.split("__")
            place = values
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        (self.folder / file).write_text(yaml.safe_dump(values))
        return file

    def records(
        self, file: str = "own.npz", *, key: int = 0, more: tuple[float, ...] | None = None, **arrays: np.ndarray
    ) -> None:
        """Write records, and one more with these first values."""
        draw = np.random.default_rng(key)
        x = draw.normal(size=(RECORDS, 1, _SIDE, _SIDE))
        y = draw.integers(0, _CLASSES, RECORDS)
        test = draw.normal(size=(30, 1, _SIDE, _SIDE)), np.arange(30) % _CLASSES
        users = np.array([f"u{number % 30}" for number in range(RECORDS)])
        if more is not None:
            record = np.full(_SIDE**2, more[-1])
            record[: len(more)] = more
            x, y = np.concatenate([x, record.reshape(1, 1, _SIDE, _SIDE)]), np.append(y, 0)
            users = np.append(users, "new")
        fields = {"x_train": x, "y_train": y, "x_test": test[0], "y_test": test[1], "user_train": users}
        np.savez(self.folder / file, **{**fields, "classes": np.int64(_CLASSES), **arrays})

    def enter_public(self, name: str, *, key: int) -> Said:
        """Write records, and let the owner enter them as public."""
        self.records(f"{name}.npz", key=key)
        return self("budget", "public", name, f"{name}.npz", "--ledger", f"sqlite:///{self.folder}/runs/ledger.db")

    def entries(self) -> int:
        """Return the number of entries of the ledger; 0 without one."""
        import sqlite3

        path = self.folder / "runs" / "ledger.db"
        if not path.exists():
            return 0
        with contextlib.closing(sqlite3.connect(path)) as raw:
            return int(raw.execute("SELECT count(*) FROM entries").fetchone()[0])

    def sweep_states(self) -> list[str]:
        """Return the states in all status files, and whether there is a winner."""
        found = [
            json.loads(path.read_text()).get("state", "") for path in sorted(self.folder.glob("runs/*/status.json"))
        ]
        return [*found, str(len(list(self.folder.glob("runs/*/winner.json"))))]


def copy_ledger(source: Path, target: Path) -> None:
    """Copy a ledger over another one, as a restored backup does."""
    import sqlite3

    for path in (target, *target.parent.glob(f"{target.name}-*")):
        path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)
        new.commit()
    os.chmod(target, 0o600)
