"""One training from rung to rung, with a durable checkpoint before each report. Independent of Ray and the platform.

Files in the folder of a sweep::

    <folder>/trials/<trial_id>/checkpoint/step-00000120.pt     only the last one; its name gives the steps taken
    <folder>/operator.log                                       tracebacks, for the operator only (mode 0600)
"""

from __future__ import annotations

import datetime
import os
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from trainables.errors import TrainableError

__all__ = [
    "Advance",
    "Training",
    "TrainingLoop",
    "checkpoint_path",
    "checkpoint_step",
    "log_for_operator",
    "why_failed",
]

_NAME = re.compile(r"step-(\d+)\.pt")


class Training(Protocol):
    """Training of one trial, such as `trainables.training.PrivateTraining`."""

    @property
    def step(self) -> int:
        """Number of steps taken."""
        ...

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step."""
        ...

    def run_to(self, step: int) -> None:
        """Take the steps up to `step`, each charged before it is taken."""
        ...

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        """Return the scores on a split, never on training records. Protected ones are charged first, at every call."""
        ...

    def save(self, path: Path) -> None:
        """Write the whole state, atomically."""
        ...

    def load(self, path: Path) -> None:
        """Continue from a saved state."""
        ...


MakeTraining: TypeAlias = Callable[[Any, Any], Training]
"""(specification, charge) → its training."""


@dataclass(frozen=True)
class Advance:
    """Result of a rung: the steps taken so far and the scores."""

    step: int
    metrics: dict[str, float]


class TrainingLoop:
    """Loop that takes one trial from rung to rung.

    The first call of `advance` creates the training, so that an error there fails the trial. A trial with a checkpoint
    continues from it and first reports the scores at that step again, because the process may have died between
    checkpoint and report. Protected scores are then drawn and charged again, because the earlier ones may have been
    seen.

    Args:
        make_training: for example `trainables.training.PrivateTraining`.
        spec: what to train.
        charge: pays for the steps.
        folder: the sweep's folder.
        trial_id: the trial's name in the folder.
        rung_steps: the steps of the rungs, rising; the last is the end.
    """

    def __init__(
        self,
        make_training: MakeTraining,
        spec: object,
        charge: object,
        *,
        folder: Path,
        trial_id: str,
        rung_steps: Sequence[int],
    ) -> None:
        self._make = make_training
        self._spec = spec
        self._charge = charge
        self._folder = folder
        self._trial_id = trial_id
        self._rung_steps = tuple(rung_steps)
        self._training: Training | None = None

    @property
    def step(self) -> int:
        """Number of steps taken; 0 before the training is created."""
        return self._training.step if self._training is not None else 0

    def advance(self) -> Advance:
        """Train up to the next rung, write the checkpoint, then score it."""
        if self._training is None:
            training = self._ready()
            checkpoint = checkpoint_path(self._folder, self._trial_id)
            if checkpoint is not None:
                training.load(checkpoint)
                return self._scores(training)
        training = self._ready()
        training.run_to(next((rung for rung in self._rung_steps if rung > training.step), self._rung_steps[-1]))
        self._save(training)
        return self._scores(training)

    def save(self, path: Path) -> None:
        """Write the whole state of the training to `path`."""
        self._ready().save(path)

    def load(self, path: Path) -> None:
        """Continue from a file that `save` wrote, instead of from the trial's own checkpoint."""
        self._ready().load(path)

    def _ready(self) -> Training:
        if self._training is None:
            self._training = self._make(self._spec, self._charge)
        return self._training

    def _scores(self, training: Training) -> Advance:
        return Advance(training.step, {**training.evaluate(), "learning_rate": training.learning_rate})

    def _save(self, training: Training) -> None:
        directory = _checkpoints(self._folder, self._trial_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"step-{training.step:08d}.pt"
        training.save(path)
        for old in directory.iterdir():  # only now, because until here the old one was the last complete one
            if old != path and _NAME.fullmatch(old.name):
                old.unlink()


def checkpoint_path(folder: Path, trial_id: str) -> Path | None:
    """Return the last checkpoint of a trial, or None."""
    directory = _checkpoints(folder, trial_id)
    if not directory.is_dir():
        return None
    return max((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=checkpoint_step, default=None)


def checkpoint_step(path: Path) -> int:
    """Return the number of steps of a checkpoint, from its name.

    Raises:
        TrainableError: it has another name than `TrainingLoop` gives.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise TrainableError("checkpoint-name-invalid", f"A checkpoint is named step-<steps>.pt, not {path.name!r}.")
    return int(match[1])


def log_for_operator(folder: Path, trial_id: str, error: BaseException) -> None:
    """Append a traceback to the operator's log. It may hold data, so only the operator may see it."""
    text = "".join(traceback.format_exception(error))
    head = f"=== {datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')} trial {trial_id}\n"
    folder.mkdir(parents=True, exist_ok=True)
    # One write to a file opened for appending keeps the entries of several workers whole.
    log = os.open(folder / "operator.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, (head + text + "\n").encode())
    finally:
        os.close(log)


def why_failed(error: BaseException) -> str:
    """Return the reason for analysts: the class of the error, without its message, which may hold data."""
    return f"{type(error).__name__} in the training. The traceback is in the operator's log."


def _checkpoints(folder: Path, trial_id: str) -> Path:
    return folder / "trials" / trial_id / "checkpoint"
