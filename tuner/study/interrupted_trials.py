"""Interrupted trials: what a crash left in Optuna's storage and in the ledger, made consistent and resumed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.candidates import excluded_because, is_waiting
from tuner.study.live_trials import NO_RESERVATION, NO_ROOM
from tuner.study.running_trial import new_trial_id, trial_of
from tuner.study.types import Suggestion, TrialStatus, Wait

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.budget_room import BudgetRoom
    from tuner.study.candidates import Candidates
    from tuner.study.live_trials import LiveTrials
    from tuner.study.new_trials import NewTrials
    from tuner.study.paused_trials import PausedTrials
    from tuner.study.reservations import Reservations
    from tuner.study.trial_shapes import TrialShapes

__all__ = ["InterruptedTrials"]


class InterruptedTrials:
    """Queue of the interrupted trials of a study. A committed run that has not started yet is one of them.

    Args:
        study: the Optuna study.
        shapes: shapes of the trials.
        room: remaining budget.
        candidates: configurations of the study.
        live: trials that have started and not ended.
        reservations: reservations of the trials.
        new: start of new trials, for a trial that was interrupted before it had our trial id.
        paused: pauses of a rung-wise search, or None for another search.
    """

    def __init__(
        self,
        study: Study,
        shapes: TrialShapes,
        room: BudgetRoom,
        candidates: Candidates,
        live: LiveTrials,
        reservations: Reservations,
        new: NewTrials,
        paused: PausedTrials | None,
    ) -> None:
        self._study = study
        self._shapes = shapes
        self._room = room
        self._candidates = candidates
        self._live = live
        self._reservations = reservations
        self._new = new
        self._paused = paused
        self._queue: deque[FrozenTrial] = deque()

    def __bool__(self) -> bool:
        """Return whether a trial is interrupted."""
        return bool(self._queue)

    def add(self, frozen: FrozenTrial) -> None:
        """Add a stored trial that has not started."""
        self._queue.append(frozen)

    def reconcile(self) -> None:
        """Make the storage and the ledger consistent, and queue the trials that were interrupted.

        If only part of a trial's end was stored or announced, the rest of it is stored and announced now. Reservations
        of trials that ended or never started are settled.
        """
        outstanding = self._room.outstanding()
        self._new.try_again()
        self._queue.clear()
        self._live.paused.clear()
        announced = self._live.announce.announced()
        known = set(self._live.running)
        for frozen in self._study.get_trials(deepcopy=False):
            trial_id = _id_of(frozen)
            if trial_id in self._live.running or is_waiting(frozen):  # Optuna's next `ask` takes a waiting trial
                continue
            known.add(trial_id)
            self._reconcile(frozen, reserved=trial_id in outstanding, announced=trial_id in announced)
        if self._paused is not None:
            self._queue = deque(self._paused.leader_first(self._queue))
        for trial_id in sorted(set(outstanding) - known):
            self._room.settle(trial_id, 0)

    def _reconcile(self, frozen: FrozenTrial, *, reserved: bool, announced: bool) -> None:
        """Do for a stored trial what `reconcile` describes."""
        trial_id = _id_of(frozen)
        if self._paused is not None and self._paused.restore(frozen):
            return
        if frozen.state.is_finished():
            if reserved:
                self._live.end_reservation(self._live.adopt(trial_of(self._study, frozen)))
            if trial_id and not announced:
                self._live.announce_end(frozen)
        elif views.OUTCOME in frozen.user_attrs:  # it was written last, so the steps and the reason are stored too
            active = self._live.adopt(trial_of(self._study, frozen))
            outcome, reason = TrialStatus(frozen.user_attrs[views.OUTCOME]), str(frozen.user_attrs[views.REASON])
            self._live.end(active, outcome, reason, settle=reserved)  # a trial that never fitted reserved nothing
        elif views.REJECTED in frozen.user_attrs or self._candidates.is_half(frozen):
            if reserved:
                self._room.settle(trial_id, 0)
            self._candidates.reject(trial_of(self._study, frozen), excluded_because(frozen))
        else:
            self._queue.append(frozen)

    def next(self) -> Suggestion | Wait | None:
        """Resume an interrupted trial, wait for a running one, or return None if the queue has changed otherwise."""
        for frozen in tuple(self._queue):
            suggestion = self._resume(frozen)
            if suggestion is not None:
                self._queue.remove(frozen)
                return suggestion
        if not self._queue:
            return None
        if self._live.running:
            return Wait()
        # No interrupted trial fits, and no running trial can return steps. One interrupted trial is ended as LOST,
        # which frees its reservation.
        frozen = self._queue.popleft()
        trial_id, trial = _id_of(frozen), trial_of(self._study, frozen)
        if not trial_id:
            trial_id = new_trial_id(frozen.number)
            trial.set_user_attr(views.TRIAL_ID, trial_id)
        held = self._room.holds(trial_id)
        self._live.end(self._live.adopt(trial), TrialStatus.LOST, NO_ROOM if held else NO_RESERVATION, settle=held)
        return None

    def _resume(self, frozen: FrozenTrial) -> Suggestion | None:
        """Resume an interrupted trial. Return None if the trial cannot resume now."""
        trial_id, trial = _id_of(frozen), trial_of(self._study, frozen)
        committed = views.COMMITTED in frozen.user_attrs
        parameters = dict(frozen.user_attrs[views.PARAMETERS]) if committed else self._candidates.parameters_of(trial)
        if not trial_id:  # the driver died before it wrote our id, so the trial never ran
            excluded = "" if committed else self._candidates.excluded(trial)
            suggestion = None if excluded else self._new.start_if_it_fits(trial, parameters)
            if excluded or (suggestion is None and self._shapes.cheapest):
                self._candidates.reject(trial, excluded)
                self._queue.remove(frozen)
            return suggestion
        if not self._room.holds(trial_id):
            return None  # another process settled the trial, so the trial can never lease steps again
        active = self._live.adopt(trial)
        active.shape = self._shapes.of_trial(trial, parameters)
        if self._shapes.pause:
            active.granted = active.granted or self._shapes.until(active.shape, 0)
        if self._reservations.repeat(active, scored=active.reported):
            done = self._live.checkpoint_of(trial_id)
            return self._live.start(trial, trial_id, parameters, done=done, shape=active.shape)
        if self._paused is not None and self._paused.pause_again(active):
            self._queue.remove(frozen)
        return None


def _id_of(frozen: FrozenTrial) -> str:
    """Return the id that the driver gave a stored trial, or "" if the trial never ran."""
    return str(frozen.user_attrs.get(views.TRIAL_ID, ""))
