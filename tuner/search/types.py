"""The words that the search, its executors and its observers speak. Light: imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

__all__ = [
    "BudgetGate",
    "Checkpoint",
    "Decision",
    "FindCheckpoint",
    "NullObserver",
    "Observer",
    "Stop",
    "StopReason",
    "Suggestion",
    "TrialState",
    "TrialView",
    "Wait",
]


class TrialState(StrEnum):
    """Where a trial stands. A trial that raised, diverged or was refused is FAILED; it is never left RUNNING."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"


class Decision(StrEnum):
    """What a trial does after a report."""

    CONTINUE = "CONTINUE"
    PRUNE = "PRUNE"
    FAIL = "FAIL"


class StopReason(StrEnum):
    """Why no further trial is started."""

    DONE = "done"
    BUDGET = "budget reached"
    GRID = "grid exhausted"
    STOPPED = "stopped"
    FAILING = "the first trials all failed"


@dataclass(frozen=True)
class Suggestion:
    """A trial to run now. Its steps are reserved.

    Attributes:
        trial_id: our own name for the trial, the same in the ledger, the folder and the Optuna storage.
        number: Optuna's number of the trial, counted from 0.
        parameters: the flat parameters, fixed ones included.
        restore_from: path of the checkpoint to continue from, or None to begin at step 0.
    """

    trial_id: str
    number: int
    parameters: dict[str, object]
    restore_from: str | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to start now; a running trial may still give steps back. Ask again after the next report or finish."""


@dataclass(frozen=True)
class Stop:
    """No further trial will be started.

    Attributes:
        reason: one of `StopReason`; compares equal to its words, for example ``"budget reached"``.
        detail: one sentence for the user, or an empty string.
    """

    reason: StopReason
    detail: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """The last durable state of a trial: where it is and how many steps it holds."""

    path: str
    step: int


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """What may be shown of a trial. Holds scores and steps only, nothing that the operator's view keeps."""

    id: str
    number: int
    parameters: Mapping[str, object] = field(default_factory=dict)
    state: TrialState = TrialState.RUNNING
    step: int = 0
    steps_planned: int = 0
    last_score: float | None = None
    best_score: float | None = None
    reason: str = ""


class BudgetGate(Protocol):
    """The part of the budget that the search needs. Trials are named by `Suggestion.trial_id`."""

    def fits(self, steps: int) -> bool:
        """Whether `steps` more steps could be reserved now."""
        ...

    def reserve(self, trial: str, steps: int) -> None:
        """Reserve `steps` (more) steps for the trial.

        Raises:
            tuner.errors.BudgetRefusedError: they do not fit; nothing was reserved.
        """
        ...

    def settle(self, trial: str, steps_taken: int) -> None:
        """End the trial's reservation: what was reserved and never leased returns to the budget."""
        ...

    def outstanding(self) -> Mapping[str, int]:
        """Of every trial that is reserved and not settled: the steps reserved and not yet leased (maybe 0)."""
        ...


FindCheckpoint = Callable[[str], "Checkpoint | None"]


class Observer(Protocol):
    """Told what happens, in order, by the one thread that drives the search."""

    def trial_started(self, trial: TrialView) -> None:
        """A trial is about to run; also when it is continued after an interruption."""
        ...

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """A trial reported its scores at `step`."""
        ...

    def trial_finished(self, trial: TrialView) -> None:
        """A trial reached COMPLETE, PRUNED or FAILED."""
        ...


class NullObserver:
    """An observer that does nothing, to inherit from."""

    def trial_started(self, trial: TrialView) -> None:
        """Do nothing."""

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Do nothing."""

    def trial_finished(self, trial: TrialView) -> None:
        """Do nothing."""
