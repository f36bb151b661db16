"""Training of one trial from rung to rung, with durable checkpoints. A rung is a step count at which a trial reports.

This module does not import Ray. It writes these files in the folder of a sweep::

    <folder>/trials/<trial_id>/checkpoint/step-00000120.pt     last checkpoint, named after its number of steps
    <folder>/operator.log                                       tracebacks, for the operator only (mode 0600)
"""

from __future__ import annotations

import datetime
import os
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from trainables.errors import TrainableError

__all__ = ["MakeTraining", "TrainingLoop", "checkpoint_path", "checkpoint_step", "log_for_operator", "why_failed"]

_NAME = re.compile(r"step-(\d+)\.pt")


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
        """Write the state atomically."""

    def load(self, path: Path) -> None:
        """Continue from a saved state."""


MakeTraining: TypeAlias = Callable[[Any, Any], Training]
"""(specification, charge) → training."""


@dataclass(frozen=True)
class Advance:
    """Result of a rung: the number of steps taken so far, and the scores."""

    step: int
    metrics: dict[str, float]


@dataclass
class TrainingLoop:
    """Loop that trains one trial from rung to rung. It can be pickled before its start.

    The first call of `advance` creates the training, so that an error in the creation fails only this trial. A trial
    with a checkpoint continues from the checkpoint and reports the scores of the checkpoint again, because the process
    may have died before the report. Protected scores are then charged and noised again, because somebody may have
    seen the first scores.

    Attributes:
        make_training: function that creates the training, such as `trainables.training.PrivateTraining`.
        spec: specification of the trial.
        charge: payment for the trial's steps and scores.
        folder: folder of the sweep, at the same path on every machine.
        trial_id: name of the trial in the folder.
        rung_steps: rising numbers of steps at which the trial reports. The last number is the end of the trial.
    """

    make_training: MakeTraining
    spec: object
    charge: object
    folder: Path
    trial_id: str
    rung_steps: tuple[int, ...]
    _training: Training | None = field(default=None, init=False, repr=False)

    @property
    def step(self) -> int:
        """Number of steps taken, 0 before the training is created."""
        return self._training.step if self._training is not None else 0

    def advance(self) -> Advance:
        """Train up to the next rung, write a checkpoint, and return the scores."""
        training = self._training
        if training is None:
            training = self._training = self.make_training(self.spec, self.charge)
            checkpoint = checkpoint_path(self.folder, self.trial_id)
            if checkpoint is not None:
                training.load(checkpoint)
                return self._scores(training)
        training.run_to(next((rung for rung in self.rung_steps if rung > training.step), self.rung_steps[-1]))
        self._save(training)
        return self._scores(training)

    def _scores(self, training: Training) -> Advance:
        return Advance(training.step, {**training.evaluate(), "learning_rate": training.learning_rate})

    def _save(self, training: Training) -> None:
        directory = _checkpoints(self.folder, self.trial_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"step-{training.step:08d}.pt"
        training.save(path)
        for old in directory.iterdir():  # only after the new checkpoint is complete
            if old != path and _NAME.fullmatch(old.name):
                old.unlink()


def checkpoint_path(folder: Path, trial_id: str) -> Path | None:
    """Return the path of a trial's last checkpoint; None without a checkpoint."""
    directory = _checkpoints(folder, trial_id)
    if not directory.is_dir():
        return None
    return max((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=checkpoint_step, default=None)


def checkpoint_step(path: Path) -> int:
    """Return the number of steps in the name of a checkpoint. Raise TrainableError if the name has another form."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise TrainableError(
            "checkpoint-name-invalid", f"A checkpoint must be named step-<steps>.pt (got {path.name!r})."
        )
    return int(match[1])


def log_for_operator(folder: Path, trial_id: str, error: BaseException) -> None:
    """Append a traceback to the operator's log. Only the operator may see it, because it may contain data."""
    text = "".join(traceback.format_exception(error))
    head = f"=== {datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')} trial {trial_id}\n"
    folder.mkdir(parents=True, exist_ok=True)
    # One write to a file opened for appending does not mix the entries of several workers.
    log = os.open(folder / "operator.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, (head + text + "\n").encode())
    finally:
        os.close(log)


def why_failed(error: BaseException) -> str:
    """Return the class of the error as a reason for analysts. The message is not included, as it may contain data."""
    return f"{type(error).__name__} in the training. The traceback is in the operator's log."


def _checkpoints(folder: Path, trial_id: str) -> Path:
    return folder / "trials" / trial_id / "checkpoint"
