"""Types shared by the study, its executors and its observers. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

__all__ = [
    "Ask",
    "BudgetGate",
    "Decision",
    "FindCheckpoint",
    "NullObserver",
    "Observer",
    "Shape",
    "Stop",
    "StopReason",
    "Suggestion",
    "TrialShape",
    "TrialStatus",
    "TrialView",
    "Unleased",
    "Wait",
    "WhenSure",
]

WhenSure: TypeAlias = Literal["go_on", "stop", "replicate"]
"""Action of a search when a complete trial is surely near the best: continue, stop, or replicate the best trials."""


class TrialStatus(StrEnum):
    """Status of a trial. A trial that raised, diverged or was refused is FAILED."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"


class Decision(StrEnum):
    """Decision about a trial after a report."""

    CONTINUE = "CONTINUE"
    PRUNE = "PRUNE"
    FAIL = "FAIL"


class StopReason(StrEnum):
    """Reason why no further trial is started."""

    DONE = "done"
    BUDGET = "budget reached"
    GRID = "grid exhausted"
    FOUND = "best found"
    STOPPED = "stopped"
    FAILING = "the first trials all failed"


@dataclass(frozen=True)
class Ask:
    """Request of a trial to the budget.

    Attributes:
        steps: number of private steps.
        sample_rate: None, like `noise_multiplier`, if the search has only one mechanism.
        releases: number of protected scores; 0 if scores are outside the guarantee.
    """

    steps: int
    sample_rate: float | None = None
    noise_multiplier: float | None = None
    releases: int = 0


@dataclass(frozen=True, kw_only=True)
class TrialShape:
    """Size of a trial, fixed by its parameters before it starts.

    Attributes:
        batch_size: expected batch size.
        sample_rate: None, like `noise_multiplier`, for a trial without privacy.
        rungs: the steps at which the trial reports, rising; the last is `steps`.
        releases: number of protected scores: one a rung, or 0 if scores are outside the guarantee.
    """

    batch_size: int = 0
    sample_rate: float | None = None
    noise_multiplier: float | None = None
    steps: int
    rungs: tuple[int, ...]
    releases: int = 0

    @property
    def ask(self) -> Ask:
        """Request for the whole trial."""
        return Ask(self.steps, self.sample_rate, self.noise_multiplier, self.releases)

    def remaining(self, step: int) -> Ask:
        """Return the request for the rest of the trial, from its checkpoint at `step` or from step 0.

        The score at the checkpoint is drawn again.
        """
        again = 1 if step > 0 else 0
        scores = again + sum(rung > step for rung in self.rungs) if self.releases else 0
        return Ask(self.steps - step, self.sample_rate, self.noise_multiplier, scores)


@dataclass(frozen=True)
class Suggestion:
    """Trial to run now. Its steps are reserved.

    Attributes:
        trial_id: our own name for the trial, the same in the ledger, the folder and the Optuna storage.
        number: Optuna's number of the trial, counted from 0.
        parameters: the flat parameters, including fixed ones.
    """

    trial_id: str
    number: int
    parameters: dict[str, object]
    shape: TrialShape


@dataclass(frozen=True)
class Wait:
    """Instruction to start no trial before the next report or end of a running trial."""


@dataclass(frozen=True)
class Stop:
    """Instruction to start no further trial. The detail is one sentence for the user, or empty."""

    reason: StopReason
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """Public view of a trial: scores and steps, but nothing that only the operator may read."""

    id: str
    number: int
    parameters: Mapping[str, object] = field(default_factory=dict)
    state: TrialStatus = TrialStatus.RUNNING
    step: int = 0
    steps_planned: int = 0
    last_score: float | None = None
    best_score: float | None = None
    reason: str = ""


class Unleased(Protocol):
    """Unleased reservation of a trial."""

    @property
    def steps(self) -> int:
        """Private steps."""

    @property
    def releases(self) -> int:
        """Protected scores."""


class BudgetGate(Protocol):
    """Privacy budget with the methods that the driver needs. Trials are named by `Suggestion.trial_id`."""

    def fits(self, ask: Ask) -> bool:
        """Return whether the whole request could be reserved now."""

    def reserve(self, trial: str, ask: Ask) -> None:
        """Reserve (more) steps and scores for the trial, all or nothing. Its mechanism never changes.

        Raises:
            tuner.errors.BudgetRefusedError: they do not fit; nothing was reserved.
        """

    def settle(self, trial: str, steps_taken: int) -> None:
        """End the trial's reservations, and return unleased steps and scores to the budget."""

    def outstanding(self) -> Mapping[str, Unleased]:
        """Return the unleased reservations, which may be empty, of every trial that is not settled."""


Shape: TypeAlias = Callable[[Mapping[str, object]], TrialShape]
"""Function from a trial's parameters to its shape, by public values alone."""

FindCheckpoint: TypeAlias = Callable[[str], int | None]
"""Function from a trial to the number of steps of its last checkpoint; None without one."""


class Observer(Protocol):
    """Receiver of events, in order, from the one thread that drives the search."""

    def trial_started(self, trial: TrialView) -> None:
        """Handle a trial that is about to start, or to continue after an interruption."""

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Handle the scores that a trial reported at `step`."""

    def trial_finished(self, trial: TrialView) -> None:
        """Handle a trial that reached COMPLETE, PRUNED or FAILED."""


class NullObserver:
    """Observer that does nothing, as a base class."""

    def trial_started(self, trial: TrialView) -> None:
        """Do nothing."""

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Do nothing."""

    def trial_finished(self, trial: TrialView) -> None:
        """Do nothing."""
