"""Where a study is kept: a journal file in the sweep's folder; and one driver at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from tuner.errors import InputError, TunerError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

__all__ = ["JOURNAL", "exclusive", "open_storage", "open_study"]

JOURNAL = "study.journal"
_DRIVER_LOCK = "driver.lock"


def open_study(
    storage: BaseStorage,
    name: str,
    *,
    mode: str,
    sampler: Callable[[int], BaseSampler],
    pruner: BasePruner,
) -> optuna.Study:
    """Create the study, or open it when it is there.

    Args:
        storage: from `open_storage`.
        name: the study's name, one a sweep (in a shared database two sweeps of one name would merge).
        mode: ``"max"`` or ``"min"``.
        sampler: makes the sampler, given the number of trials already stored (`samplers.make_sampler`).
        pruner: from `pruners.make_pruner`; must be given, since Optuna's default is a median pruner.

    Raises:
        tuner.errors.InputError: a study of that name exists with the other direction.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if mode not in ("max", "min"):
        raise InputError(f"mode must be 'max' or 'min', got {mode!r}")
    direction: Literal["maximize", "minimize"] = "maximize" if mode == "max" else "minimize"
    try:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)  # looking writes nothing
    except KeyError:
        study = optuna.create_study(
            storage=storage, study_name=name, direction=direction, pruner=pruner, load_if_exists=True
        )
    if study.direction.name.lower() != direction:
        raise InputError(
            f"the study {name!r} was made to {study.direction.name.lower()} its score and cannot now {direction} it; "
            "start a sweep under another name"
        )
    study.sampler = sampler(len(study.get_trials(deepcopy=False)))
    return study


def open_storage(folder: Path) -> BaseStorage:
    """Open the sweep's journal file; it is made where there is none.

    Raises:
        tuner.errors.TunerError: the journal is there and cannot be read; it is never started afresh.
    """
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / JOURNAL
    _cut_torn_line(journal)
    try:
        return JournalStorage(JournalFileBackend(str(journal), lock_obj=_KernelLock(journal)))
    except (ValueError, KeyError) as error:
        raise TunerError(
            f"the study's journal {journal} cannot be read ({type(error).__name__}: {error}); restore it from a copy, "
            "or start a new sweep: its privacy cost stays in the ledger either way"
        ) from error


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the sweep for this process; the kernel lets go of it however the process ends.

    Raises:
        tuner.errors.TunerError: another process is running this sweep.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _DRIVER_LOCK).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise TunerError(
                f"only one process may drive a sweep, and process {holder} is driving {folder}; wait for it or stop it"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


class _KernelLock(JournalFileOpenLock):
    """The journal's lock by flock: Optuna's own leave a file behind a killed process and then wait for 30 s."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._path = journal.with_suffix(".lock")
        self._held: int | None = None

    def acquire(self) -> bool:
        """Wait for the lock and take it."""
        held = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(held, fcntl.LOCK_EX)
        self._held = held
        return True

    def release(self) -> None:
        """Let go of the lock."""
        if self._held is not None:
            os.close(self._held)  # closing lets go of the lock
            self._held = None


def _cut_torn_line(journal: Path) -> None:
    """Remove a last line that a killed process left half written: Optuna would append to it and break the journal.

    A whole line that is not JSON is left where it is, for Optuna to refuse.
    """
    if not journal.exists():
        return
    lock = _KernelLock(journal)  # the writers' own: what looks torn may be a line that is just being written
    lock.acquire()
    try:
        with journal.open("r+b") as file:
            whole, newline, torn = file.read().rpartition(b"\n")
            if torn and not _is_json(torn):
                file.truncate(len(whole) + len(newline))
            elif torn:
                file.write(b"\n")  # only the line's end was lost
    finally:
        lock.release()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
