"""Storage of a study in a journal file in the sweep's folder, and a lock that allows only one driver at a time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import optuna
from filelock import FileLock
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from tuner.errors import InputError, TunerError
from tuner.files import create_private, file_lock, take_lock
from tuner.study import views

__all__ = ["JOURNAL", "StoredCharge", "exclusive", "open_storage", "open_study", "stored_charges"]

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
    """Open a study, or create it if it does not exist.

    Args:
        storage: storage from `open_storage`.
        name: name of the study, unique in the storage.
        mode: ``"max"`` or ``"min"``.
        sampler: function that creates the sampler from the number of stored trials.
        pruner: pruner of the study. There is no default, because Optuna's default is a median pruner.

    Raises:
        tuner.errors.InputError: `mode` is invalid, or a study with this name exists and has another direction.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if mode not in ("max", "min"):
        raise InputError("study-settings-invalid", f"`mode` must be 'max' or 'min' (got {mode!r}).")
    direction: Literal["maximize", "minimize"] = "maximize" if mode == "max" else "minimize"
    try:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)  # loading writes nothing
    except KeyError:
        study = optuna.create_study(
            storage=storage, study_name=name, direction=direction, pruner=pruner, load_if_exists=True
        )
    if study.direction.name.lower() != direction:
        raise InputError(
            "study-direction",
            f"The study {name!r} was created to {study.direction.name.lower()} its score, so it cannot {direction} "
            "the score. Start a sweep with another name.",
        )
    study.sampler = sampler(len(study.get_trials(deepcopy=False)))
    return study


def open_storage(folder: Path) -> BaseStorage:
    """Open the sweep's journal file, or create it if it does not exist.

    Of a journal that cannot be written, such as that of an archived sweep, a copy is opened.

    Raises:
        tuner.errors.TunerError: the journal exists and cannot be read. An existing journal is never replaced.
    """
    journal = folder / JOURNAL
    if journal.exists() and not os.access(journal, os.W_OK):
        copied = tempfile.TemporaryDirectory(prefix="dp-tuner-")
        shutil.copyfile(journal, Path(copied.name) / JOURNAL)
        storage = open_storage(Path(copied.name))
        weakref.finalize(storage, copied.cleanup)
        return storage
    folder.mkdir(parents=True, exist_ok=True)
    _cut_torn_line(journal)
    create_private(journal)
    try:
        return JournalStorage(JournalFileBackend(str(journal), lock_obj=_KernelLock(journal)))
    except (ValueError, KeyError) as error:
        raise TunerError(
            "study-unreadable",
            f"The study's journal {journal} cannot be read ({type(error).__name__}: {error}). Restore it from a copy, "
            "or start a new sweep. The privacy charges of the old sweep remain.",
        ) from error


@dataclass(frozen=True, kw_only=True)
class StoredCharge:
    """What a trial must have been charged for, as its study says: `steps` steps, and a score for each report."""

    id: str
    number: int
    steps: int
    scores: int
    committed: bool  # whether it is the committed run, which follows the search


def stored_charges(folder: Path, name: str) -> list[StoredCharge]:
    """Return what the trials of a study must have been charged for; an empty list if there is no study yet."""
    if not (folder / JOURNAL).exists():
        return []
    storage = open_storage(folder)
    try:
        study = storage.get_study_id_from_name(name)
    except KeyError:
        return []
    found = []
    for trial in storage.get_all_trials(study, deepcopy=False):
        if views.TRIAL_ID in trial.user_attrs:
            view = views.view_of(trial, mode="max", steps_planned=0)
            found.append(
                StoredCharge(
                    id=view.id,
                    number=view.number,
                    steps=view.step,
                    scores=len(trial.intermediate_values),
                    committed=view.committed,
                )
            )
    return found


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock of the sweep, so that no other process can run its trials.

    Raises:
        tuner.errors.InputError: another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = take_lock(folder / _DRIVER_LOCK)
    if lock is None:
        raise InputError("sweep-running", f"Another process is running the sweep in {folder}. Wait for it, or stop it.")
    try:
        yield
    finally:
        lock.release()


class _KernelLock(JournalFileOpenLock):
    """Lock of the journal. If the process that holds the lock dies, the operating system releases the lock.

    Optuna's own lock files remain after a process is killed, and block the next process for 30 seconds.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._lock = _journal_lock(journal)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _journal_lock(journal: Path) -> FileLock:
    return file_lock(journal.with_suffix(".lock"))


def _cut_torn_line(journal: Path) -> None:
    """Remove an incomplete last line, which a killed process may have left. Optuna would otherwise append to this line.

    A complete last line is kept even if it is not JSON. Optuna then refuses the journal.
    """
    if not journal.exists():
        return
    with _journal_lock(journal), journal.open("r+b") as file:  # another process may be writing the last line now
        whole, newline, torn = file.read().rpartition(b"\n")
        if torn and not _is_json(torn):
            file.truncate(len(whole) + len(newline))
        elif torn:
            file.write(b"\n")  # only the end of the line is missing


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
