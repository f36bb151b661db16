"""Types that the study, the executors and the observers share. This module imports no third-party package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

__all__ = [
    "Ask",
    "BudgetGate",
    "Decision",
    "FindCheckpoint",
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
"""What a search does when the score of a complete trial is very probably near the best possible score.

`go_on` continues, `stop` ends the search, and `replicate` repeats the best two configurations.
"""


class TrialStatus(StrEnum):
    """Status of a trial.

    PAUSED means that the trial waits at a rung, with its checkpoint, for the steps of its next rung. FAILED means that
    the training raised an error or its score was not a finite number. LOST means that the infrastructure failed (a
    worker, a disk, the ledger), or that the rest of an interrupted trial did not fit the budget. No record decides
    whether a trial is lost, so its cause is shown.
    """

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"
    LOST = "LOST"


class Decision(StrEnum):
    """Decision of the driver after a trial's report. After PAUSE, the executor ends the trial's worker."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    PRUNE = "PRUNE"
    FAIL = "FAIL"


class StopReason(StrEnum):
    """Reason why the driver starts no further trial."""

    DONE = "done"
    BUDGET = "budget reached"
    GRID = "grid exhausted"
    FOUND = "best found"
    STOPPED = "stopped"
    FAILING = "the first trials all failed"
    ALL_FAILED = "all trials failed"


@dataclass(frozen=True)
class Ask:
    """Amount of budget that a trial requests.

    Attributes:
        steps: number of private steps.
        sample_rate: sample rate of the trial, or None if all trials of the search use the same mechanism.
        noise_multiplier: noise multiplier of the trial, or None if all trials of the search use the same mechanism.
        releases: number of protected scores, or 0 if scores are outside the privacy guarantee.
    """

    steps: int
    sample_rate: float | None = None
    noise_multiplier: float | None = None
    releases: int = 0


@dataclass(frozen=True, kw_only=True)
class TrialShape:
    """Length, batch size and mechanism of a trial. The trial's parameters determine them before the trial starts.

    Attributes:
        batch_size: expected batch size.
        sample_rate: sample rate, or None for a trial without privacy.
        noise_multiplier: noise multiplier, or None for a trial without privacy.
        steps: number of training steps.
        rungs: steps at which the trial reports, in increasing order. The last is `steps`.
        releases: number of protected scores, which is one per rung, or 0 if scores are outside the privacy guarantee.
        save_every: number of steps after which a checkpoint is written between two rungs, or 0 for none.
    """

    batch_size: int = 0
    sample_rate: float | None = None
    noise_multiplier: float | None = None
    steps: int
    rungs: tuple[int, ...]
    releases: int = 0
    save_every: int = 0

    @property
    def stops(self) -> tuple[int, ...]:
        """Steps at which a checkpoint is written, in increasing order: the rungs, and those of `save_every`."""
        between = range(self.save_every, self.steps, self.save_every) if self.save_every else ()
        return tuple(sorted({*self.rungs, *between}))

    def ending(self, end: int, *, after: int) -> TrialShape:
        """Return the shape of a trial that ends after `end` steps and continues from its checkpoint at `after`."""
        later = [rung for rung in self.rungs if after < rung < end]
        return replace(self, steps=end, rungs=(*later, end), releases=self.releases and len(later) + 1)

    @property
    def ask(self) -> Ask:
        """Budget request for all steps and scores of the trial."""
        return Ask(self.steps, self.sample_rate, self.noise_multiplier, self.releases)

    def remaining(self, step: int) -> Ask:
        """Return the budget request for the rest of the trial after its checkpoint at `step`.

        Without a checkpoint, `step` is 0. The resumed trial scores the checkpoint again, so the request
        includes this score.
        """
        return self.between(step, self.steps, again=step > 0)

    def between(self, step: int, until: int, *, again: bool = False) -> Ask:
        """Return the budget request for the steps from `step` to `until` and for the scores at the rungs after `step`.

        `again` adds a score, for a trial that scores its checkpoint at `step` again.
        """
        scores = again + sum(step < rung <= until for rung in self.rungs) if self.releases else 0
        return Ask(until - step, self.sample_rate, self.noise_multiplier, scores)


@dataclass(frozen=True)
class Suggestion:
    """Trial that an executor must run now. Its steps, or those up to its next pause, are already reserved.

    Attributes:
        trial_id: id of the trial in the ledger, the sweep's folder and the Optuna storage.
        number: Optuna's number of the trial, counted from 0.
        parameters: the flat parameters, including fixed parameters.
        shape: length, batch size and mechanism of the trial.
        scored: step of the checkpoint whose score is already stored, so that the trial does not score it again. 0 if
            there is none.
        committed: whether this is the committed run, which follows the search and whose model is released.
        source: id of the search's trial whose result the committed run follows; empty for every other trial.
    """

    trial_id: str
    number: int
    parameters: dict[str, object]
    shape: TrialShape
    scored: int = 0
    committed: bool = False
    source: str = ""


@dataclass(frozen=True)
class Wait:
    """Instruction to start no trial until a running trial reports or ends."""


@dataclass(frozen=True)
class Stop:
    """Instruction to start no further trial. `detail` is a sentence for the user, or empty."""

    reason: StopReason
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """State of a trial as analysts may see it. It contains nothing that only the operator may read."""

    id: str
    number: int
    parameters: Mapping[str, object] = field(default_factory=dict)
    state: TrialStatus = TrialStatus.RUNNING
    step: int = 0
    steps_planned: int = 0
    last_score: float | None = None
    best_score: float | None = None
    reason: str = ""
    committed: bool = False  # whether it is the committed run, which follows the search
    reserved_until: int = 0  # step up to which a trial of a rung-wise search has reserved; 0 in other searches


class Unleased(Protocol):
    """Part of a trial's reservation that is not leased yet. Steps and scores are charged when they are leased."""

    @property
    def steps(self) -> int:
        """Number of private steps."""

    @property
    def releases(self) -> int:
        """Number of protected scores."""


class BudgetGate(Protocol):
    """Protocol of the privacy budget, with the methods that the driver needs. `trial` is a trial id."""

    def fits(self, *asks: Ask) -> bool:
        """Return whether all requested steps and scores could be reserved together now."""

    def reserve(self, trial: str, ask: Ask, *, rung: bool = False) -> None:
        """Reserve steps and scores for the trial, in addition to earlier reservations with the same mechanism.

        `rung` says that the trial has taken all that it had reserved, and reserves its next rung.

        Raises:
            tuner.errors.BudgetRefusedError: the request does not fit the budget. Nothing was reserved.
        """

    def settle(self, trial: str, steps_taken: int) -> None:
        """End the trial's reservations, and give the unleased steps and scores back to the budget."""

    def forfeit(self, trial: str, steps_taken: int, rungs: Sequence[int]) -> None:
        """End the trial's reservations, and charge what is left of them as if the trial had gone on to its end.

        `rungs` are the rising numbers of steps at which the trial reports. The last is its end.
        """

    def outstanding(self) -> Mapping[str, Unleased]:
        """Return the unleased steps and scores (possibly 0) of every trial that is not settled."""


Shape: TypeAlias = Callable[[Mapping[str, object]], TrialShape]
"""Function that returns the shape of a trial for its parameters. It uses public values only."""

FindCheckpoint: TypeAlias = Callable[[str], int | None]
"""Function that takes a trial id and returns the step of the trial's last checkpoint, or None without a checkpoint."""


class Observer(Protocol):
    """Receiver of a search's events. The driver calls the methods in the order of the events, from a single thread.

    Subclasses override the methods that they need. The default methods do nothing.
    """

    def trial_started(self, trial: TrialView) -> None:
        """Handle a trial that is about to start or to resume after an interruption."""
        return

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Handle the metrics that a trial reported at `step`."""
        return

    def trial_paused(self, trial: TrialView) -> None:
        """Handle a trial that pauses at a rung. `trial_started` follows if it is promoted, or else `trial_finished`."""
        return

    def trial_lost(self, trial: TrialView, why: str) -> None:
        """Handle a trial that lost its worker and goes back to its last checkpoint, which is at `trial.step`.

        It continues there, or is PAUSED and continues if it is promoted.
        """
        return

    def trial_finished(self, trial: TrialView) -> None:
        """Handle a trial that ended as COMPLETE, PRUNED, FAILED or LOST."""
        return
