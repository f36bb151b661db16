"""A sweep's folder: its name, what lies in it, and how one is found again."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import InputError, TunerError

__all__ = ["SweepFolder", "create", "find", "list_sweeps"]

_ID = re.compile(r"^(?P<name>.+)-(?P<time>\d{8}-\d{6})-(?P<tail>[0-9a-f]{6})$")


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one sweep; its name is the sweep's id, unique among everyone who shares a ledger.

    Attributes:
        root: absolute path; the last part is the id, ``name-date-time-random``.
    """

    root: Path

    @property
    def id(self) -> str:
        """The sweep's id, the same in the ledger, in MLflow and on disk."""
        return self.root.name

    @property
    def name(self) -> str:
        """The experiment's name."""
        match = _ID.match(self.id)
        return match["name"] if match else self.id

    @property
    def experiment(self) -> Path:
        """The resolved experiment file."""
        return self.root / "experiment.yaml"

    @property
    def plan(self) -> Path:
        """The plan that the search was started with."""
        return self.root / "plan.json"

    @property
    def status(self) -> Path:
        """How the sweep stands; replaced as a whole, never half written."""
        return self.root / "status.json"

    @property
    def journal(self) -> Path:
        """The Optuna storage, where none was asked for by URL."""
        return self.root / "study.journal"

    @property
    def trials(self) -> Path:
        """One folder a trial, with its checkpoints."""
        return self.root / "trials"

    @property
    def operator_log(self) -> Path:
        """Tracebacks and whatever else only the operator may see."""
        return self.root / "operator.log"

    @property
    def stop_request(self) -> Path:
        """A file whose presence asks the running sweep to stop."""
        return self.root / "stop"

    def write_status(self, **values: object) -> None:
        """Replace the status by its old values updated with these."""
        write_json(self.status, {**self.read_status(), **values})

    def read_status(self) -> dict[str, object]:
        """The status, or an empty dictionary when there is none yet.

        Raises:
            TunerError: the file cannot be read as JSON.
        """
        return read_json(self.status) if self.status.exists() else {}


def write_json(path: Path, values: object) -> None:
    """Write JSON so that a crash leaves the old file or the new one."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("w") as file:
        json.dump(values, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        TunerError: it is not there, or not a JSON object.
    """
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TunerError(f"{path} must be a readable JSON object, got {error}.") from error
    if not isinstance(values, dict):
        raise TunerError(f"{path} must hold a JSON object, got {type(values).__name__}.")
    return values


def create(storage: Path, name: str) -> SweepFolder:
    """Make the folder of a new sweep under `storage`.

    Raises:
        InputError: the folder cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    root = storage.resolve() / f"{name}-{stamp}-{secrets.token_hex(3)}"
    try:
        (root / "trials").mkdir(parents=True)
    except OSError as error:
        raise InputError(f"storage must be a folder that can be written, got {storage}: {error.strerror}.") from error
    return SweepFolder(root)


def list_sweeps(storage: Path) -> list[SweepFolder]:
    """All sweeps under `storage`, oldest first."""
    if not storage.is_dir():
        return []
    found = [SweepFolder(path.resolve()) for path in storage.iterdir() if path.is_dir() and _ID.match(path.name)]
    return sorted(found, key=lambda sweep: (sweep.id[-22:], sweep.id))


def find(storage: Path, name: str) -> SweepFolder:
    """The sweep of that id, else the newest of that name; a path to a sweep's folder is taken as it is.

    Raises:
        InputError: there is none; the message lists those there are.
    """
    direct = Path(name)
    if direct.is_dir() and (direct / "experiment.yaml").exists():
        return SweepFolder(direct.resolve())
    sweeps = list_sweeps(storage)
    matching = [sweep for sweep in sweeps if name in {sweep.id, sweep.name}]
    if matching:
        return matching[-1]
    known = ", ".join(sorted({sweep.name for sweep in sweeps})) or "none yet"
    raise InputError(
        f"a sweep must be named by its name or id, got {name!r}, which is not under {storage}. Known: {known}. "
        "Start one with `tune run FILE`, or give --storage."
    )
