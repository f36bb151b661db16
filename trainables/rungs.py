"""Training of one trial from rung to rung, with durable checkpoints. A rung is a step count at which a trial reports.

This module does not import Ray. It writes these files in the folder of a sweep::

    <folder>/trials/<trial_id>/checkpoint/step-00000120.pt     the last two checkpoints, named after their steps
    <folder>/operator/operator.log    what is printed and raised behind the wall, for the operator only (mode 0600)

A trial that lost its worker repeats the steps since its last report: with five reports and twelve trials, at most a
sixtieth of all steps. On MNIST that raises ε by 0.9 % at the same noise, and the cap, which is the claim, not at all.
A checkpoint at each lease would save some of it. It writes 0.2 MB (logistic regression) to 0.5 MB (tutorial CNN) in
about 10 ms, up to 0.7 of a step. So checkpoints are written at reports, and more often only in a committed run, which
no other trial can replace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from trainables.checkpoint import is_intact
from trainables.errors import InfrastructureError, TrainableError, WalledError
from trainables.loading import loading
from trainables.wall import behind

__all__ = [
    "OPERATOR_LOG",
    "MakeTraining",
    "Payment",
    "TrainingLoop",
    "checkpoint_path",
    "checkpoint_step",
    "intact_checkpoint",
    "private_training",
    "stops_sweep",
    "why_lost",
    "writing_checkpoint",
]

OPERATOR_LOG = Path("operator", "operator.log")
"""Log of what is printed and raised behind the wall. Its folder has mode 0700, because its size depends on records."""

_NAME = re.compile(r"step-(\d+)\.pt")
_KEPT = 2
"""Number of checkpoints that a trial keeps. If the last is damaged, the trial continues from the one before."""
# Codes of errors that the next trial would raise too, or whose advice is to repair this trial's files first.
_STOPPING = ("checkpoint-unwritable", "checkpoint-foreign", "split-empty")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FEW_BYTES = 1 << 20  # with less free space than this, a checkpoint fails because the disk is full


class Training(Protocol):
    """Training of one trial, such as `trainables.training.PrivateTraining`."""

    @property
    def step(self) -> int:
        """Number of steps taken."""

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""

    def run_to(self, step: int) -> None:
        """Take the steps up to `step`, each charged before it is taken."""

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        """Return the scores on a split, never on training records. Protected scores are charged first."""

    def save(self, path: Path) -> None:
        """Write the state atomically. Raise InfrastructureError if the disk does not take it."""

    def load(self, path: Path) -> None:
        """Continue from a saved state."""


MakeTraining: TypeAlias = Callable[[Any, Any], Training]
"""(specification, charge) → training."""


def private_training(spec: Any, charge: Any, **others: Any) -> Training:  # noqa: ANN401 - of `PrivateTraining`
    """Return a `trainables.training.PrivateTraining`. Only a call of it loads torch.

    Raises:
        DatasetError: no validation record can be scored, and validation records are not protected.
        InfrastructureError: this machine cannot load torch.
    """
    try:
        with loading():
            from trainables.training import PrivateTraining
    except (ImportError, OSError, MemoryError) as error:
        raise InfrastructureError(
            "machine-failed",
            f"The machine failed to load torch ({type(error).__name__}: {error}). No record was involved. Check its "
            "memory and its installation. If the sweep stops, resume it.",
        ) from error
    training = PrivateTraining(spec, charge, **others)
    training.require_scores()
    return training


@dataclass(frozen=True)
class Advance:
    """Result of a rung: the number of steps taken so far, and the scores."""

    step: int
    metrics: dict[str, float]


@dataclass(repr=False)  # Ray would format it for each of its debug lines
class TrainingLoop:
    """Loop that trains one trial from rung to rung, behind the wall. It can be pickled before its start.

    The first call of `advance` creates the training, so that an error in the creation fails only this trial. A trial
    with a checkpoint continues from the checkpoint and reports the scores of the checkpoint again, because the process
    may have died before the report. Protected scores are then charged and noised again, because somebody may have
    seen the first scores.

    Attributes:
        make_training: function that creates the training, such as `private_training`.
        spec: specification of the trial.
        charge: payment for the trial's steps and scores.
        folder: folder of the sweep, at the same path on every machine.
        trial_id: name of the trial in the folder.
        rung_steps: rising numbers of steps at which the trial reports. The last number is the end of the trial.
        saves: rising numbers of steps at which only a checkpoint is written. They are between the reports.
        scored: step of a checkpoint whose scores are known already, so that it is not scored again. 0 if there is none.
    """

    make_training: MakeTraining
    spec: object
    charge: object
    folder: Path
    trial_id: str
    rung_steps: tuple[int, ...]
    saves: tuple[int, ...] = ()
    scored: int = 0
    _training: Training | None = field(default=None, init=False, repr=False)
    _payment: Payment | None = field(default=None, init=False, repr=False)

    def advance(self) -> Advance:
        """Train up to the next rung, write a checkpoint, and return the scores.

        Raises:
            WalledError: the training raised an error. The error says nothing about it, not even the step.
            Exception: any other error cannot depend on a record: the infrastructure failed (a checkpoint that cannot be
                written or read), the charge refused or failed, or the training was refused before a record was used.
        """
        try:
            return behind(self.folder / OPERATOR_LOG, self._advance, lets_out=self._cannot_depend_on_records)
        except (WalledError, InfrastructureError):
            if _gpu_failed():  # then the error is the GPU's, and every later trial of this process would get it too
                raise InfrastructureError(
                    "accelerator-failed",
                    "The GPU of this worker no longer works, so its process must end. If the sweep stops, resume it.",
                ) from None
            raise

    def _cannot_depend_on_records(self, error: Exception) -> bool:
        """Decide by the place of an error. Its type says nothing, because a model can raise an error of any type."""
        if self._payment is not None and error is self._payment.raised:
            return True
        refused = isinstance(error, TrainableError) and not isinstance(error, WalledError)
        return refused and self._training is None

    def _advance(self) -> Advance:
        training = self._training
        if training is None:
            self._payment = Payment(self.charge)
            training = self._training = self.make_training(self.spec, self._payment)
            checkpoint = intact_checkpoint(self.folder, self.trial_id)
            if checkpoint is not None:
                self._load(training, checkpoint)
                if training.step != self.scored:
                    return self._scores(training)
        rung = next((rung for rung in self.rung_steps if rung > training.step), self.rung_steps[-1])
        for save in (*(step for step in self.saves if training.step < step < rung), rung):
            training.run_to(save)
            self._save(training)
        return self._scores(training)

    def _load(self, training: Training, checkpoint: Path) -> None:
        try:
            training.load(checkpoint)
        except Exception as error:
            if self._payment is not None and error is self._payment.raised:
                raise
            if isinstance(error, TrainableError):
                raise InfrastructureError(error.code, error.message) from error
            raise InfrastructureError(
                "checkpoint-damaged",
                "The trial's last checkpoint does not fit this training. If the sweep stops, restore the checkpoint "
                "from a copy, then resume.",
            ) from error

    def _scores(self, training: Training) -> Advance:
        return Advance(training.step, {**training.evaluate(), "learning_rate": training.learning_rate})

    def _save(self, training: Training) -> None:
        directory = _checkpoints(self.folder, self.trial_id)
        path = directory / f"step-{training.step:08d}.pt"
        with writing_checkpoint(directory):
            self.folder.mkdir(parents=True, exist_ok=True)
            for private in (directory.parents[1], directory.parent, directory):
                private.mkdir(mode=0o700, exist_ok=True)
        training.save(path)
        with writing_checkpoint(directory):
            for old in _by_step(directory)[_KEPT:]:  # only after the new checkpoint is complete
                old.unlink()


class Payment:
    """Charge of a trial that remembers the error that it raised. Such an error comes from the ledger, not a record."""

    def __init__(self, charge: Any) -> None:  # noqa: ANN401 - a `trainables.charge.Charge`, possibly of a test
        self._charge = charge
        self.raised: Exception | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._charge, name)

        def asked(*arguments: int, **named: float) -> Any:  # noqa: ANN401 - the method's answer
            try:
                return method(*arguments, **named)
            except Exception as error:
                self.raised = error
                raise

        return asked


@contextlib.contextmanager
def writing_checkpoint(directory: Path) -> Iterator[None]:
    """Raise an `InfrastructureError` for any error while a checkpoint is written: no record decides whether it fits."""
    try:
        yield
    except Exception as error:
        raise InfrastructureError(
            "checkpoint-unwritable",
            f"A checkpoint could not be written: {_cause(error, directory)}. Fix the disk, then resume the sweep.",
        ) from error


def _cause(error: BaseException, directory: Path) -> str:
    """Return what the operating system says. Torch hides it, so the chain of errors and the free space are asked."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno is not None:
            return "the disk is full" if found.errno in _FULL else os.strerror(found.errno).lower()
        found = found.__cause__ or found.__context__
    with contextlib.suppress(OSError):
        there = next(path for path in (directory, *directory.parents) if path.exists())
        if shutil.disk_usage(there).free < _FEW_BYTES:
            return "the disk is full"
    return "the folder cannot be written"


def checkpoint_path(folder: Path, trial_id: str) -> Path | None:
    """Return the path of a trial's last checkpoint, intact or not; None without a checkpoint."""
    return next(iter(_by_step(_checkpoints(folder, trial_id))), None)


def intact_checkpoint(folder: Path, trial_id: str) -> Path | None:
    """Return the last checkpoint whose checksum matches. If all are damaged, return the last; None without any.

    A trial that continues from an earlier checkpoint repeats the steps since, and they are charged again.
    """
    found = _by_step(_checkpoints(folder, trial_id))
    return next(filter(is_intact, found), found[0] if found else None)


def _by_step(directory: Path) -> list[Path]:
    """Return the checkpoints in a folder, the last one first."""
    if not directory.is_dir():
        return []
    named = (path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return sorted(named, key=checkpoint_step, reverse=True)


def checkpoint_step(path: Path) -> int:
    """Return the number of steps in the name of a checkpoint. Raise TrainableError if the name has another form."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise TrainableError(
            "checkpoint-name-invalid", f"A checkpoint must be named step-<steps>.pt (got {path.name!r})."
        )
    return int(match[1])


def why_lost(error: Exception) -> str:
    """Return why the infrastructure ended a trial, as one line for analysts. The error cannot depend on a record."""
    if isinstance(getattr(error, "code", None), str):  # an error of ours
        return " ".join(str(error).split())
    return f"the ledger could not record the charge ({type(error).__name__})"


def stops_sweep(error: Exception) -> bool:
    """Return whether an error stops the sweep: of the ledger, of the shared disk, of the records, or of files mixed up.

    An error without a code of ours comes from the ledger's database or from the actor that charges it.
    """
    code = str(getattr(error, "code", ""))
    return not code or code.startswith(("ledger-", "own-file-")) or code in _STOPPING


def _gpu_failed() -> bool:
    if "torch" not in sys.modules:
        return False
    from trainables.engine.accelerator import gpu_failed

    return gpu_failed()


def _checkpoints(folder: Path, trial_id: str) -> Path:
    return folder / "trials" / trial_id / "checkpoint"
