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
"""What a search does when its sampler says that a complete trial is surely near the best."""


class TrialStatus(StrEnum):
    """Status of a trial. One that raised, diverged or was refused is FAILED; it is never left RUNNING."""

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
        steps: private steps; 0 where only scores are requested.
        sample_rate: of each step, or None for the search's only mechanism.
        noise_multiplier: of each step, or None with `sample_rate`.
        releases: protected scores; 0 where scores are outside the guarantee.
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
        sample_rate: of each step; None for a trial without privacy.
        noise_multiplier: of each step.
        steps: of the whole trial.
        rungs: the steps at which it reports, rising; the last is `steps`.
        releases: protected scores of the whole trial: one a rung, or 0 where scores are outside the guarantee.
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
        """Return the request for the rest of the trial; after a checkpoint its score is drawn again.

        Args:
            step: step of the trial's checkpoint; 0 without one.
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
        parameters: the flat parameters, fixed ones included.
        shape: its steps, rungs and mechanism.
    """

    trial_id: str
    number: int
    parameters: dict[str, object]
    shape: TrialShape


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


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """Public view of a trial: scores and steps only, nothing that is for the operator alone."""

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
    """Reservation of a trial that is not yet leased."""

    @property
    def steps(self) -> int:
        """Private steps."""
        ...

    @property
    def releases(self) -> int:
        """Protected scores."""
        ...


class BudgetGate(Protocol):
    """Part of the budget that the driver needs. Trials are named by `Suggestion.trial_id`."""

    def fits(self, ask: Ask) -> bool:
        """Return whether all of `ask` could be reserved now."""
        ...

    def reserve(self, trial: str, ask: Ask) -> None:
        """Reserve (more) steps and scores for the trial, all or nothing. Its mechanism never changes.

        Raises:
            tuner.errors.BudgetRefusedError: they do not fit; nothing was reserved.
        """
        ...

    def settle(self, trial: str, steps_taken: int) -> None:
        """End the trial's reservations: what was not leased returns to the budget."""
        ...

    def outstanding(self) -> Mapping[str, Unleased]:
        """Return what is reserved and not yet leased, maybe nothing, for every trial that is not settled."""
        ...


class Shape(Protocol):
    """Function from a trial's parameters to its shape; it uses public values only and always gives the same."""

    def __call__(self, parameters: Mapping[str, object], /) -> TrialShape:
        """Return the shape of a trial with these parameters."""
        ...


FindCheckpoint = Callable[[str], int | None]
"""How many steps the last checkpoint of a trial holds; None where there is none."""


class Observer(Protocol):
    """Receiver of events, in order, from the one thread that drives the search."""

    def trial_started(self, trial: TrialView) -> None:
        """Handle a trial that is about to run; also when it continues after an interruption."""
        ...

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Handle the scores that a trial reported at `step`."""
        ...

    def trial_finished(self, trial: TrialView) -> None:
        """Handle a trial that reached COMPLETE, PRUNED or FAILED."""
        ...


class NullObserver:
    """Observer that does nothing; a base class."""

    def trial_started(self, trial: TrialView) -> None:
        """Do nothing."""

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Do nothing."""

    def trial_finished(self, trial: TrialView) -> None:
        """Do nothing."""
