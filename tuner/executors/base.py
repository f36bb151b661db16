"""What the two executors share: what they are given, and how they act on a report and on the end of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from trainables.rungs import MakeTraining, checkpoint_path, checkpoint_step
from tuner.errors import SweepInterrupted, TunerError
from tuner.study.driver import StudyDriver
from tuner.study.types import Decision, FindCheckpoint, Stop, StopReason, Suggestion, TrialStatus

__all__ = [
    "Charge",
    "ChargeFor",
    "NoCharge",
    "SpecFor",
    "act",
    "check_stop",
    "checkpoint_finder",
    "interrupted",
    "private_training",
]


class Charge(Protocol):
    """Pays for the steps and scores of one trial; `trainables.training.Charge`, picklable when trials run elsewhere."""

    def lease(self, steps: int) -> None:
        """Charge `steps` durably before they are taken."""
        ...

    def leased(self) -> int:
        """Steps charged for this trial so far, by all its attempts."""
        ...

    def restarts(self) -> int:
        """How often this trial was cut off after it had leased, and reserved again what it repeats."""
        ...

    def release(self, count: int = 1) -> None:
        """Charge `count` protected scores durably before they are drawn."""
        ...

    def released(self) -> int:
        """Scores charged for this trial so far, by all its attempts."""
        ...


SpecFor: TypeAlias = Callable[[Suggestion], object]
ChargeFor: TypeAlias = Callable[[str], Charge]


class NoCharge:
    """A charge of a sweep without privacy: counts the steps and scores and refuses nothing."""

    def __init__(self) -> None:
        self._leased = self._released = 0

    def lease(self, steps: int) -> None:
        """Count `steps`."""
        self._leased += steps

    def leased(self) -> int:
        """Steps counted so far."""
        return self._leased

    def restarts(self) -> int:
        """None: nothing is lost with a lease that costs nothing."""
        return 0

    def release(self, count: int = 1) -> None:
        """Count `count` scores."""
        self._released += count

    def released(self) -> int:
        """Scores counted so far."""
        return self._released


def act(driver: StudyDriver, trial_id: str, step: int, metrics: dict[str, float]) -> bool:
    """Give a rung's scores to the driver and finish the trial when that ends it.

    Returns:
        Whether the trial goes on.
    """
    steps = driver.shape_of_trial(trial_id).steps
    decision = driver.report(trial_id, step, metrics)
    if decision is Decision.CONTINUE and step < steps:
        return True
    outcome = {
        Decision.CONTINUE: TrialStatus.COMPLETE,
        Decision.PRUNE: TrialStatus.PRUNED,
        Decision.FAIL: TrialStatus.FAILED,
    }[decision]
    reason = f"the pruner stopped it at step {step} of {steps}" if outcome is TrialStatus.PRUNED else ""
    driver.finish(trial_id, outcome=outcome, steps_taken=step, reason=reason)
    return False


def checkpoint_finder(folder: Path) -> FindCheckpoint:
    """How the driver learns how many steps a trial's last checkpoint holds."""

    def find(trial_id: str) -> int | None:
        path = checkpoint_path(folder, trial_id)
        return None if path is None else checkpoint_step(path)

    return find


def check_stop(stop: Stop, folder: Path) -> Stop:
    """Pass the end of a sweep on, unless it ended because its first trials all failed.

    Raises:
        tuner.errors.TunerError: the first trials all failed.
    """
    if stop.reason is StopReason.FAILING:
        raise TunerError(
            f"{stop.detail}; what they charged stays charged. The tracebacks are in {folder / 'operator.log'} "
            "(for the operator: they may show data). Mend the cause, then resume"
        )
    return stop


def interrupted() -> SweepInterrupted:
    """The error for Ctrl-C."""
    return SweepInterrupted(
        "interrupted; what was charged stays charged, and --resume continues from the last checkpoint"
    )


def private_training() -> MakeTraining:
    """What makes a training when nothing else is given; imported late, for it brings torch."""
    from trainables.training import PrivateTraining

    return PrivateTraining
