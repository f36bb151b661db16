"""The words that the search, its executors and its observers speak. Light: imports nothing heavy."""

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
    "Outstanding",
    "Shape",
    "Stop",
    "StopReason",
    "Suggestion",
    "TrialShape",
    "TrialState",
    "TrialView",
    "Wait",
    "WhenSure",
]

WhenSure: TypeAlias = Literal["go_on", "stop", "replicate"]
"""What a search does when a complete trial is surely near the best, and where that sampler can tell."""


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
    FOUND = "best found"
    STOPPED = "stopped"
    FAILING = "the first trials all failed"


@dataclass(frozen=True)
class Ask:
    """What a trial asks of the budget at once.

    Attributes:
        steps: private steps; 0 where only scores are asked for.
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
    """What one trial takes, fixed by its parameters before it starts.

    Attributes:
        batch_size: expected.
        sample_rate: of each step; None where nothing is private about it.
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
        """What the whole trial asks for."""
        return Ask(self.steps, self.sample_rate, self.noise_multiplier, self.releases)

    def remaining(self, step: int) -> Ask:
        """What is still to be taken from `step` on; its score is drawn again where it is above 0.

        Args:
            step: that the trial's checkpoint holds; 0 for none.
        """
        again = 1 if step > 0 else 0
        scores = again + sum(rung > step for rung in self.rungs) if self.releases else 0
        return Ask(self.steps - step, self.sample_rate, self.noise_multiplier, scores)


@dataclass(frozen=True)
class Suggestion:
    """A trial to run now. Its steps are reserved.

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


class Outstanding(Protocol):
    """What is reserved for a trial and not yet leased."""

    @property
    def steps(self) -> int:
        """Private steps."""
        ...

    @property
    def releases(self) -> int:
        """Protected scores."""
        ...


class BudgetGate(Protocol):
    """The part of the budget that the search needs. Trials are named by `Suggestion.trial_id`."""

    def fits(self, ask: Ask) -> bool:
        """Whether all of `ask` could be reserved now."""
        ...

    def reserve(self, trial: str, ask: Ask) -> None:
        """Reserve (more) steps and scores for the trial, all or nothing. Its mechanism is always the same.

        Raises:
            tuner.errors.BudgetRefusedError: they do not fit; nothing was reserved.
        """
        ...

    def settle(self, trial: str, steps_taken: int) -> None:
        """End the trial's reservations: what was reserved and never leased returns to the budget."""
        ...

    def outstanding(self) -> Mapping[str, Outstanding]:
        """Of every trial that is reserved and not settled: what is reserved and not yet leased (maybe nothing)."""
        ...


class Shape(Protocol):
    """From a trial's parameters to its shape: of public values only, and always the same."""

    def __call__(self, parameters: Mapping[str, object], /) -> TrialShape:
        """The shape of a trial with these parameters."""
        ...


FindCheckpoint = Callable[[str], int | None]
"""How many steps the last checkpoint of a trial holds; None where there is none."""


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
