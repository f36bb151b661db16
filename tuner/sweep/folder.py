"""Folder of a sweep: its id, files and lock, and functions that find a sweep by name."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainables.rungs import OPERATOR_LOG
from trainables.suggestions import meant, near
from tuner.errors import InputError, TunerError
from tuner.files import is_locked, take_lock, write_json, write_text
from tuner.privacy.modes import MODES, Mode

__all__ = [
    "CHARGED",
    "PROXY",
    "SweepFolder",
    "create",
    "create_as",
    "find_sweep",
    "hold",
    "is_held",
    "is_id",
    "list_sweeps",
    "new_sweep_id",
    "read_json",
    "storage_unwritable",
]

CHARGED = "-charged"
"""A charged run has the name of its public search plus this suffix."""

PROXY = "-public"
"""The public search of a charged search has the name of that search plus this suffix."""

_LOCK = "sweep.lock"
_BEGAN = "began"  # in `sealed/`, so that only the operator can tell which sealed sweep is the newest
_FEW = 5  # names of sweeps that an error lists at most
_TIME = "%Y%m%d-%H%M%S"
_ID = re.compile(r"^(?P<name>.+)-(?P<time>\d{8}-\d{6})-(?P<tail>[0-9a-f]{6})$")


@dataclass(frozen=True)
class SweepFolder:
    """Folder of one sweep. `root` is its absolute path.

    The folder's name is the sweep's id, ``name-date-time-random``, which is unique among all users of a ledger.
    """

    root: Path

    @property
    def id(self) -> str:
        """The sweep's id, which is the same in the ledger, in MLflow and on disk."""
        return self.root.name

    @property
    def name(self) -> str:
        """The experiment's name."""
        match = _ID.match(self.id)
        return match["name"] if match else self.id

    def command(self, verb: str, *, name: str = "") -> str:
        """Return the `tune` command with this verb, for the sweep's id or `name`, that works in the current folder."""
        default = self.root.parent == Path(os.environ.get("DP_TUNER_STORAGE") or "runs").resolve()
        return f"tune {verb} {name or self.id}{'' if default else f' --storage {shlex.quote(str(self.root.parent))}'}"

    @property
    def experiment(self) -> Path:
        """The resolved experiment file."""
        return self.root / "experiment.yaml"

    @property
    def plan(self) -> Path:
        """File of the plan with which the search started."""
        return self.root / "plan.json"

    @property
    def comparison(self) -> Path:
        """File of the ways to search that `accounting: auto` compared. It does not exist with another accounting."""
        return self.root / "comparison.json"

    @property
    def status(self) -> Path:
        """The status file. A write replaces the complete file."""
        return self.root / "status.json"

    @property
    def sealed(self) -> Path:
        """Folder of all runs of a sealed search, and of the file with their number. Only the operator may read it."""
        return self.root / "sealed"

    @property
    def hides_runs(self) -> bool:
        """Whether the folder of a sealed search's runs exists."""
        return self.sealed.is_dir()

    @property
    def work(self) -> Path:
        """Folder that contains the study, the checkpoints and the operator's log."""
        return self.sealed if self.hides_runs else self.root

    @property
    def journal(self) -> Path:
        """The Optuna storage."""
        return self.work / "study.journal"

    @property
    def trials(self) -> Path:
        """Folder with one folder per trial, which contains the trial's checkpoints."""
        return self.work / "trials"

    @property
    def operator_log(self) -> Path:
        """File of tracebacks and other details that only the operator may read."""
        return self.work / OPERATOR_LOG

    @property
    def public_search(self) -> Path:
        """File about the public search that chose this sweep's configuration. Other sweeps do not have this file."""
        return self.root / "public_search.json"

    @property
    def proxy_id(self) -> str:
        """Id of the public search whose scores are a prior of this search. Its folder is in this sweep's folder."""
        head = self.id[-len("-YYYYmmdd-HHMMSS-xxxxxx") :]
        return f"{self.name[:55]}{PROXY}{head}"

    @property
    def proxy(self) -> SweepFolder:
        """Folder of the public search whose scores are a prior of this search. It may not exist."""
        return SweepFolder(self.root / self.proxy_id)

    @property
    def proxy_search(self) -> Path:
        """File about the public proxy of this search. It is written when the public search is over."""
        return self.root / "proxy_search.json"

    @property
    def charged_search(self) -> SweepFolder | None:
        """The charged search in whose folder this public search is; None for any other sweep."""
        found = SweepFolder(self.root.parent)
        return found if _ID.match(found.id) and found.proxy_id == self.id else None

    @property
    def whole(self) -> bool:
        """Whether the folder is complete. A sweep enters the ledger only when its folder is complete."""
        return self.experiment.exists() and self.plan.exists()

    @property
    def started(self) -> bool:
        """Whether the folder shows that a trial began."""
        try:
            return self.journal.exists() or (self.trials.is_dir() and any(self.trials.iterdir()))
        except PermissionError:  # only another account may look
            return True

    @property
    def stop_request(self) -> Path:
        """File that asks the running sweep to stop. Its existence is the request."""
        return self.root / "stop"

    @property
    def mode(self) -> Mode:
        """The accounting mode of the sweep's plan. Raises a TunerError if the plan or the mode cannot be read."""
        name = read_json(self.plan).get("accounting")
        if name not in MODES:
            raise TunerError(
                "sweep-file-unreadable",
                f"{self.plan} has no known accounting mode (got {name!r}). Restore the file from a copy.",
            )
        return MODES[str(name)]

    def require_whole(self) -> None:
        """Raise an InputError if the folder was never completed, and a TunerError if it has lost a file since."""
        missing = [path for path in (self.experiment, self.plan) if not path.exists()]
        if missing and self.started:
            raise TunerError(
                "sweep-file-unreadable",
                f"{missing[0]} is missing. All charges of {self.id} remain. Restore the file from a copy.",
            )
        if missing:
            raise InputError(
                "sweep-incomplete",
                f"{self.id} stopped while its folder was being created. Nothing was charged. Remove {self.root} "
                "and run the experiment again.",
            )

    @property
    def data_dir(self) -> str | None:
        """The folder from which the data sets were read when the sweep started. No claim depends on it."""
        known = self.read_status().get("data_dir")
        return known if isinstance(known, str) else None

    @property
    def charged_run(self) -> SweepFolder | None:
        """The charged run of a public search, or the charged search that has it as a proxy.

        It is None until the search has chosen the run's id.

        The folder of the charged run may not exist yet.
        """
        if self.charged_search is not None:
            return self.charged_search
        known = self.read_status().get("charged_run")
        return SweepFolder(self.root.parent / known) if isinstance(known, str) else None

    def write_status(self, **values: object) -> None:
        """Set these values in the status file, and keep its other values."""
        write_json(self.status, {**self.read_status(), **values})

    def read_status(self) -> dict[str, object]:
        """Return the values of the status file, or an empty dict if there is no file yet."""
        return read_json(self.status) if self.status.exists() else {}


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object. Raise a TunerError if the file is missing or has other content."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise TunerError(
            "sweep-file-unreadable", f"{path} cannot be read as JSON ({error}). Restore the file from a copy."
        ) from error
    if not isinstance(values, dict):
        raise TunerError(
            "sweep-file-unreadable",
            f"{path} must contain a JSON object (got {type(values).__name__}). Restore the file from a copy.",
        )
    return values


@contextlib.contextmanager
def hold(sweep: SweepFolder) -> Iterator[None]:
    """Lock a sweep for this process. Raise an InputError if another process holds the lock or removed the sweep."""
    if not sweep.root.is_dir():  # the lock would create it
        raise InputError("sweep-not-found", f"{sweep.id} was removed.")
    lock = take_lock(sweep.root / _LOCK)
    if lock is None:
        pid = sweep.read_status().get("pid")  # None while the charged run of a public search runs
        raise InputError(
            "sweep-running",
            f"{'A process' if pid is None else f'Process {pid}'} is already running {sweep.id}. Wait until it ends, or "
            f"stop it with: {sweep.command('stop')}",
        )
    try:
        yield
    finally:
        lock.release()


def is_held(sweep: SweepFolder) -> bool:
    """Return whether a process holds the sweep's lock now."""
    return is_locked(sweep.root / _LOCK)


def new_sweep_id(storage: Path, name: str, *, mode: Mode, after: str = "") -> str:
    """Return a new id, ``name-date-time-random``.

    In a sorted list it comes after the id `after` and after all ids of this name in the folder `storage`, even if a
    sweep of this name was started in the same second.

    The id of a sealed search does not contain the time of day. From the times at which the search starts and ends,
    readers could guess its number of runs.
    """
    now = datetime.now(UTC)
    for earlier in (after, *(sweep.id for sweep in list_sweeps(storage) if sweep.name == name)):
        if match := _ID.match(earlier):
            now = max(now, datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC) + timedelta(seconds=1))
    stamp = now.strftime("%Y%m%d-000000" if mode.runs_hidden else _TIME)
    return f"{name}-{stamp}-{secrets.token_hex(3)}"


def create(storage: Path, name: str, *, mode: Mode) -> SweepFolder:
    """Create the folder of a new sweep in the folder `storage`. Raise an InputError if this fails."""
    return create_as(storage, new_sweep_id(storage, name, mode=mode), mode=mode)


def create_as(storage: Path, sweep: str, *, mode: Mode) -> SweepFolder:
    """Create or complete the folder of the sweep with this id. Raise an InputError if this fails."""
    folder = SweepFolder(storage.resolve() / sweep)
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        if mode.runs_hidden:
            folder.root.chmod(0o700)  # the times of its files reveal how long it took
            folder.sealed.mkdir(mode=0o700, exist_ok=True)
            folder.sealed.chmod(0o700)  # whatever the umask
            write_text(folder.sealed / _BEGAN, datetime.now(UTC).strftime(f"{_TIME}-%f"))
            (folder.sealed / _BEGAN).chmod(0o600)
        # The names and sizes of checkpoints tell more than the reports.
        folder.trials.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise storage_unwritable(storage, error) from error
    return folder


def is_id(name: str) -> bool:
    """Return whether a name is the id of a sweep."""
    return _ID.match(name) is not None


def storage_unwritable(storage: Path, error: OSError) -> InputError:
    """Return the error for a `storage` folder that cannot be written."""
    return InputError(
        "storage-unwritable",
        f"The folder {storage} (`storage`) cannot be written ({error.strerror}). Choose another folder.",
    )


def list_sweeps(storage: Path) -> list[SweepFolder]:
    """Return all sweeps in the folder `storage`, oldest first. The public proxy of a search follows the search."""
    if not storage.is_dir():
        return []
    found = [SweepFolder(path.resolve()) for path in storage.iterdir() if path.is_dir() and _ID.match(path.name)]
    found += [sweep.proxy for sweep in found if sweep.proxy.root.is_dir()]
    return sorted(found, key=lambda sweep: (_began(sweep), sweep.id))


def _began(sweep: SweepFolder) -> str:
    """Return the time at which a sweep began. For a sealed search, everyone except the operator gets only the date."""
    with contextlib.suppress(OSError):
        return (sweep.sealed / _BEGAN).read_text("utf-8")
    return sweep.id[-22:-7]


def find_sweep(storage: Path, name: str) -> SweepFolder:
    """Return the sweep with this id, name or path.

    If several sweeps have the name, return the newest one that was started, or the newest one if none was. A folder
    counts only if its own name is the id of a sweep: `tune rm` removes what this function returns.
    """
    sweeps = list_sweeps(storage)
    matching = [sweep for sweep in sweeps if name in (sweep.id, sweep.name)]
    if matching:
        return next((sweep for sweep in reversed(matching) if sweep.whole or name == sweep.id), matching[-1])
    direct = SweepFolder(Path(name).resolve())
    if direct.experiment.exists() and (_ID.match(direct.id) or direct.charged_search is not None):
        return direct
    known = sorted({sweep.name for sweep in sweeps})
    listed = "" if len(known) <= _FEW else f" and {len(known) - _FEW} more"
    there = (
        meant(near(name.removesuffix(".yaml"), known))
        or f" The folder has {', '.join(known[:_FEW]) or 'no sweep yet'}{listed}."
    )
    raise InputError(
        "sweep-not-found",
        f"No sweep is named {name!r} in the folder {storage}.{there} Start one with `tune run FILE`, or choose another "
        "folder with `--storage`.",
    )
