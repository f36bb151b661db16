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
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tuner.errors import InputError, TunerError

__all__ = [
    "SweepFolder",
    "create",
    "create_as",
    "find",
    "hold",
    "is_held",
    "list_sweeps",
    "new_id",
    "read_json",
    "write_json",
    "write_text",
]

_LOCK = "sweep.lock"
_BEGAN = "began"  # in sealed/, so that its operator's commands find the newest
_TIME = "%Y%m%d-%H%M%S"
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
    def sealed(self) -> Path:
        """What only the operator may see of a sealed search: the number of its runs, and every one of them."""
        return self.root / "sealed"

    @property
    def is_sealed(self) -> bool:
        """Whether the search is a sealed one, and its sealed part was not removed."""
        return self.sealed.is_dir()

    @property
    def work(self) -> Path:
        """Where the study, the checkpoints and the operator's log lie."""
        return self.sealed if self.is_sealed else self.root

    @property
    def journal(self) -> Path:
        """The Optuna storage, where none was asked for by URL."""
        return self.work / "study.journal"

    @property
    def trials(self) -> Path:
        """One folder a trial, with its checkpoints."""
        return self.work / "trials"

    @property
    def operator_log(self) -> Path:
        """Tracebacks and whatever else only the operator may see."""
        return self.work / "operator.log"

    @property
    def public_search(self) -> Path:
        """What is known of the search on public records that chose this sweep's one configuration, where one did."""
        return self.root / "public_search.json"

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


def new_id(name: str, *, sealed: bool = False, after: str = "") -> str:
    """A sweep's id, ``name-date-time-random``.

    Args:
        name: of the experiment.
        sealed: leave the time of day out: with the time of the release it would tell how many runs there were.
        after: the id of a sweep behind which this one is to be listed; empty for none.
    """
    now = datetime.now(UTC)
    earlier = _ID.match(after)
    if earlier:
        now = max(now, datetime.strptime(earlier["time"], _TIME).replace(tzinfo=UTC) + timedelta(seconds=1))
    stamp = now.strftime("%Y%m%d-000000" if sealed else _TIME)
    return f"{name}-{stamp}-{secrets.token_hex(3)}"


def create(storage: Path, name: str, *, sealed: bool = False) -> SweepFolder:
    """Make the folder of a new sweep under `storage`.

    Raises:
        InputError: the folder cannot be made.
    """
    return create_as(storage, new_id(name, sealed=sealed), sealed=sealed)


def create_as(storage: Path, sweep: str, *, sealed: bool = False) -> SweepFolder:
    """Make the folder of a sweep whose id is settled; one that was half made before is gone on with.

    Raises:
        InputError: the folder cannot be made.
    """
    folder = SweepFolder(storage.resolve() / sweep)
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        if sealed:
            folder.root.chmod(0o700)  # when its files were made tells how long it took
            folder.sealed.mkdir(mode=0o700, exist_ok=True)
            folder.sealed.chmod(0o700)  # whatever the umask
            write_text(folder.sealed / _BEGAN, datetime.now(UTC).strftime(_TIME))
            (folder.sealed / _BEGAN).chmod(0o600)
        folder.trials.mkdir(mode=0o700 if sealed else 0o777, exist_ok=True)
    except OSError as error:
        raise InputError(f"storage must be a folder that can be written, got {storage}: {error.strerror}.") from error
    return folder


def list_sweeps(storage: Path) -> list[SweepFolder]:
    """All sweeps under `storage`, oldest first."""
    if not storage.is_dir():
        return []
    found = [SweepFolder(path.resolve()) for path in storage.iterdir() if path.is_dir() and _ID.match(path.name)]
    return sorted(found, key=lambda sweep: (_began(sweep), sweep.id))


def _began(sweep: SweepFolder) -> str:
    """When it was begun; of a sealed search only its operator can read more than the day."""
    with contextlib.suppress(OSError):
        return (sweep.sealed / _BEGAN).read_text()
    return sweep.id[-22:-7]


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
