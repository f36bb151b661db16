"""Study driver, which makes every decision of a sweep. All executors use it.

The driver keeps its state in Optuna's storage and in the ledger (the data set's durable record of charges). After any
crash, `reconcile` restores the state from these two. The order of writes makes this possible:

    start    reserve in the ledger → create the Optuna trial → draw parameters → call the pruner → write our trial id
             If the cost depends on the parameters, the budget is reserved after the pruner is called.
             If the pruner excludes the configuration: write the reason → end the Optuna trial →
             use the reservation for the next configuration
    report   write Optuna's intermediate value → call the pruner
    finish   write steps, reason and outcome → end the Optuna trial → settle in the ledger → notify the observers
             → mark the end as announced
    pause    write Optuna's intermediate value. The trial is paused because its report is at the step that was granted
    promote  reserve in the ledger → write the step up to which the trial is granted → notify the observers
    raised   the same, but the ledger charges all that the trial had reserved, and the step is that of its last report

A stored trial that lacks our trial id never ran. Trials of different lengths report at the same fractions of their
steps. Each report is stored at the corresponding step of the longest trial (the nominal step), so that pruners compare
scores at the same fraction.

Only one driver can run a study at a time (see `storage.exclusive`). A driver is used from a single thread.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.study import views
from tuner.study.best import best_score
from tuner.study.budget_room import BudgetRoom
from tuner.study.candidates import TRIES, Candidates, excluded_because, is_waiting
from tuner.study.rung_wise import UNUSED, RungWise
from tuner.study.rungs import scaled_rungs
from tuner.study.running_trial import Announcements, RunningTrial, new_trial_id, stored, trial_of
from tuner.study.suggest import OptunaSuggest, Space
from tuner.study.types import (
    BudgetGate,
    Decision,
    FindCheckpoint,
    Observer,
    Shape,
    Stop,
    StopReason,
    Suggestion,
    TrialShape,
    TrialStatus,
    Wait,
    WhenSure,
)

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from tuner.study.committed import Committed
    from tuner.study.pauses import Levels

__all__ = ["NO_RESERVATION", "NO_ROOM", "RAISED", "StudyDriver"]

NO_ROOM = "the steps to repeat after an interruption do not fit in the privacy budget"
_OVER = (StopReason.DONE, StopReason.BUDGET, StopReason.GRID, StopReason.FOUND)
"""Reasons for which a search is over, so that its committed run can start."""
RAISED = "its training raised an error, whose cause is in the operator's log"
NO_RESERVATION = "its reservation was settled in the ledger while the trial was running"


class StudyDriver:
    """Driver of a study. It decides which trials start and stop, stores their reports, and reserves their budget.

    Args:
        study: an Optuna study from `storage.open_study`, whose direction matches `mode`.
        space: search space.
        trials: number of trials of the sweep, including trials that are already in the storage.
        steps_per_trial: training steps of a complete trial. If lengths differ, the steps of the longest trial.
        rung_steps: steps after which a trial reports, in increasing order. The last is `steps_per_trial`. A shorter
            trial reports at the same fractions of its own steps, and Optuna stores the scores at `rung_steps`.
        metric: name of the score in the reported metrics.
        mode: ``"max"`` or ``"min"``.
        budget: the privacy budget, or None for a sweep without privacy.
        observers: objects that are notified of every start, report and end of a trial.
        max_first_failures: the search stops when this many trials have failed and no trial has ended in another way.
        shape_of: function that returns the shape of a trial (its steps, rungs and mechanism) for its parameters. By
            default, all trials have `steps_per_trial` steps.
        cheapest: the cheapest possible shapes of a trial. If none of them fits the budget, no trial can start. Empty if
            all trials have the same shape.
        when_sure: what to do when the score of a complete trial is very probably near the best possible score. Only
            ``go_on`` works with every sampler.
        committed: the run that follows when the search is over, or None if no run follows.
        levels: rungs at which trials pause, in a search that reserves rung by rung; None if trials reserve all their
            steps at their start.
        asks_pruner: whether the study's pruner decides about paused trials.

    Raises:
        tuner.errors.InputError: a setting is invalid, or the settings contradict each other or the study.
    """

    def __init__(
        self,
        study: Study,
        space: Space,
        *,
        trials: int,
        steps_per_trial: int,
        rung_steps: Sequence[int],
        metric: str,
        mode: str = "max",
        budget: BudgetGate | None = None,
        observers: Sequence[Observer] = (),
        max_first_failures: int = 3,
        shape_of: Shape | None = None,
        cheapest: Sequence[TrialShape] = (),
        when_sure: WhenSure = "go_on",
        committed: Committed | None = None,
        levels: Levels | None = None,
        asks_pruner: bool = True,
    ) -> None:
        _check_settings(study, trials, steps_per_trial, rung_steps, mode)
        self.study = study
        self.space = space
        self.trials = trials
        self.steps_per_trial = steps_per_trial
        self.rung_steps = tuple(rung_steps)
        self.metric = metric
        self.mode = mode
        nominal = TrialShape(steps=steps_per_trial, rungs=self.rung_steps)
        self._shape_of: Shape = shape_of or (lambda _parameters: nominal)
        self._cheapest = tuple(cheapest)
        self._committed = committed
        self._room = BudgetRoom(budget, committed=None if committed is None else committed.shape.ask)
        self._rung_wise: RungWise | None = None
        if levels is not None:
            self._rung_wise = RungWise(
                study,
                levels,
                rung_steps,
                mode=mode,
                room=self._room,
                asks_pruner=asks_pruner,
                find_checkpoint=lambda trial_id: self._find_checkpoint(trial_id),
            )
        self._candidates = Candidates(study, space, when_sure, shows_paused=levels is not None)
        self._full = False  # True if no drawn configuration fitted; then none is drawn until a trial ends
        self._announce = Announcements(study, observers)
        self._max_first_failures = max_first_failures
        self._active: dict[str, RunningTrial] = {}
        self._interrupted: deque[FrozenTrial] = deque()
        self._find_checkpoint: FindCheckpoint = lambda _trial_id: None
        self._stop: Stop | None = None
        self._failures = 0
        self._last_loss = ""  # cause of the last failure, if it was one of the infrastructure
        self._ended_well = any(t.state.name in ("COMPLETE", "PRUNED") for t in study.get_trials(deepcopy=False))

    def next(self) -> Suggestion | Wait | Stop:
        """Return the next action: run a trial whose steps are reserved, wait for a running trial, or stop."""
        if self._stop is not None:
            return self._stop if self._rung_wise is None else self._complete_leader(self._stop)
        if not self._ended_well and self._failures >= self._max_first_failures:
            why = f" (the last one: {self._last_loss})" if self._last_loss else ""
            return Stop(
                StopReason.FAILING, f"the first {self._failures} trials all failed{why}, so no more are started"
            )
        if self._interrupted:
            return self._continue_interrupted()
        if self._committed is not None and (run := self._committed.stored(self.study)) is not None:
            return Wait() if self._active else self._committed.over(run)
        new = self._next_new()
        if self._committed is not None and isinstance(new, Stop):
            return self._commit(self._committed, new)
        return new if self._rung_wise is None or isinstance(new, Suggestion) else self._promote_or_end(new)

    def _next_new(self) -> Suggestion | Wait | Stop:
        """Start a trial with a new configuration, or return why none starts now."""
        asked, started = self._candidates.counts()
        if started >= self.trials:
            return Stop(StopReason.DONE)
        if self._candidates.is_exhausted():
            return Stop(StopReason.GRID, f"all {asked} points of the grid have been tried")
        if self._active and self._candidates.waits():
            return Wait()
        if found := self._candidates.found():  # further reports of running trials may still change this result
            return Wait() if self._active else Stop(StopReason.FOUND, found)
        return self._draw(started) if self._cheapest or not self._room.is_limited else self._ask(started)

    def stop(self, detail: str = "") -> None:
        """Stop the search. Running trials continue, but no further trial starts."""
        self._stop = Stop(StopReason.STOPPED, detail)

    def restarted(self, trial_id: str) -> bool:
        """Reserve the steps that a trial must repeat because its worker was lost, and return True.

        The trial restarts from its last checkpoint. If the steps do not fit the budget, end the trial as LOST, or pause
        it, and return False. The executor must then not restart the trial.
        """
        active = self._active[trial_id]
        if self._repeat(active, scored=active.scored):
            return True
        if self._pause_again(active):
            return False
        self.finish(trial_id, outcome=TrialStatus.LOST, steps_taken=active.step, reason=NO_ROOM)
        return False

    @property
    def running(self) -> int:
        """Number of trials that an executor is running."""
        return len(self._active)

    def is_running(self, trial_id: str) -> bool:
        """Return whether this driver has started the trial and the trial has not ended."""
        return trial_id in self._active

    def is_committed(self, trial_id: str) -> bool:
        """Return whether a running trial is the committed run."""
        return self._active[trial_id].committed

    def shape_of_trial(self, trial_id: str) -> TrialShape:
        """Return the shape of a running trial (its steps, rungs and mechanism)."""
        return self._active[trial_id].shape

    def reserved_until(self, trial_id: str) -> int:
        """Return the step up to which a running trial has reserved its steps."""
        active = self._active[trial_id]
        return active.granted or active.shape.steps

    def step_of(self, trial_id: str) -> int:
        """Return the step of a running trial's last report, or of the checkpoint from which the trial resumed."""
        return self._active[trial_id].step

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> Decision:
        """Handle the metrics that a trial reports at a step, and decide whether the trial continues.

        At a rung, the score is stored in Optuna, and the pruner may stop the trial. If the score is missing or not
        finite, the decision is FAIL. After FAIL or PRUNE, the executor must call `finish`. After PAUSE, the trial is no
        longer running. If a restarted trial reports the same step again, Optuna keeps the first score.
        """
        active = self._active[trial_id]
        active.step, active.reported = max(active.step, step), max(active.reported, step)
        score = metrics.get(self.metric, math.nan)
        if not math.isfinite(score):
            found = "was not reported" if self.metric not in metrics else "is not a finite number"
            active.problem = f"the score {self.metric!r} {found} at step {step}"
            return Decision.FAIL
        decision = Decision.CONTINUE
        active.last_score = score
        active.best_score = best_score((active.best_score, score), mode=self.mode)
        nominal = self._nominal(active.shape, committed=active.committed).get(step)
        if nominal is not None:
            if nominal not in stored(self.study, active.trial).intermediate_values:
                active.trial.report(score, nominal)
            if self._is_pruned(active):
                decision = Decision.PRUNE
                active.problem = self._candidates.why(active.trial)
            elif (
                not active.committed
                and nominal < self.rung_steps[-1]
                and (found := self._candidates.found_without(active.trial.number, nominal, score, mode=self.mode))
            ):
                decision = Decision.PRUNE
                active.problem = f"the search is over: {found}"
        self._announce.reported(active.view(), step, metrics)
        if (
            self._rung_wise is not None
            and decision is Decision.CONTINUE
            and active.granted <= step < active.shape.steps
        ):
            decision = self._pause(active, self._rung_wise)
        return decision

    def finish(self, trial_id: str, *, outcome: TrialStatus, steps_taken: int, reason: str = "") -> None:
        """End a trial. Store its outcome in Optuna, and give its unleased steps and scores back to the budget.

        Args:
            trial_id: id of a running trial.
            outcome: COMPLETE, PRUNED, FAILED (of a reported score that is not finite) or LOST. COMPLETE becomes FAILED
                if the trial has no finite score. A training that raised an error ends by `raised`.
            steps_taken: number of training steps of the trial's final model. It cannot exceed the leased steps.
            reason: text that tells analysts why the trial ended. It may depend on the records only through reported
                scores. If the pruner gave a reason, that reason is stored instead.
        """
        active = self._active[trial_id]
        active.step = steps_taken
        if outcome is TrialStatus.COMPLETE and active.last_score is None:
            outcome, reason = TrialStatus.FAILED, f"the score {self.metric!r} was never reported"
        if outcome in (TrialStatus.FAILED, TrialStatus.LOST):
            reason = reason or active.problem or "no reason was given"
        if outcome is TrialStatus.PRUNED:
            reason = active.problem or reason
        self._close(active, outcome, reason)

    def raised(self, trial_id: str) -> None:
        """End a trial whose training raised an error, as FAILED.

        A record may have caused the error. So the trial's step is that of its last report, the reason is always the
        same text, and the ledger charges all that the trial had reserved. None of them tells at which step it failed.
        """
        active = self._active[trial_id]
        active.step, active.forfeits = active.reported, True
        self._close(active, TrialStatus.FAILED, RAISED)

    def reconcile(self, find_checkpoint: FindCheckpoint | None = None) -> None:
        """Make the storage and the ledger consistent after an interruption. Repeated calls are safe.

        If only part of a trial's end was stored or announced, the rest of it is stored and announced now. Reservations
        of trials that ended or never started are settled. `next` then resumes interrupted trials from the checkpoints
        that `find_checkpoint` returns.
        """
        if find_checkpoint is not None:
            self._find_checkpoint = find_checkpoint
        outstanding = self._room.outstanding()
        self._full = False
        self._interrupted.clear()
        if self._rung_wise is not None:
            self._rung_wise.paused.clear()
        announced = self._announce.announced()
        known = set(self._active)
        for frozen in self.study.get_trials(deepcopy=False):
            trial_id = _id_of(frozen)
            if trial_id in self._active or is_waiting(frozen):  # Optuna's next `ask` takes a waiting trial
                continue
            known.add(trial_id)
            if self._rung_wise is not None and views.PARAMETERS in frozen.user_attrs and self._is_paused(frozen):
                self._rung_wise.paused[trial_id] = self._adopt(trial_of(self.study, frozen))
            elif frozen.state.is_finished():
                if trial_id in outstanding:
                    self._end_reservation(self._adopt(trial_of(self.study, frozen)))
                if trial_id and trial_id not in announced:
                    self._announce.finished(views.view_of(frozen, mode=self.mode, steps_planned=self.steps_per_trial))
            elif views.OUTCOME in frozen.user_attrs:
                self._finish_begun(frozen)
            elif views.REJECTED in frozen.user_attrs or self._candidates.is_half(frozen):
                if trial_id in outstanding:
                    self._room.settle(trial_id, 0)
                self._candidates.reject(trial_of(self.study, frozen), excluded_because(frozen))
            else:
                self._interrupted.append(frozen)
        if self._rung_wise is not None:  # the leader is the first to reserve the steps that it repeats
            self._interrupted = deque(self._rung_wise.best_of(self._interrupted))
        for trial_id in sorted(set(outstanding) - known):
            self._room.settle(trial_id, 0)

    def _ask(self, started: int) -> Suggestion | Wait | Stop:
        """Start a trial of a sweep whose trials all have the same shape.

        Parameters are drawn only if the trial fits the budget.
        """
        left, trial_id = self._left(started), new_trial_id(started)
        if not self._reserve_start(trial_id, self._shape_of({})):
            return self._no_room(f"a trial of {self.steps_per_trial} steps no longer fits in the privacy budget")
        for trial, parameters in self._candidates.configurations(left):  # only the first candidate is used
            return self._start_new(trial, trial_id, parameters)
        self._room.settle(trial_id, 0)
        return self.next()

    def _draw(self, started: int) -> Suggestion | Wait | Stop:
        """Start a trial whose cost depends on its parameters. Draw configurations until one fits the budget."""
        if self._full or not self._room.holds_any(self._cheapest):
            return self._no_room("not even the cheapest configuration still fits in the privacy budget")
        for number, (trial, parameters) in enumerate(self._candidates.configurations(self._left(started)), start=1):
            suggestion = self._start_if_it_fits(trial, parameters)
            if suggestion is not None:
                return suggestion
            self._candidates.reject(trial)
            if number == TRIES:
                self._full = True
                return self._no_room(f"none of {TRIES} drawn configurations still fits in the privacy budget")
        return self.next()

    def _left(self, started: int) -> float | None:
        """Return how many more complete trials the budget and the limit `trials` allow, or None if not needed."""
        if not self._candidates.needs_left:
            return None
        shapes = self._cheapest or ((self._shape_of({}),) if self._room.is_limited else ())
        return float(self._room.whole(shapes, at_most=self.trials - started))

    def _no_room(self, detail: str) -> Wait | Stop:
        # A running trial may end early and return its unspent steps, so the search ends only when no trial is running.
        return Wait() if self._active else Stop(StopReason.BUDGET, detail)

    def _start_if_it_fits(self, trial: Trial, parameters: dict[str, object]) -> Suggestion | None:
        """Give a new trial an id, reserve its steps and start it. Return None if the steps do not fit the budget."""
        trial_id = new_trial_id(trial.number)
        fits = self._reserve_start(trial_id, self._shape(trial, parameters))
        return self._start_new(trial, trial_id, parameters) if fits else None

    def _continue_interrupted(self) -> Suggestion | Wait | Stop:
        for frozen in tuple(self._interrupted):
            suggestion = self._continue(frozen)
            if suggestion is not None:
                self._interrupted.remove(frozen)
                return suggestion
        if not self._interrupted:
            return self.next()
        if self._active:
            return Wait()
        # No interrupted trial fits, and no running trial can return steps. One interrupted trial is ended as LOST,
        # which frees its reservation.
        frozen = self._interrupted.popleft()
        trial_id, trial = _id_of(frozen), trial_of(self.study, frozen)
        if not trial_id:
            trial_id = new_trial_id(frozen.number)
            trial.set_user_attr(views.TRIAL_ID, trial_id)
        held = self._room.holds(trial_id)
        active = self._adopt(trial)
        self._close(active, TrialStatus.LOST, NO_ROOM if held else NO_RESERVATION, settle=held)
        return self.next()

    def _continue(self, frozen: FrozenTrial) -> Suggestion | None:
        """Resume an interrupted trial. Return None if the trial cannot resume now."""
        trial_id, trial = _id_of(frozen), trial_of(self.study, frozen)
        committed = views.COMMITTED in frozen.user_attrs
        parameters = dict(frozen.user_attrs[views.PARAMETERS]) if committed else self.space.sample(OptunaSuggest(trial))
        if not trial_id:  # the driver died before it wrote our id, so the trial never ran
            excluded = "" if committed else self._candidates.excluded(trial)
            suggestion = None if excluded else self._start_if_it_fits(trial, parameters)
            if excluded or (suggestion is None and self._cheapest):
                self._candidates.reject(trial, excluded)
                self._interrupted.remove(frozen)
            return suggestion
        if not self._room.holds(trial_id):
            return None  # another process settled the trial, so the trial can never lease steps again
        active = self._adopt(trial)
        active.shape = self._shape(trial, parameters)
        if self._rung_wise is not None:
            active.granted = active.granted or self._rung_wise.until(active.shape, 0)
        if self._repeat(active, scored=active.reported):
            done = self._find_checkpoint(trial_id) or 0
            return self._start(trial, trial_id, parameters, done=done, shape=active.shape)
        if self._pause_again(active):
            self._interrupted.remove(frozen)
        return None

    def _start_new(self, trial: Trial, trial_id: str, parameters: dict[str, object]) -> Suggestion:
        trial.set_user_attr(views.TRIAL_ID, trial_id)
        return self._start(trial, trial_id, parameters, done=0)

    def _start(
        self,
        trial: Trial,
        trial_id: str,
        parameters: dict[str, object],
        *,
        done: int,
        shape: TrialShape | None = None,
    ) -> Suggestion:
        trial.set_user_attr(views.PARAMETERS, parameters)
        shape = shape or self._shape(trial, parameters)
        if shape.rungs != self.rung_steps:
            own = self._nominal(shape, committed=views.COMMITTED in trial.user_attrs)
            trial.set_user_attr(views.RUNGS, [[nominal, step] for step, nominal in own.items()])
        active = self._adopt(trial)
        active.parameters, active.shape, active.step = parameters, shape, done
        if self._rung_wise is not None:
            active.scored = done if done == active.reported < shape.steps else 0
            if views.GRANTED not in stored(self.study, trial).user_attrs:
                active.grant(self._rung_wise.until(shape, 0))
        self._active[trial_id] = active
        self._announce.started(active.view())
        source = str(trial.user_attrs.get(views.COMMITTED, ""))
        return Suggestion(trial_id, trial.number, dict(parameters), shape, active.scored, active.committed, source)

    def _finish_begun(self, frozen: FrozenTrial) -> None:
        attributes = frozen.user_attrs  # the outcome was written last, so the steps and the reason are stored too
        active = self._adopt(trial_of(self.study, frozen))
        self._close(active, TrialStatus(attributes[views.OUTCOME]), str(attributes[views.REASON]))

    def _close(self, active: RunningTrial, outcome: TrialStatus, reason: str, *, settle: bool = True) -> None:
        active.store_end(self.study, outcome, reason)
        if settle:
            self._end_reservation(active)
        self._full = False
        self._active.pop(active.id, None)
        if self._rung_wise is not None:
            self._rung_wise.paused.pop(active.id, None)
        if outcome in (TrialStatus.COMPLETE, TrialStatus.PRUNED):
            self._ended_well = True
        elif reason not in (NO_ROOM, NO_RESERVATION):  # the training or the infrastructure failed, not the budget
            self._failures += 1
            self._last_loss = reason if outcome is TrialStatus.LOST else ""
        self._announce.finished(active.view(outcome, reason))

    def _end_reservation(self, active: RunningTrial) -> None:
        if active.forfeits:
            reserved = active.granted or active.shape.steps
            self._room.forfeit(active.id, active.step, [stop for stop in active.shape.stops if stop <= reserved])
        else:
            self._room.settle(active.id, active.step)

    def _adopt(self, trial: Trial) -> RunningTrial:
        frozen = stored(self.study, trial)
        found = RunningTrial.of(trial, frozen, mode=self.mode, rungs=self.rung_steps)
        if self._rung_wise is not None and views.PARAMETERS in frozen.user_attrs:
            found.shape = self._shape_of(found.parameters)
            found.granted = found.granted or self._rung_wise.until(found.shape, 0)
        if found.committed and self._committed is not None:
            found.shape = self._committed.ending(min(found.shape.steps, self._committed.shape.steps), after=0)
        return found

    # A committed run (`search.commit`). `committed.py` has its configuration, its end and its storage.

    def _shape(self, trial: Trial, parameters: dict[str, object]) -> TrialShape:
        """Return the shape of a trial, or of the committed run."""
        if self._committed is not None and views.COMMITTED in trial.user_attrs:
            return self._committed.shape
        return self._shape_of(parameters)

    def _nominal(self, shape: TrialShape, *, committed: bool) -> dict[int, int]:
        """Return the rung of the longest trial for each step at which a trial of this shape reports."""
        if committed and self._committed is not None:
            return self._committed.nominal(self.rung_steps, shape.steps)
        return scaled_rungs(self.rung_steps, shape.steps)

    def _ends_earlier(self, active: RunningTrial, done: int) -> bool:
        """Shorten the committed run so that it can continue from its checkpoint at `done`. Return whether it can."""
        shape = self._committed.earlier(self._room, active.id, done) if active.committed and self._committed else None
        active.shape = shape or active.shape
        return shape is not None

    def _commit(self, committed: Committed, stop: Stop) -> Suggestion | Wait | Stop:
        """Start the committed run if the search is over because of `stop`.

        The run is stored first, and then starts like a trial that was interrupted before its first step. So it is never
        chosen twice.
        """
        if stop.reason not in _OVER:
            return stop
        if self._active:
            return Wait()
        trials = views.read_trials(self.study, mode=self.mode, steps_planned=self.steps_per_trial)
        chosen = committed.choose(trials)
        if chosen is None:
            return Stop(stop.reason, "no trial ended with a score, so no run was committed")
        self._interrupted.append(committed.create(self.study, chosen))
        return self._continue_interrupted()

    # A rung-wise search (`search.full_runs`). `rung_wise.py` has its rule.

    def _reserve_start(self, trial_id: str, shape: TrialShape) -> bool:
        """Reserve the steps with which a new trial starts: all of them, or those up to its first pause."""
        if self._rung_wise is None:
            return self._room.reserve(trial_id, shape.ask)
        until = self._rung_wise.until(shape, 0)
        ask = shape.between(0, until)
        return self._rung_wise.allows(shape, ask, until, running=self._active) and self._room.reserve(trial_id, ask)

    def _repeat(self, active: RunningTrial, *, scored: int) -> bool:
        """Reserve the steps that a trial must repeat from its last checkpoint, and return whether the budget has them.

        `scored` is the step of the checkpoint that the trial does not score again.
        """
        done = self._find_checkpoint(active.id) or 0
        if self._rung_wise is None:
            return self._room.extend(active.id, active.shape.remaining(done)) or self._ends_earlier(active, done)
        again = done > 0 and not done == scored < active.shape.steps
        ask = active.shape.between(done, active.granted, again=again)
        missing = self._room.beyond(active.id, ask)
        if not missing.steps and not missing.releases:
            return True
        shape, until = active.shape, active.granted
        allowed = self._rung_wise.allows(shape, missing, until, running=self._active, trial_id=active.id)
        return allowed and self._room.extend(active.id, ask)

    def _pause_again(self, active: RunningTrial) -> bool:
        """Pause a trial at its last report, whose checkpoint exists, because it may not repeat the steps after it."""
        if self._rung_wise is None or not 0 < active.reported == (self._find_checkpoint(active.id) or 0):
            return False
        active.grant(active.reported)
        self._active.pop(active.id, None)
        self._rung_wise.paused[active.id] = active
        self._announce.paused(active.view(TrialStatus.PAUSED))
        return True

    def _is_pruned(self, active: RunningTrial) -> bool:
        if active.committed:  # it is compared with no other trial
            return False
        if self._rung_wise is None:
            return active.trial.should_prune()
        return self._rung_wise.prunes(active, self._active)

    def _is_paused(self, frozen: FrozenTrial) -> bool:
        """Return whether a stored trial has reported the end of what it had reserved, and has not ended."""
        if frozen.state.name != "RUNNING" or views.OUTCOME in frozen.user_attrs or not _id_of(frozen):
            return False
        found = self._adopt(trial_of(self.study, frozen))
        return found.granted <= found.reported < found.shape.steps and self._room.holds(found.id)

    def _pause(self, active: RunningTrial, rung_wise: RungWise) -> Decision:
        """Pause a trial, or promote it at once if it is the next to be promoted."""
        self._ended_well = True
        del self._active[active.id]
        rung_wise.paused[active.id] = active
        # It is, at the earliest, when no new configuration can take its place.
        may = not self._interrupted and self._stop is None and self._candidates.counts()[1] >= self.trials
        if may and rung_wise.next(self._active) is active and rung_wise.promote(active):
            self._active[active.id] = active
            return Decision.CONTINUE
        self._announce.paused(active.view(TrialStatus.PAUSED))
        return Decision.PAUSE

    def _promote_or_end(self, otherwise: Wait | Stop) -> Suggestion | Wait | Stop:
        """Promote a paused trial. If none fits, end the search: the trials that are still paused end as PRUNED."""
        rung_wise = self._rung_wise
        assert rung_wise is not None  # noqa: S101
        refused: set[str] = set()
        while rung_wise.paused:
            trial = rung_wise.next(self._active, refused)
            if trial is None:
                break
            if rung_wise.prunes(trial, self._active):
                trial.problem = self._candidates.why(trial.trial)
                self._close(trial, TrialStatus.PRUNED, trial.problem or f"the pruner stopped it at step {trial.step}")
            elif rung_wise.promote(trial):
                return self._start(trial.trial, trial.id, trial.parameters, done=self._find_checkpoint(trial.id) or 0)
            else:
                refused.add(trial.id)
        if self._active:
            return Wait()
        for trial in tuple(rung_wise.paused.values()):
            self._close(trial, TrialStatus.PRUNED, UNUSED)
        return otherwise

    def _complete_leader(self, stop: Stop) -> Suggestion | Wait | Stop:
        """Complete the leader of a search that was stopped. Other paused trials stay paused."""
        rung_wise = self._rung_wise
        assert rung_wise is not None  # noqa: S101
        if self._active:
            return Wait()
        if rung_wise.is_complete:
            return stop
        for trial in rung_wise.completable():
            if rung_wise.promote(trial):
                return self._start(trial.trial, trial.id, trial.parameters, done=self._find_checkpoint(trial.id) or 0)
        return stop


def _id_of(frozen: FrozenTrial) -> str:
    """Return the id that the driver gave a stored trial, or "" if the trial never ran."""
    return str(frozen.user_attrs.get(views.TRIAL_ID, ""))


def _check_settings(study: Study, trials: int, steps_per_trial: int, rung_steps: Sequence[int], mode: str) -> None:
    """Raise one `InputError` that lists all settings that contradict each other or the study."""
    problems = []
    if trials < 1:
        problems.append(f"`trials` must be at least 1 (got {trials}).")
    if steps_per_trial < 1:
        problems.append(f"`steps_per_trial` must be at least 1 (got {steps_per_trial}).")
    rungs = list(rung_steps)
    if not rungs or rungs[0] < 1 or rungs[-1] != steps_per_trial or any(a >= b for a, b in itertools.pairwise(rungs)):
        problems.append(
            f"`rung_steps` must start at 1 or later, increase, and end at `steps_per_trial` = {steps_per_trial} "
            f"(got {rungs})."
        )
    direction = {"max": "MAXIMIZE", "min": "MINIMIZE"}.get(mode)
    if direction is None:
        problems.append(f"`mode` must be 'max' or 'min' (got {mode!r}).")
    elif study.direction.name != direction:
        problems.append(f"The study's direction must be {direction} for `mode` {mode!r} (got {study.direction.name}).")
    if problems:
        raise InputError("study-settings-invalid", " ".join(problems))
