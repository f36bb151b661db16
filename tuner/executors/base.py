"""Interface of executors, and functions that all executors use to handle reports, find checkpoints and end a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from trainables.charge import Charge
from trainables.rungs import (
    OPERATOR_LOG,
    MakeTraining,
    checkpoint_path,
    checkpoint_step,
    intact_checkpoint,
    private_training,
)
from tuner.errors import SweepInterrupted, TunerError
from tuner.study.driver import StudyDriver
from tuner.study.types import Decision, FindCheckpoint, Stop, StopReason, Suggestion, TrialStatus

__all__ = [
    "ChargeFor",
    "Executor",
    "ExecutorSettings",
    "SpecFor",
    "TrialSetup",
    "act",
    "check_stop",
    "checkpoint_finder",
    "interrupted",
    "lose",
    "require_checkpoint",
]

_SEEN_WITHIN = 5.0
"""Seconds within which this machine must see a checkpoint that a worker has written."""

SpecFor: TypeAlias = Callable[[Suggestion], object]
ChargeFor: TypeAlias = Callable[[str], Charge]


@dataclass(frozen=True, kw_only=True)
class ExecutorSettings:
    """Resources of an executor.

    Attributes:
        hung_after: seconds without a lease or a report after which a worker counts as lost.
        on_loss: whether a trial that lost its worker pays for the steps that it repeats, or stops the sweep before.
        workers_per_trial: number of processes that share each batch of a trial, and the trial's CPUs and GPUs equally.
        address: address of a running cluster, or None to run on this machine.
        hide_logs: whether to hide the executor's own logs from other accounts and to delete these logs at the end.
    """

    concurrent_trials: int = 1
    cpus_per_trial: float = 1
    gpus_per_trial: float = 0
    hung_after: float = 3600.0
    on_loss: Literal["pay", "stop"] = "pay"
    workers_per_trial: int = 1
    address: str | None = None
    hide_logs: bool = False

    @property
    def of_worker(self) -> dict[str, float]:
        """CPUs and GPUs of one worker of a trial, under Ray's names."""
        return {
            "CPU": self.cpus_per_trial / self.workers_per_trial,
            "GPU": self.gpus_per_trial / self.workers_per_trial,
        }


@dataclass(frozen=True, kw_only=True)
class TrialSetup:
    """Functions and folder with which an executor trains and charges the trials of a sweep.

    Attributes:
        spec_for: returns the picklable specification of the training for a suggestion.
        charge_for: returns the picklable `Charge` for a trial id.
        folder: the sweep's folder, for checkpoints and the operator's log. All machines of a cluster must share it.
        make_training: returns a training for a specification and a charge.
        stops_when_lost: whether the sweep stops when the infrastructure fails a trial. The trial then stays RUNNING,
            and a resume makes it again. Otherwise the trial ends as LOST.
    """

    spec_for: SpecFor
    charge_for: ChargeFor
    folder: Path
    make_training: MakeTraining = private_training
    stops_when_lost: bool = False


class Executor(Protocol):
    """Protocol of executors. An executor runs trials, and the driver makes every decision."""

    def run(self, driver: StudyDriver, setup: TrialSetup) -> Stop:
        """Call the driver's `reconcile`, run trials until the driver stops, and return the driver's `Stop`.

        Raises:
            tuner.errors.SweepInterrupted: Ctrl-C was pressed. Running trials stay RUNNING in the storage, and a
                resume continues them.
            tuner.errors.TunerError: the first trials or all trials failed, or the ledger or the storage cannot be used.
        """


def act(driver: StudyDriver, trial_id: str, step: int, metrics: dict[str, float]) -> bool:
    """Report a rung's scores to the driver and return whether the trial continues. If not, it is finished or paused."""
    steps = driver.shape_of_trial(trial_id).steps
    decision = driver.report(trial_id, step, metrics)
    if decision is Decision.CONTINUE and step < steps:
        return True
    if decision is Decision.PAUSE:  # the driver keeps it, and its checkpoint is on the disk
        return False
    outcome = {
        Decision.CONTINUE: TrialStatus.COMPLETE,
        Decision.PRUNE: TrialStatus.PRUNED,
        Decision.FAIL: TrialStatus.FAILED,
    }[decision]
    reason = f"the pruner stopped it at step {step} of {steps}" if outcome is TrialStatus.PRUNED else ""
    driver.finish(trial_id, outcome=outcome, steps_taken=step, reason=reason)
    return False


def lose(driver: StudyDriver, setup: TrialSetup, trial_id: str, why: str) -> None:
    """End a trial as LOST because the infrastructure failed, or raise a TunerError if the sweep must stop.

    The sweep also stops if the trial is the committed run, which is never started twice. A resume continues it.
    """
    if setup.stops_when_lost or driver.is_committed(trial_id):
        raise TunerError("trial-lost", f"A trial could not go on: {why}")
    driver.finish(trial_id, outcome=TrialStatus.LOST, steps_taken=driver.step_of(trial_id), reason=why)


def checkpoint_finder(folder: Path) -> FindCheckpoint:
    """Return a function that returns the step of the checkpoint from which a trial continues; None without any."""

    def find(trial_id: str) -> int | None:
        path = intact_checkpoint(folder, trial_id)
        return None if path is None else checkpoint_step(path)

    return find


def require_checkpoint(folder: Path, trial_id: str, step: int) -> None:
    """Raise a TunerError if this machine does not see the checkpoint that a worker wrote before it reported a step.

    A network file system may show a new file late, so it is looked for during a few seconds.
    """
    until = time.monotonic() + _SEEN_WITHIN
    while True:
        seen = checkpoint_path(folder, trial_id)
        if seen is not None and checkpoint_step(seen) >= step:
            return
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    raise TunerError(
        "checkpoint-unseen",
        f"A worker reported step {step} of trial {trial_id}, but its checkpoint is not in {folder}. The machine of the "
        "worker does not share this folder, so its models would be lost. All charges remain. Make `storage` a folder "
        "that every machine mounts at the same path, then resume the sweep.",
    )


def check_stop(stop: Stop, folder: Path) -> Stop:
    """Return `stop` unchanged, or raise a `TunerError` if the driver stopped because trials failed."""
    told = (
        f"{stop.detail.rstrip('.')}. What was charged remains charged. Any tracebacks are in {folder / OPERATOR_LOG}. "
        "Only the operator may read them, because they may show data."
    )
    if stop.reason is StopReason.FAILING:
        raise TunerError(
            "first-trials-failed",
            f"{told} Fix the cause, then resume the sweep. If the cause is a setting, such as a learning rate, start a "
            "new search, which is charged in addition.",
        )
    if stop.reason is StopReason.ALL_FAILED:
        raise TunerError(
            "all-trials-failed",
            f"{told} Fix the cause, for example with lower learning rates. Then start a new search, which is charged "
            "in addition, or resume this one with more trials (--set search.trials=N), if the budget has room.",
        )
    return stop


def interrupted() -> SweepInterrupted:
    """Return the error for Ctrl-C."""
    return SweepInterrupted(
        "interrupted", "Interrupted. All charges remain, and a resume continues from the last checkpoints."
    )
