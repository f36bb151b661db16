"""A sweep's folder: its name, what lies in it, and how one is found again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import InputError, TunerError

__all__ = ["SweepFolder", "create", "find", "hold", "is_held", "list_sweeps", "read_json", "write_json", "write_text"]

_LOCK = "sweep.lock"

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
    def whole(self) -> bool:
        """Whether its folder was made to the end; otherwise it never entered the ledger and nothing was charged."""
        return self.experiment.exists() and self.plan.exists()

    @property
    def stop_request(self) -> Path:
        """A file whose presence asks the running sweep to stop."""
        return self.root / "stop"

    def require_whole(self) -> None:
        """Refuse a sweep that died while its folder was being made.

        Raises:
            InputError: it did; the message says what to do.
        """
        if not self.whole:
            raise InputError(
                f"a sweep must have been started, got {self.id}, which died while its folder was made. Nothing was "
                f"charged: remove {self.root} and run the experiment again."
            )

    @property
    def data_dir(self) -> str | None:
        """The folder with the data sets that it was started with; where that lies is no part of what is claimed."""
        known = self.read_status().get("data_dir")
        return known if isinstance(known, str) else None

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
    write_text(path, json.dumps(values, indent=2))


def write_text(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("w") as file:
        file.write(text)
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


@contextlib.contextmanager
def hold(sweep: SweepFolder) -> Iterator[None]:
    """Have a sweep for this process alone, from its first look to its last word; the kernel lets go of it at death.

    Raises:
        TunerError: another process has it.
    """
    with (sweep.root / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TunerError(
                f"only one process may drive a sweep, and process {sweep.read_status().get('pid')} is driving "
                f"{sweep.id}. Wait for it, or end it: tune stop {sweep.id}"
            ) from error
        yield


def is_held(sweep: SweepFolder) -> bool:
    """Whether some process has the sweep now; looking takes nothing away from it."""
    path = sweep.root / _LOCK
    if not path.exists():
        return False
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


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
    """The sweep of that id, else the newest of that name that was begun; a path to a sweep's folder is taken as it is.

    Raises:
        InputError: there is none; the message lists those there are.
    """
    direct = Path(name)
    if direct.is_dir() and (direct / "experiment.yaml").exists():
        return SweepFolder(direct.resolve())
    sweeps = list_sweeps(storage)
    matching = [sweep for sweep in sweeps if name == sweep.id or (name == sweep.name and sweep.whole)]
    if matching:
        return matching[-1]
    known = ", ".join(sorted({sweep.name for sweep in sweeps})) or "none yet"
    raise InputError(
        f"a sweep must be named by its name or id, got {name!r}, which is not under {storage}. Known: {known}. "
        "Start one with `tune run FILE`, or give --storage."
    )
