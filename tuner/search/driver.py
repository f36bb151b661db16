"""The study driver: every decision of a sweep, over an Optuna study, with no executor in it.

The local and the Ray executor are two hands of this one head. Optuna's storage and the ledger are the only truth:
whatever dies, `reconcile` continues from them. The order of writes makes that possible:

    start    reserve in the ledger → ask Optuna → write our trial id → sample
    report   Optuna's intermediate value → should_prune
    finish   write outcome, steps and reason → tell Optuna → settle in the ledger → tell the observers → mark it

One driver runs a study at a time, in one thread (`storage.exclusive` sees to the first).
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.errors import BudgetRefusedError
from tuner.search import views
from tuner.search.checks import check_settings
from tuner.search.suggest import OptunaSuggest, Space
from tuner.search.types import (
    BudgetGate,
    Checkpoint,
    Decision,
    FindCheckpoint,
    Observer,
    Stop,
    StopReason,
    Suggestion,
    TrialState,
    TrialView,
    Wait,
)

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

__all__ = ["StudyDriver"]

NO_ROOM = "the steps to repeat after an interruption do not fit in the privacy budget"
_ANNOUNCED = "announced:"
NO_RESERVATION = "its reservation is gone from the ledger: it was settled while the trial stood as running"


@dataclass
class _Active:
    """A trial that some executor is running."""

    trial: Trial
    id: str
    parameters: dict[str, object]
    step: int = 0
    last_score: float | None = None
    best_score: float | None = None
    problem: str = ""


class StudyDriver:
    """Asks, reports, prunes, tells and keeps the budget, for any executor.

    Args:
        study: an Optuna study (`storage.open_study`); its direction must be that of `mode`.
        space: what is searched.
        trials: how many trials the sweep has in total, those already in the storage included.
        steps_per_trial: training steps of a whole trial; what is reserved for each.
        rung_steps: the steps after which a trial reports, rising, the last equal to `steps_per_trial`.
        metric: the key of the score in the reported metrics.
        mode: ``"max"`` or ``"min"``.
        budget: the gate that reserves and settles, or None for a sweep without privacy.
        observers: told of every start, report and finish.
        max_first_failures: when this many trials have failed and none has ever ended otherwise, no more are started.

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
    ) -> None:
        check_settings(study, trials, steps_per_trial, rung_steps, mode)
        self.study = study
        self.space = space
        self.trials = trials
        self.steps_per_trial = steps_per_trial
        self.rung_steps = tuple(rung_steps)
        self.metric = metric
        self.mode = mode
        self._budget = budget
        self._observers = tuple(observers)
        self._max_first_failures = max_first_failures
        self._active: dict[str, _Active] = {}
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
        started = len(self.study.get_trials(deepcopy=False))
        if started >= self.trials:
            return Stop(StopReason.DONE)
        if started >= getattr(self.study.sampler, "grid_size", math.inf):
            return Stop(StopReason.GRID, f"all {started} points of the grid have been tried")
        trial_id = _new_id(started)
        if not self._reserve(trial_id, self.steps_per_trial):
            return self._no_room()
        trial = self.study.ask()
        trial.set_user_attr(views.TRIAL_ID, trial_id)
        return self._start(trial, trial_id, None)

    def stop(self, detail: str = "") -> None:
        """Start no further trial; those that run go on. `next` answers Stop(reason "stopped") from now on."""
        self._stop = Stop(StopReason.STOPPED, detail)

    def restarted(self, trial_id: str) -> bool:
        """A running trial lost its worker and begins again from its last checkpoint: reserve what it will repeat.

        Returns:
            False when the repeated steps do not fit; the trial is then finished as FAILED and must not go on.
        """
        active = self._active[trial_id]
        checkpoint = self._find_checkpoint(trial_id)
        if self._reserve_remaining(trial_id, checkpoint.step if checkpoint else 0):
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

    def step_of(self, trial_id: str) -> int:
        """The last step that a running trial is known to have taken."""
        return self._active[trial_id].step

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> Decision:
        """A trial's scores at `step`; at a rung they go to Optuna and its pruner is asked.

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
        if step in self.rung_steps:
            if step not in self._frozen(active.trial).intermediate_values:
                active.trial.report(score, step)
            if active.trial.should_prune():
                decision = Decision.PRUNE
        view = self._view(active)
        for observer in self._observers:
            observer.trial_reported(view, step, dict(metrics))
        return decision

    def finish(self, trial_id: str, *, outcome: TrialState, steps_taken: int, reason: str = "") -> None:
        """End a trial: its outcome is stored, Optuna is told, and what it did not use returns to the budget.

        Args:
            trial_id: a running trial.
            outcome: COMPLETE, PRUNED or FAILED; COMPLETE without a finite score becomes FAILED.
            steps_taken: steps that the trial's model holds; never more than were leased.
            reason: shown to analysts, so it holds nothing that depends on records.
        """
        active = self._active[trial_id]
        active.step = steps_taken
        if outcome is TrialState.COMPLETE and active.last_score is None:
            outcome, reason = TrialState.FAILED, f"the score {self.metric!r} was never reported"
        if outcome is TrialState.FAILED:
            reason = reason or active.problem or "no reason was given"
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
        outstanding = self._outstanding()
        self._interrupted.clear()
        announced = self.study.user_attrs
        known = set(self._active)
        for frozen in self.study.get_trials(deepcopy=False):
            trial_id = str(frozen.user_attrs.get(views.TRIAL_ID, ""))
            if trial_id in self._active:
                continue
            known.add(trial_id)
            if frozen.state.is_finished():
                if trial_id in outstanding:
                    self._settle(trial_id, int(frozen.user_attrs.get(views.STEPS_TAKEN, 0)))
                if trial_id and _ANNOUNCED + trial_id not in announced:
                    self._announce(views.view_of(frozen, mode=self.mode, steps_planned=self.steps_per_trial))
            elif views.OUTCOME in frozen.user_attrs:
                self._finish_begun(frozen)
            else:
                self._interrupted.append(frozen)
        for trial_id in sorted(set(outstanding) - known):
            self._settle(trial_id, 0)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _continue_interrupted(self) -> Suggestion | Wait | Stop:
        for frozen in tuple(self._interrupted):
            suggestion = self._continue(frozen)
            if suggestion is not None:
                self._interrupted.remove(frozen)
                return suggestion
        if self._active:
            return Wait()
        # None fits and nothing that runs could make room: end one, whose refund may let the others go on.
        frozen = self._interrupted.popleft()
        trial_id = str(frozen.user_attrs.get(views.TRIAL_ID, ""))
        trial = self._trial(frozen)
        if not trial_id:
            trial_id = _new_id(frozen.number)
            trial.set_user_attr(views.TRIAL_ID, trial_id)
        held = self._budget is None or trial_id in self._outstanding()
        active = self._adopt(trial, self._frozen(trial))
        self._close(active, TrialState.FAILED, NO_ROOM if held else NO_RESERVATION, settle=held)
        return self.next()

    def _continue(self, frozen: FrozenTrial) -> Suggestion | None:
        """Start a trial that was cut off, or answer None when its steps do not fit now."""
        trial_id = str(frozen.user_attrs.get(views.TRIAL_ID, ""))
        if not trial_id:  # the driver died between Optuna's ask and our id: nothing of it ever ran
            trial_id = _new_id(frozen.number)
            if not self._reserve(trial_id, self.steps_per_trial):
                return None
            trial = self._trial(frozen)
            trial.set_user_attr(views.TRIAL_ID, trial_id)
            return self._start(trial, trial_id, None)
        if self._budget is not None and trial_id not in self._outstanding():
            return None  # settled by someone else: it can never lease again
        checkpoint = self._find_checkpoint(trial_id)
        if not self._reserve_remaining(trial_id, checkpoint.step if checkpoint else 0):
            return None
        return self._start(self._trial(frozen), trial_id, checkpoint)

    def _start(self, trial: Trial, trial_id: str, checkpoint: Checkpoint | None) -> Suggestion:
        parameters = self.space.sample(OptunaSuggest(trial))
        trial.set_user_attr(views.PARAMETERS, parameters)
        active = self._adopt(trial, self._frozen(trial))
        active.parameters = parameters
        active.step = checkpoint.step if checkpoint else 0
        self._active[trial_id] = active
        view = self._view(active)
        for observer in self._observers:
            observer.trial_started(view)
        return Suggestion(trial_id, trial.number, dict(parameters), checkpoint.path if checkpoint else None)

    def _finish_begun(self, frozen: FrozenTrial) -> None:
        active = self._adopt(self._trial(frozen), frozen)
        active.step = int(frozen.user_attrs.get(views.STEPS_TAKEN, 0))
        self._close(active, TrialState(frozen.user_attrs[views.OUTCOME]), str(frozen.user_attrs.get(views.REASON, "")))

    def _close(self, active: _Active, outcome: TrialState, reason: str, *, settle: bool = True) -> None:
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
            self._settle(active.id, active.step)
        self._active.pop(active.id, None)
        if outcome is not TrialState.FAILED:
            self._ended_well = True
        elif reason not in (NO_ROOM, NO_RESERVATION):  # the budget's doing, not the training's
            self._failures += 1
        self._announce(self._view(active, outcome, reason))

    def _announce(self, view: TrialView) -> None:
        """Tell the observers of an end; at least once, for a crash before the mark makes `reconcile` tell it again."""
        for observer in self._observers:
            observer.trial_finished(view)
        self.study.set_user_attr(_ANNOUNCED + view.id, value=True)

    def _adopt(self, trial: Trial, frozen: FrozenTrial) -> _Active:
        view = views.view_of(frozen, mode=self.mode, steps_planned=self.steps_per_trial)
        return _Active(trial, view.id, dict(view.parameters), view.step, view.last_score, view.best_score)

    def _view(self, active: _Active, state: TrialState = TrialState.RUNNING, reason: str = "") -> TrialView:
        return TrialView(
            id=active.id,
            number=active.trial.number,
            parameters=active.parameters,
            state=state,
            step=active.step,
            steps_planned=self.steps_per_trial,
            last_score=active.last_score,
            best_score=active.best_score,
            reason=reason,
        )

    def _trial(self, frozen: FrozenTrial) -> Trial:
        import optuna

        # Optuna has no public way from a stored trial back to one that can report; `ask` calls this constructor.
        return optuna.trial.Trial(self.study, frozen._trial_id)

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return next(t for t in self.study.get_trials(deepcopy=False) if t.number == trial.number)

    # -- the budget ------------------------------------------------------------------------------------------------

    def _no_room(self) -> Wait | Stop:
        # A running trial may be pruned or fail and give its unspent steps back; only when none runs is it over.
        if self._active:
            return Wait()
        return Stop(StopReason.BUDGET, f"a trial of {self.steps_per_trial} steps no longer fits in the privacy budget")

    def _reserve(self, trial_id: str, steps: int) -> bool:
        if self._budget is None:
            return True
        if not self._budget.fits(steps):
            return False
        try:
            self._budget.reserve(trial_id, steps)
        except BudgetRefusedError:  # another process took the room between the two calls
            return False
        return True

    def _reserve_remaining(self, trial_id: str, step: int) -> bool:
        """Extend a reservation so that the trial can go from `step` to its end; what it repeats is paid again."""
        extra = self.steps_per_trial - step - self._outstanding().get(trial_id, 0)
        return self._budget is None or extra <= 0 or self._reserve(trial_id, extra)

    def _settle(self, trial_id: str, steps_taken: int) -> None:
        if self._budget is not None:
            self._budget.settle(trial_id, steps_taken)

    def _outstanding(self) -> Mapping[str, int]:
        return {} if self._budget is None else self._budget.outstanding()


def _new_id(number: int) -> str:
    # The tail keeps an id unique in the ledger when a driver died between reserving and asking.
    return f"{number:04d}-{uuid.uuid4().hex[:6]}"


def _no_checkpoint(_trial_id: str) -> Checkpoint | None:
    return None
