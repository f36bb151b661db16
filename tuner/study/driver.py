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

The driver answers its executor. Its parts are modules of their own, each used by those after it: `trial_shapes`,
`budget_room`, `candidates`, `live_trials` (start, pause and end of a trial), `rung_wise`, `reservations`, `new_trials`,
`paused_trials` and `interrupted_trials` (`reconcile`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.study import views
from tuner.study.best import best_score
from tuner.study.budget_room import BudgetRoom
from tuner.study.candidates import Candidates
from tuner.study.interrupted_trials import InterruptedTrials
from tuner.study.live_trials import NO_RESERVATION, NO_ROOM, FirstFailures, LiveTrials
from tuner.study.new_trials import NewTrials
from tuner.study.paused_trials import PausedTrials
from tuner.study.reservations import Reservations
from tuner.study.rung_wise import RungWise
from tuner.study.running_trial import RunningTrial, stored
from tuner.study.suggest import Space
from tuner.study.trial_shapes import TrialShapes
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

    from tuner.study.committed import Committed
    from tuner.study.pauses import Levels

__all__ = ["NO_RESERVATION", "NO_ROOM", "RAISED", "StudyDriver"]

_OVER = (StopReason.DONE, StopReason.BUDGET, StopReason.GRID, StopReason.FOUND)
"""Reasons that end a search, after which its committed run can start."""
RAISED = "its training raised an error, whose cause is in the operator's log"


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
            None if failures never change how the search ends.
        shape_of: function that returns the shape of a trial (its steps, rungs and mechanism) for its parameters. By
            default, all trials have `steps_per_trial` steps.
        cheapest: the cheapest possible shapes of a trial. If none of them fits the budget, no trial can start. Empty if
            all trials have the same shape.
        when_sure: what to do when the score of a complete trial is very probably near the best possible score. Only
            ``go_on`` works with every sampler.
        committed: the run that follows when the search is over, or None if no run follows.
        sole: whether the budget was planned for one trial. An interruption shortens this trial by what it loses.
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
        max_first_failures: int | None = 3,
        shape_of: Shape | None = None,
        cheapest: Sequence[TrialShape] = (),
        when_sure: WhenSure = "go_on",
        committed: Committed | None = None,
        sole: bool = False,
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
        self._committed = committed
        self._stop: Stop | None = None
        shapes = TrialShapes(rung_steps, shape_of=shape_of, cheapest=cheapest, committed=committed, levels=levels)
        room = BudgetRoom(budget, committed=None if committed is None else committed.shape.ask)
        earlier = views.read_trials(study, mode=mode, steps_planned=steps_per_trial)
        self._failures = failures = FirstFailures(max_first_failures, earlier)
        self._shapes = shapes
        self._candidates = candidates = Candidates(study, space, when_sure, shows_paused=levels is not None)
        self._live = live = LiveTrials(study, shapes, room, observers=observers, failures=failures, mode=mode)
        self._rung_wise: RungWise | None = None
        self._paused: PausedTrials | None = None
        if levels is not None:
            self._rung_wise = RungWise(study, levels, shapes, live, room, mode=mode, asks_pruner=asks_pruner)
            self._paused = PausedTrials(study, self._rung_wise, live, room, candidates, failures)
        self._reservations = Reservations(room, shapes, live, rung_wise=self._rung_wise, sole=sole)
        self._new = NewTrials(candidates, shapes, room, self._reservations, live, trials=trials)
        self._interrupted = InterruptedTrials(
            study, shapes, room, candidates, live, self._reservations, self._new, self._paused
        )

    def next(self) -> Suggestion | Wait | Stop:
        """Return the next action: run a trial whose steps are reserved, wait for a running trial, or stop."""
        decision = self._next()
        if isinstance(decision, Stop) and decision.reason in _OVER:
            decision = self._failures.end(decision)
        failed = isinstance(decision, Stop) and decision.reason is StopReason.ALL_FAILED
        return Wait() if failed and self._live.running else decision  # a running trial may still end well

    def _next(self) -> Suggestion | Wait | Stop:
        if self._stop is not None:
            return self._stop if self._paused is None else self._paused.complete_leader(self._stop)
        if (failing := self._failures.stop()) is not None:
            return self._failures.end(failing) if self._new.all_started and not self._interrupted else failing
        if self._interrupted:
            return self._interrupted.next() or self.next()
        if self._committed is not None and (run := self._committed.stored(self.study)) is not None:
            return Wait() if self._live.running else self._committed.over(run)
        new = self._new.next()
        if self._committed is not None and isinstance(new, Stop):
            return self._commit(self._committed, new)
        return new if self._paused is None or isinstance(new, Suggestion) else self._paused.promote_or_end(new)

    def stop(self, detail: str = "") -> None:
        """Stop the search. Running trials continue, but no further trial starts."""
        self._stop = Stop(StopReason.STOPPED, detail)

    def restarted(self, trial_id: str, why: str = "its worker was lost") -> bool:
        """Reserve the steps that a trial must repeat because its worker was lost, and return True.

        The trial restarts from its last checkpoint. If the steps do not fit the budget, end the trial as LOST, or pause
        it, and return False. The executor must then not restart the trial.
        """
        active = self._live.running[trial_id]
        if self._reservations.repeat(active, scored=active.scored):
            self._live.announce.lost(replace(active.view(), step=self._live.checkpoint_of(trial_id)), why)
            return True
        if self._paused is not None and self._paused.pause_again(active):
            self._live.announce.lost(active.view(TrialStatus.PAUSED), why)  # it may be promoted later
            return False
        self.finish(trial_id, outcome=TrialStatus.LOST, steps_taken=active.step, reason=NO_ROOM)
        return False

    @property
    def running(self) -> int:
        """Number of trials that an executor is running."""
        return len(self._live.running)

    def is_running(self, trial_id: str) -> bool:
        """Return whether this driver has started the trial and the trial has not ended."""
        return trial_id in self._live.running

    def is_committed(self, trial_id: str) -> bool:
        """Return whether a running trial is the committed run."""
        return self._live.running[trial_id].committed

    def shape_of_trial(self, trial_id: str) -> TrialShape:
        """Return the shape of a running trial (its steps, rungs and mechanism)."""
        return self._live.running[trial_id].shape

    def reserved_until(self, trial_id: str) -> int:
        """Return the step up to which a running trial has reserved its steps."""
        active = self._live.running[trial_id]
        return active.granted or active.shape.steps

    def step_of(self, trial_id: str) -> int:
        """Return the step of a running trial's last report, or of the checkpoint from which the trial resumed."""
        return self._live.running[trial_id].step

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> Decision:
        """Handle the metrics that a trial reports at a step, and decide whether the trial continues.

        At a rung, the score is stored in Optuna, and the pruner may stop the trial. If the score is missing or not
        finite, the decision is FAIL. After FAIL or PRUNE, the executor must call `finish`. After PAUSE, the trial is no
        longer running. If a restarted trial reports the same step again, Optuna keeps the first score.
        """
        active = self._live.running[trial_id]
        active.step, active.reported = max(active.step, step), max(active.reported, step)
        score = metrics.get(self.metric, math.nan)
        if not math.isfinite(score):
            found = "was not reported" if self.metric not in metrics else "is not a finite number"
            active.problem = f"the score {self.metric!r} {found} at step {step}"
            return Decision.FAIL
        decision = Decision.CONTINUE
        active.last_score = score
        active.best_score = best_score((active.best_score, score), mode=self.mode)
        planned = self._shapes.planned(active.parameters, committed=active.committed)
        nominal = self._shapes.nominal(active.shape, planned).get(step)
        if nominal is not None:
            if nominal not in stored(self.study, active.trial).intermediate_values:
                active.trial.report(score, nominal)
            # The pruner learns of a last score too, but a trial that has run to its end is complete.
            if self._is_pruned(active) and step < active.shape.steps:
                decision = Decision.PRUNE
                active.problem = self._candidates.why(active.trial)
            elif (
                not active.committed
                and nominal < self.rung_steps[-1]
                and (found := self._candidates.found_without(active.trial.number, nominal, score, mode=self.mode))
            ):
                decision = Decision.PRUNE
                active.problem = f"the search is over: {found}"
        self._live.announce.reported(active.view(), step, metrics)
        at_pause = active.granted <= step < active.shape.steps
        if self._paused is not None and decision is Decision.CONTINUE and at_pause:
            # It is promoted at once, at the earliest, when no new configuration can take its place.
            alone = not self._interrupted and self._stop is None and self._new.all_started
            decision = self._paused.pause(active, may_continue=alone)
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
        active = self._live.running[trial_id]
        active.step = steps_taken
        if outcome is TrialStatus.COMPLETE and active.last_score is None:
            outcome, reason = TrialStatus.FAILED, f"the score {self.metric!r} was never reported"
        if outcome in (TrialStatus.FAILED, TrialStatus.LOST):
            reason = reason or active.problem or "no reason was given"
        if outcome is TrialStatus.PRUNED:
            reason = active.problem or reason
        self._live.end(active, outcome, reason)

    def raised(self, trial_id: str) -> None:
        """End a trial whose training raised an error, as FAILED.

        A record may have caused the error. So the trial's step is that of its last report, the reason is always the
        same text, and the ledger charges all that the trial had reserved. None of them tells at which step it failed.
        """
        active = self._live.running[trial_id]
        active.step, active.forfeits = active.reported, True
        self._live.end(active, TrialStatus.FAILED, RAISED)

    def reconcile(self, find_checkpoint: FindCheckpoint | None = None) -> None:
        """Make the storage and the ledger consistent after an interruption. Repeated calls are safe.

        If only part of a trial's end was stored or announced, the rest of it is stored and announced now. Reservations
        of trials that ended or never started are settled. `next` then resumes interrupted trials from the checkpoints
        that `find_checkpoint` returns.
        """
        if find_checkpoint is not None:
            self._live.find_checkpoint = find_checkpoint
        self._interrupted.reconcile()

    def _is_pruned(self, active: RunningTrial) -> bool:
        if active.committed:  # it is compared with no other trial
            return False
        return active.trial.should_prune() if self._rung_wise is None else self._rung_wise.prunes(active)

    def _commit(self, committed: Committed, stop: Stop) -> Suggestion | Wait | Stop:
        """Start the committed run if the search is over because of `stop`.

        The run is stored first, and then starts like a trial that was interrupted before its first step. So it is never
        chosen twice.
        """
        if stop.reason not in _OVER:
            return stop
        if self._live.running:
            return Wait()
        trials = views.read_trials(self.study, mode=self.mode, steps_planned=self.steps_per_trial)
        chosen = committed.choose(trials)
        if chosen is None:
            return Stop(stop.reason, "no trial ended with a score, so no run was committed")
        self._interrupted.add(committed.create(self.study, chosen))
        return self._interrupted.next() or self.next()


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
