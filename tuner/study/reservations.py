"""Reservations of trials: the steps with which a trial starts, and those that it repeats after an interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.study.budget_room import BudgetRoom
    from tuner.study.live_trials import LiveTrials
    from tuner.study.rung_wise import RungWise
    from tuner.study.running_trial import RunningTrial
    from tuner.study.trial_shapes import TrialShapes
    from tuner.study.types import TrialShape

__all__ = ["Reservations"]


class Reservations:
    """Reservations of trials. A trial reserves all its steps, or in a rung-wise search those up to its next pause.

    Args:
        room: remaining budget.
        shapes: shapes of the trials.
        live: trials that have started and not ended.
        rung_wise: rule of a rung-wise search, or None for another search.
        sole: whether the budget was planned for one trial.
    """

    def __init__(
        self,
        room: BudgetRoom,
        shapes: TrialShapes,
        live: LiveTrials,
        *,
        rung_wise: RungWise | None,
        sole: bool,
    ) -> None:
        self._room = room
        self._shapes = shapes
        self._live = live
        self._rung_wise = rung_wise
        self._sole = sole

    def start(self, trial_id: str, shape: TrialShape) -> bool:
        """Reserve the steps with which a new trial starts, and return whether the budget has them."""
        if self._rung_wise is None:
            return self._room.reserve(trial_id, shape.ask)
        until = self._shapes.until(shape, 0)
        ask = shape.between(0, until)
        return self._rung_wise.allows(shape, ask, until) and self._room.reserve(trial_id, ask)

    def repeat(self, active: RunningTrial, *, scored: int) -> bool:
        """Reserve the steps that a trial must repeat from its last checkpoint, and return whether the budget has them.

        `scored` is the step of the checkpoint that the trial does not score again.
        """
        done = self._live.checkpoint_of(active.id)
        if self._rung_wise is None:
            return self._room.extend(active.id, active.shape.remaining(done)) or self._ends_earlier(active, done)
        again = done > 0 and not done == scored < active.shape.steps
        ask = active.shape.between(done, active.granted, again=again)
        missing = self._room.beyond(active.id, ask)
        if not missing.steps and not missing.releases:
            return True
        allowed = self._rung_wise.allows(active.shape, missing, active.granted, trial_id=active.id)
        return allowed and self._room.extend(active.id, ask)

    def _ends_earlier(self, active: RunningTrial, done: int) -> bool:
        """Shorten a run so that it continues from its checkpoint at `done`. Return whether it can.

        The committed run and a search's only trial have no spare steps. If an interruption lost leased steps, the
        run ends earlier by as many steps. No record decides when a run is interrupted, so none decides where it ends.
        """
        held = self._room.outstanding().get(active.id)
        alone = active.committed or (self._sole and self._live.is_only(active.id))
        if not alone or held is None or done + held.steps == 0:
            return False
        shape = active.shape.ending(done + held.steps, after=done)
        while not self._room.extend(active.id, shape.remaining(done)):
            if len(shape.rungs) == 1:
                return False
            shape = replace(shape, rungs=shape.rungs[1:], releases=shape.releases and shape.releases - 1)
        active.shape = shape
        return True
