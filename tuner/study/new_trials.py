"""New trials: whether one starts, with which configuration, and why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study.candidates import TRIES
from tuner.study.running_trial import new_trial_id
from tuner.study.types import Stop, StopReason, Suggestion, Wait

if TYPE_CHECKING:
    from optuna.trial import Trial

    from tuner.study.budget_room import BudgetRoom
    from tuner.study.candidates import Candidates
    from tuner.study.live_trials import LiveTrials
    from tuner.study.reservations import Reservations
    from tuner.study.trial_shapes import TrialShapes

__all__ = ["NewTrials"]


class NewTrials:
    """Start of trials with new configurations.

    Args:
        candidates: configurations to try.
        shapes: shapes of the trials.
        room: remaining budget.
        reservations: reservations of the trials.
        live: trials that have started and not ended.
        trials: number of trials of the sweep, including trials that are already in the storage.
    """

    def __init__(
        self,
        candidates: Candidates,
        shapes: TrialShapes,
        room: BudgetRoom,
        reservations: Reservations,
        live: LiveTrials,
        *,
        trials: int,
    ) -> None:
        self._candidates = candidates
        self._shapes = shapes
        self._room = room
        self._reservations = reservations
        self._live = live
        self._trials = trials
        self._full_since: int | None = None

    @property
    def all_started(self) -> bool:
        """Whether as many trials have started as the sweep may have."""
        return self._candidates.counts()[1] >= self._trials

    def next(self) -> Suggestion | Wait | Stop:
        """Start a trial with a new configuration, or return why none starts now."""
        asked, started = self._candidates.counts()
        if started >= self._trials:
            return Stop(StopReason.DONE)
        if self._candidates.is_exhausted():
            return Stop(StopReason.GRID, f"all {asked} points of the grid have been tried")
        if self._live.running and self._candidates.waits():
            return Wait()
        if found := self._candidates.found():  # further reports of running trials may still change this result
            return Wait() if self._live.running else Stop(StopReason.FOUND, found)
        return self._draw(started) if self._shapes.cheapest or not self._room.is_limited else self._ask(started)

    def start_if_it_fits(self, trial: Trial, parameters: dict[str, object]) -> Suggestion | None:
        """Give a new trial an id, reserve its steps and start it. Return None if the steps do not fit the budget."""
        trial_id = new_trial_id(trial.number)
        fits = self._reservations.start(trial_id, self._shapes.of_trial(trial, parameters))
        return self._live.start_new(trial, trial_id, parameters) if fits else None

    def try_again(self) -> None:
        """Draw configurations again, because reservations may have ended since none fitted."""
        self._full_since = None

    def _ask(self, started: int) -> Suggestion | Wait | Stop:
        """Start a trial of a sweep whose trials all have the same shape.

        Parameters are drawn only if the trial fits the budget.
        """
        left, trial_id = self._left(started), new_trial_id(started)
        if not self._reservations.start(trial_id, self._shapes.of_parameters({})):
            return self._no_room(f"a trial of {self._shapes.rungs[-1]} steps no longer fits in the privacy budget")
        for trial, parameters in self._candidates.configurations(left):  # only the first candidate is used
            return self._live.start_new(trial, trial_id, parameters)
        self._room.settle(trial_id, 0)
        return self.next()

    def _draw(self, started: int) -> Suggestion | Wait | Stop:
        """Start a trial whose cost depends on its parameters. Draw configurations until one fits the budget."""
        # If no drawn configuration fitted, none is drawn until a trial ends.
        if self._full_since == self._live.ended or not self._room.holds_any(self._shapes.cheapest):
            return self._no_room("not even the cheapest configuration still fits in the privacy budget")
        for number, (trial, parameters) in enumerate(self._candidates.configurations(self._left(started)), start=1):
            suggestion = self.start_if_it_fits(trial, parameters)
            if suggestion is not None:
                return suggestion
            self._candidates.reject(trial)
            if number == TRIES:
                self._full_since = self._live.ended
                return self._no_room(f"none of {TRIES} drawn configurations still fits in the privacy budget")
        return self.next()

    def _left(self, started: int) -> float | None:
        """Return how many more complete trials the budget and the limit `trials` allow, or None if not needed."""
        if not self._candidates.needs_left:
            return None
        shapes = self._shapes.cheapest or ((self._shapes.of_parameters({}),) if self._room.is_limited else ())
        return float(self._room.whole(shapes, at_most=self._trials - started))

    def _no_room(self, detail: str) -> Wait | Stop:
        # A running trial may end early and return its unspent steps, so the search ends only when no trial is running.
        return Wait() if self._live.running else Stop(StopReason.BUDGET, self._room.refusal or detail)
