"""Trials that have started and not ended: their start, their pauses and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.running_trial import Announcements, RunningTrial, stored
from tuner.study.types import FindCheckpoint, Stop, StopReason, Suggestion, TrialStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from tuner.study.budget_room import BudgetRoom
    from tuner.study.trial_shapes import TrialShapes
    from tuner.study.types import Observer, TrialShape, TrialView

__all__ = ["NO_RESERVATION", "NO_ROOM", "FirstFailures", "LiveTrials"]

NO_ROOM = "the steps to repeat after an interruption do not fit in the privacy budget"
NO_RESERVATION = "its reserved steps were already settled in the ledger, so it could not continue"


class FirstFailures:
    """Failures of the first trials. The search stops if `limit` trials failed and no trial has ended in another way.

    Without a limit, failures never change how a search ends: nobody may learn of those of a sealed search. A resumed
    search goes on, because the cause may have been fixed. `earlier` are the trials of the processes before.
    """

    def __init__(self, limit: int | None, earlier: Sequence[TrialView] = ()) -> None:
        self._limit = limit
        self._ended_well = False
        self._failures = 0
        self._last = ""  # reason of the last failure
        for trial in earlier:
            if trial.state is TrialStatus.PAUSED:
                self.went_well()
            elif trial.state is not TrialStatus.RUNNING:
                self.ended(trial.state, trial.reason)
        self._before, self._failures = self._failures, 0

    def went_well(self) -> None:
        """Note that a trial has paused, so that later failures do not stop the search."""
        self._ended_well = True

    def ended(self, outcome: TrialStatus, reason: str) -> None:
        """Note the end of a trial."""
        if outcome in (TrialStatus.COMPLETE, TrialStatus.PRUNED):
            self._ended_well = True
        elif reason not in (NO_ROOM, NO_RESERVATION):  # the training or the infrastructure failed, not the budget
            self._failures += 1
            self._last = reason

    def stop(self) -> Stop | None:
        """Return the end of the search if its first trials all failed, or else None."""
        if self._limit is None or self._ended_well or self._failures < self._limit:
            return None
        return Stop(
            StopReason.FAILING,
            f"the first {self._failures} trials all failed (the last one: {self._last}), so no more are started",
        )

    def end(self, stop: Stop) -> Stop:
        """Return the end of a search that starts no more trials: `stop`, or that all its trials failed."""
        failed = self._before + self._failures
        if self._limit is None or self._ended_well or not failed:
            return stop
        told = f"all {failed} trials failed (the last one: {self._last})"
        return Stop(StopReason.ALL_FAILED, told if failed > 1 else f"its only trial failed ({self._last})")


class LiveTrials:
    """Trials that have started and not ended. It starts, pauses and ends them in Optuna, the ledger and the observers.

    Args:
        study: the Optuna study.
        shapes: shapes of the trials.
        room: remaining budget.
        observers: objects that are notified of every start, report, pause and end of a trial.
        failures: failures of the first trials.
        mode: ``"max"`` or ``"min"``.

    Attributes:
        running: the trials that an executor is running, by their ids.
        paused: the paused trials of a rung-wise search, by their ids.
        find_checkpoint: function that returns the step of a trial's last checkpoint.
        ended: number of trials that have ended in this process.
    """

    def __init__(
        self,
        study: Study,
        shapes: TrialShapes,
        room: BudgetRoom,
        *,
        observers: Sequence[Observer],
        failures: FirstFailures,
        mode: str,
    ) -> None:
        self.running: dict[str, RunningTrial] = {}
        self.paused: dict[str, RunningTrial] = {}
        self.find_checkpoint: FindCheckpoint = lambda _trial_id: None
        self.ended = 0
        self.announce = Announcements(study, observers)
        self._study = study
        self._shapes = shapes
        self._room = room
        self._failures = failures
        self._mode = mode

    @property
    def alive(self) -> dict[str, RunningTrial]:
        """The running and the paused trials."""
        return {**self.running, **self.paused}

    def is_only(self, trial_id: str) -> bool:
        """Return whether no other trial has started."""
        return [trial.id for trial in views.read_trials(self._study, mode=self._mode, steps_planned=0)] == [trial_id]

    def checkpoint_of(self, trial_id: str) -> int:
        """Return the step of a trial's last checkpoint, or 0 without a checkpoint."""
        return self.find_checkpoint(trial_id) or 0

    def adopt(self, trial: Trial) -> RunningTrial:
        """Restore the state of a trial from Optuna's storage."""
        frozen = stored(self._study, trial)
        found = RunningTrial.of(trial, frozen, mode=self._mode, rungs=self._shapes.rungs)
        if self._shapes.pause and views.PARAMETERS in frozen.user_attrs:
            found.shape = self._shapes.of_parameters(found.parameters)
            found.granted = found.granted or self._shapes.until(found.shape, 0)
        elif views.PARAMETERS in frozen.user_attrs:  # a run may end before its planned end
            planned = self._shapes.planned(found.parameters, committed=found.committed)
            found.shape = planned.ending(min(found.shape.steps, planned.steps), after=0)
        return found

    def start_new(self, trial: Trial, trial_id: str, parameters: dict[str, object]) -> Suggestion:
        """Start a trial whose steps are reserved under `trial_id`."""
        trial.set_user_attr(views.TRIAL_ID, trial_id)
        return self.start(trial, trial_id, parameters, done=0)

    def start(
        self,
        trial: Trial,
        trial_id: str,
        parameters: dict[str, object],
        *,
        done: int,
        shape: TrialShape | None = None,
    ) -> Suggestion:
        """Start a trial from its checkpoint at `done`. `shape` is that of its parameters by default."""
        trial.set_user_attr(views.PARAMETERS, parameters)
        shape = shape or self._shapes.of_trial(trial, parameters)
        if shape.rungs != self._shapes.rungs:
            own = self._shapes.nominal(shape, self._shapes.of_trial(trial, parameters))
            trial.set_user_attr(views.RUNGS, [[nominal, step] for step, nominal in own.items()])
        active = self.adopt(trial)
        active.parameters, active.shape, active.step = parameters, shape, done
        if self._shapes.pause:
            active.scored = done if done == active.reported < shape.steps else 0
            if views.GRANTED not in stored(self._study, trial).user_attrs:
                active.grant(self._shapes.until(shape, 0))
        self.running[trial_id] = active
        self.announce.started(active.view())
        source = str(trial.user_attrs.get(views.COMMITTED, ""))
        return Suggestion(trial_id, trial.number, dict(parameters), shape, active.scored, active.committed, source)

    def pause(self, active: RunningTrial) -> None:
        """Move a running or interrupted trial to the paused ones. The caller announces it."""
        self.running.pop(active.id, None)
        self.paused[active.id] = active

    def resume(self, paused: RunningTrial) -> Suggestion:
        """Start a paused trial from its checkpoint. The steps up to its next pause are reserved."""
        return self.start(paused.trial, paused.id, paused.parameters, done=self.checkpoint_of(paused.id))

    def end(self, active: RunningTrial, outcome: TrialStatus, reason: str, *, settle: bool = True) -> None:
        """End a trial: store its end in Optuna, end its reservation in the ledger, and announce its end.

        Without `settle`, its reservation has already ended.
        """
        active.store_end(self._study, outcome, reason)
        if settle:
            self.end_reservation(active)
        self.ended += 1
        self.running.pop(active.id, None)
        self.paused.pop(active.id, None)
        self._failures.ended(outcome, reason)
        self.announce.finished(active.view(outcome, reason))

    def announce_end(self, ended: FrozenTrial) -> None:
        """Announce the stored end of a trial."""
        self.announce.finished(views.view_of(ended, mode=self._mode, steps_planned=self._shapes.rungs[-1]))

    def end_reservation(self, active: RunningTrial) -> None:
        """Give back what an ended trial did not lease, or charge it if the trial forfeits it."""
        if active.forfeits:
            reserved = active.granted or active.shape.steps
            self._room.forfeit(active.id, active.step, [stop for stop in active.shape.stops if stop <= reserved])
        else:
            self._room.settle(active.id, active.step)
