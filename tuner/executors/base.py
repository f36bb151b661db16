"""What the two executors share: what they are given, and how they act on a report and on the end of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from trainables.charge import Charge
from trainables.rungs import MakeTraining, checkpoint_path, checkpoint_step
from tuner.errors import SweepInterrupted, TunerError
from tuner.study.driver import StudyDriver
from tuner.study.types import Decision, FindCheckpoint, Stop, StopReason, Suggestion, TrialStatus

__all__ = [
    "ChargeFor",
    "SpecFor",
    "act",
    "check_stop",
    "checkpoint_finder",
    "interrupted",
    "private_training",
]


SpecFor: TypeAlias = Callable[[Suggestion], object]
ChargeFor: TypeAlias = Callable[[str], Charge]


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
