"""The study driver: every decision of a sweep, over an Optuna study, with no executor in it.

The local and the Ray executor are two hands of this one head. Optuna's storage and the ledger are the only truth:
whatever dies, `reconcile` continues from them. The order of writes makes that possible:

    start    reserve in the ledger → ask Optuna → sample → ask its pruner → write our trial id
             where what a trial takes depends on its parameters: ask → sample → ask the pruner → reserve → our trial id
             a configuration that the pruner excludes: write why → tell Optuna; what was reserved serves the next
    report   Optuna's intermediate value → should_prune
    finish   write outcome, steps and reason → tell Optuna → settle in the ledger → tell the observers → mark it

A trial in the storage without our id never ran. Trials of different lengths report at the same fractions of their
steps, and Optuna is told the nominal step, so that pruners compare like with like.

One driver runs a study at a time, in one thread (`storage.exclusive` sees to the first).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.budget_room import Room
from tuner.study.candidates import REJECTED, TRIES, Drawing, excluded_because, is_waiting
from tuner.study.checks import check_settings
from tuner.study.rungs import scaled_rungs
from tuner.study.running_trial import Active, new_id, stored, trial_of
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
    TrialState,
    TrialView,
    Wait,
    WhenSure,
)

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

__all__ = ["NO_RESERVATION", "NO_ROOM", "REJECTED", "TRIES", "StudyDriver"]

NO_ROOM = "the steps to repeat after an interruption do not fit in the privacy budget"
NO_RESERVATION = "its reservation is gone from the ledger: it was settled while the trial stood as running"

_ANNOUNCED = "announced:"


class StudyDriver:
    """Asks, reports, prunes, tells and keeps the budget, for any executor.

    Args:
        study: an Optuna study (`storage.open_study`); its direction must be that of `mode`.
        space: what is searched.
        trials: how many trials the sweep has in total, those already in the storage included.
        steps_per_trial: training steps of a whole trial; of the longest where they differ.
        rung_steps: the steps after which a trial reports, rising, the last equal to `steps_per_trial`. One that is
            shorter reports at the same fractions, and these are the steps that Optuna is told.
        metric: the key of the score in the reported metrics.
        mode: ``"max"`` or ``"min"``.
        budget: the gate that reserves and settles, or None for a sweep without privacy.
        observers: told of every start, report and finish.
        max_first_failures: when this many trials have failed and none has ever ended otherwise, no more are started.
        shape_of: what a trial takes, by its parameters; None for `steps_per_trial` steps of the only mechanism.
        cheapest: shapes of which one fits whenever any does; empty where all trials have one shape.
        when_sure: what follows when a complete trial is surely near the best; other than ``go_on`` only with a sampler
            that can tell.

    Raises:
        tuner.errors.InputError: the numbers above contradict each other.
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
    ) -> None:
        check_settings(study, trials, steps_per_trial, rung_steps, mode)
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
        self._room = Room(budget)
        self._drawing = Drawing(study, space, when_sure)
        self._full = False  # no configuration that was drawn fitted; until something is given back none is drawn
        self._observers = tuple(observers)
        self._max_first_failures = max_first_failures
        self._active: dict[str, Active] = {}
        self._interrupted: deque[FrozenTrial] = deque()
        self._find_checkpoint: FindCheckpoint = _no_checkpoint
        self._stop: Stop | None = None
        self._failures = 0
        self._ended_well = any(t.state.name in ("COMPLETE", "PRUNED") for t in study.get_trials(deepcopy=False))

    # -- starting --------------------------------------------------------------------------------------------------

    def next(self) -> Suggestion | Wait | Stop:
        """What to do with a free slot: run a trial (its steps are reserved), wait for a running one, or stop."""
        if self._stop is not None:
            return self._stop
        if not self._ended_well and self._failures >= self._max_first_failures:
            return Stop(StopReason.FAILING, f"the first {self._failures} trials all failed, so no more are started")
        if self._interrupted:
            return self._continue_interrupted()
        asked, started = self._drawing.counts()
        if started >= self.trials:
            return Stop(StopReason.DONE)
        if self._drawing.is_exhausted():
            return Stop(StopReason.GRID, f"all {asked} points of the grid have been tried")
        if self._active and self._drawing.waits():
            return Wait()
        if found := self._drawing.found():  # what a running trial says at its next rung may still change that
            return Wait() if self._active else Stop(StopReason.FOUND, found)
        return self._draw(started) if self._cheapest or not self._room.is_limited else self._ask(started)

    def stop(self, detail: str = "") -> None:
        """Start no further trial; those that run go on. `next` answers Stop(reason "stopped") from now on."""
        self._stop = Stop(StopReason.STOPPED, detail)

    def restarted(self, trial_id: str) -> bool:
        """A running trial lost its worker and begins again from its last checkpoint: reserve what it will repeat.

        Returns:
            False when the repeated steps do not fit; the trial is then finished as FAILED and must not go on.
        """
        active = self._active[trial_id]
        if self._room.extend(trial_id, active.shape.remaining(self._find_checkpoint(trial_id) or 0)):
            return True
        self.finish(trial_id, outcome=TrialState.FAILED, steps_taken=active.step, reason=NO_ROOM)
        return False

    # -- while trials run ------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many trials are with an executor."""
        return len(self._active)

    def is_running(self, trial_id: str) -> bool:
        """Whether the trial was started here and has not been finished."""
        return trial_id in self._active

    def shape_of_trial(self, trial_id: str) -> TrialShape:
        """What a running trial takes in all, and where it reports."""
        return self._active[trial_id].shape

    def step_of(self, trial_id: str) -> int:
        """The last step that a running trial is known to have taken."""
        return self._active[trial_id].step

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> Decision:
        """A trial's scores at its own `step`; at a rung they go to Optuna and its pruner is asked.

        A step that was reported before (a trial continued from its checkpoint reports it again) keeps its first value.

        Returns:
            CONTINUE, PRUNE, or FAIL when the score is missing or not finite. The executor then calls `finish`.
        """
        active = self._active[trial_id]
        active.step = max(active.step, step)
        score = metrics.get(self.metric, math.nan)
        if not math.isfinite(score):
            found = "was not reported" if self.metric not in metrics else "is not a finite number"
            active.problem = f"the score {self.metric!r} {found} at step {step}"
            return Decision.FAIL
        decision = Decision.CONTINUE
        active.last_score = score
        active.best_score = views.better([s for s in (active.best_score, score) if s is not None], self.mode)
        nominal = scaled_rungs(self.rung_steps, active.shape.steps).get(step)
        if nominal is not None:
            if nominal not in stored(self.study, active.trial).intermediate_values:
                active.trial.report(score, nominal)
            if active.trial.should_prune():
                decision = Decision.PRUNE
                active.problem = self._drawing.why(active.trial)
            elif nominal < self.rung_steps[-1] and (found := self._found_without(active.trial.number, nominal, score)):
                decision = Decision.PRUNE
                active.problem = f"the search is over: {found}"
        view = active.view()
        for observer in self._observers:
            observer.trial_reported(view, step, dict(metrics))
        return decision

    def finish(self, trial_id: str, *, outcome: TrialState, steps_taken: int, reason: str = "") -> None:
        """End a trial: its outcome is stored, Optuna is told, and what it did not use returns to the budget.

        Args:
            trial_id: a running trial.
            outcome: COMPLETE, PRUNED or FAILED; COMPLETE without a finite score becomes FAILED.
            steps_taken: steps that the trial's model holds; never more than were leased.
            reason: shown to analysts, so it holds nothing that depends on records but by scores. A pruner's own goes
                before it.
        """
        active = self._active[trial_id]
        active.step = steps_taken
        if outcome is TrialState.COMPLETE and active.last_score is None:
            outcome, reason = TrialState.FAILED, f"the score {self.metric!r} was never reported"
        if outcome is TrialState.FAILED:
            reason = reason or active.problem or "no reason was given"
        if outcome is TrialState.PRUNED:
            reason = active.problem or reason
        self._close(active, outcome, reason)

    # -- after an interruption -------------------------------------------------------------------------------------

    def reconcile(self, find_checkpoint: FindCheckpoint | None = None) -> None:
        """Make the storage and the ledger agree after whatever happened, and queue the trials that were cut off.

        Trials that stand as RUNNING and are not running here are handed out first by `next`, from their checkpoint
        when `find_checkpoint` knows one. Finishing that was begun is completed, and told to the observers when it may
        not have been; reservations of trials that never came to be, or that ended, are settled. Safe to call again.
        """
        if find_checkpoint is not None:
            self._find_checkpoint = find_checkpoint
        outstanding = self._room.outstanding()
        self._full = False
        self._interrupted.clear()
        announced = self.study.user_attrs
        known = set(self._active)
        for frozen in self.study.get_trials(deepcopy=False):
            trial_id = str(frozen.user_attrs.get(views.TRIAL_ID, ""))
            if trial_id in self._active or is_waiting(frozen):  # Optuna's next answer takes what waits
                continue
            known.add(trial_id)
            if frozen.state.is_finished():
                if trial_id in outstanding:
                    self._room.settle(trial_id, int(frozen.user_attrs.get(views.STEPS_TAKEN, 0)))
                if trial_id and _ANNOUNCED + trial_id not in announced:
                    self._announce(views.view_of(frozen, mode=self.mode, steps_planned=self.steps_per_trial))
            elif views.OUTCOME in frozen.user_attrs:
                self._finish_begun(frozen)
            elif views.REJECTED in frozen.user_attrs or self._drawing.is_half(frozen):
                if trial_id in outstanding:
                    self._room.settle(trial_id, 0)
                self._drawing.reject(trial_of(self.study, frozen), excluded_because(frozen))
            else:
                self._interrupted.append(frozen)
        for trial_id in sorted(set(outstanding) - known):
            self._room.settle(trial_id, 0)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _found_without(self, number: int, nominal: int, score: float) -> str:
        """In words, that the best is found and a run need not go on; empty where it is to.

        What is found is a configuration: a run that is ahead of all others at its rung may be the best model.
        """
        others = [t.intermediate_values for t in self.study.get_trials(deepcopy=False) if t.number != number]
        leads = score == views.better([score, *(each[nominal] for each in others if nominal in each)], self.mode)
        return "" if leads else self._drawing.found()

    def _ask(self, started: int) -> Suggestion | Wait | Stop:
        """A new trial, all of which have one shape: nothing is asked of Optuna unless it fits."""
        left, trial_id = self._left(started), new_id(started)
        if not self._room.reserve(trial_id, self._shape_of({}).ask):
            return self._no_room(f"a trial of {self.steps_per_trial} steps no longer fits in the privacy budget")
        for trial, parameters in self._drawing.configurations(left):  # the first is taken
            trial.set_user_attr(views.TRIAL_ID, trial_id)
            return self._start(trial, trial_id, parameters, done=0)
        self._room.settle(trial_id, 0)
        return self.next()

    def _draw(self, started: int) -> Suggestion | Wait | Stop:
        """A new trial, whose parameters decide what it takes: configurations are drawn until one fits."""
        if self._full or not self._room.holds_any(self._cheapest):
            return self._no_room("not even the cheapest configuration still fits in the privacy budget")
        for number, (trial, parameters) in enumerate(self._drawing.configurations(self._left(started)), start=1):
            suggestion = self._start_if_it_fits(trial, parameters)
            if suggestion is not None:
                return suggestion
            if number == TRIES:
                self._full = True
                return self._no_room(f"none of {TRIES} configurations that were drawn still fits in the privacy budget")
        return self.next()

    def _left(self, started: int) -> float | None:
        """Whole trials that the budget and their number still allow, the next one included, if anyone asks."""
        if not self._drawing.needs_left:
            return None
        shapes = self._cheapest or ((self._shape_of({}),) if self._room.is_limited else ())
        return float(self._room.whole(shapes, at_most=self.trials - started))

    def _no_room(self, detail: str) -> Wait | Stop:
        # A running trial may be pruned or fail and give its unspent steps back; only when none runs is it over.
        return Wait() if self._active else Stop(StopReason.BUDGET, detail)

    def _start_if_it_fits(self, trial: Trial, parameters: dict[str, object]) -> Suggestion | None:
        """Start a trial that has no id yet; where it does not fit it is told as failed, and is no trial."""
        trial_id = new_id(trial.number)
        if self._room.reserve(trial_id, self._shape_of(parameters).ask):
            trial.set_user_attr(views.TRIAL_ID, trial_id)
            return self._start(trial, trial_id, parameters, done=0)
        self._drawing.reject(trial)
        return None

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
        # None fits and nothing that runs could make room: end one, whose refund may let the others go on.
        frozen = self._interrupted.popleft()
        trial_id = str(frozen.user_attrs.get(views.TRIAL_ID, ""))
        trial = trial_of(self.study, frozen)
        if not trial_id:
            trial_id = new_id(frozen.number)
            trial.set_user_attr(views.TRIAL_ID, trial_id)
        held = self._room.holds(trial_id)
        active = self._adopt(trial)
        self._close(active, TrialState.FAILED, NO_ROOM if held else NO_RESERVATION, settle=held)
        return self.next()

    def _continue(self, frozen: FrozenTrial) -> Suggestion | None:
        """Start a trial that was cut off, or answer None when its steps do not fit now."""
        trial_id = str(frozen.user_attrs.get(views.TRIAL_ID, ""))
        trial = trial_of(self.study, frozen)
        parameters = self.space.sample(OptunaSuggest(trial))
        if not trial_id and (excluded := self._drawing.excluded(trial)):
            self._drawing.reject(trial, excluded)
            self._interrupted.remove(frozen)
            return None
        if not trial_id and self._cheapest:  # the driver died while it drew it: nothing of it ever ran
            suggestion = self._start_if_it_fits(trial, parameters)
            if suggestion is None:
                self._interrupted.remove(frozen)
            return suggestion
        shape = self._shape_of(parameters)
        if not trial_id:  # the driver died between Optuna's ask and our id: nothing of it ever ran
            trial_id = new_id(frozen.number)
            if not self._room.reserve(trial_id, shape.ask):
                return None
            trial.set_user_attr(views.TRIAL_ID, trial_id)
            return self._start(trial, trial_id, parameters, done=0)
        if not self._room.holds(trial_id):
            return None  # settled by someone else: it can never lease again
        done = self._find_checkpoint(trial_id) or 0
        if not self._room.extend(trial_id, shape.remaining(done)):
            return None
        return self._start(trial, trial_id, parameters, done=done)

    def _start(self, trial: Trial, trial_id: str, parameters: dict[str, object], *, done: int) -> Suggestion:
        trial.set_user_attr(views.PARAMETERS, parameters)
        shape = self._shape_of(parameters)
        if shape.rungs != self.rung_steps:
            own = scaled_rungs(self.rung_steps, shape.steps)
            trial.set_user_attr(views.RUNGS, [[nominal, step] for step, nominal in own.items()])
        active = self._adopt(trial)
        active.parameters, active.shape = parameters, shape
        active.step = done
        self._active[trial_id] = active
        view = active.view()
        for observer in self._observers:
            observer.trial_started(view)
        return Suggestion(trial_id, trial.number, dict(parameters), shape)

    def _finish_begun(self, frozen: FrozenTrial) -> None:
        active = self._adopt(trial_of(self.study, frozen))
        active.step = int(frozen.user_attrs.get(views.STEPS_TAKEN, 0))
        self._close(active, TrialState(frozen.user_attrs[views.OUTCOME]), str(frozen.user_attrs.get(views.REASON, "")))

    def _close(self, active: Active, outcome: TrialState, reason: str, *, settle: bool = True) -> None:
        import optuna

        trial = active.trial
        trial.set_user_attr(views.STEPS_TAKEN, active.step)
        trial.set_user_attr(views.REASON, reason)
        trial.set_user_attr(views.OUTCOME, outcome.value)  # last: its presence says that the others are written
        if outcome is TrialState.COMPLETE:
            self.study.tell(trial, active.last_score)
        elif outcome is TrialState.PRUNED:
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        if settle:
            self._room.settle(active.id, active.step)
        self._full = False
        self._active.pop(active.id, None)
        if outcome is not TrialState.FAILED:
            self._ended_well = True
        elif reason not in (NO_ROOM, NO_RESERVATION):  # the budget's doing, not the training's
            self._failures += 1
        self._announce(active.view(outcome, reason))

    def _adopt(self, trial: Trial) -> Active:
        return Active.of(trial, stored(self.study, trial), mode=self.mode, rungs=self.rung_steps)

    def _announce(self, view: TrialView) -> None:
        """Tell the observers of an end; at least once, for a crash before the mark makes `reconcile` tell it again."""
        for observer in self._observers:
            observer.trial_finished(view)
        self.study.set_user_attr(_ANNOUNCED + view.id, value=True)


def _no_checkpoint(_trial_id: str) -> int | None:
    return None
