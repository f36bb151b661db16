"""Paused trials of a rung-wise search (`search.full_runs`): when a trial pauses, resumes, or ends.

`rung_wise.py` has the rule that decides which of them is promoted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.rung_wise import UNUSED
from tuner.study.running_trial import trial_of
from tuner.study.types import Decision, Stop, Suggestion, TrialStatus, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.budget_room import BudgetRoom
    from tuner.study.candidates import Candidates
    from tuner.study.live_trials import FirstFailures, LiveTrials
    from tuner.study.rung_wise import RungWise
    from tuner.study.running_trial import RunningTrial

__all__ = ["PausedTrials"]


class PausedTrials:
    """Pauses and promotions of a study's trials.

    Args:
        study: the Optuna study.
        rung_wise: rule of the promotions.
        live: trials that have started and not ended.
        room: remaining budget.
        candidates: configurations of the study, which explain why the pruner stopped a trial.
        failures: failures of the first trials.
    """

    def __init__(
        self,
        study: Study,
        rung_wise: RungWise,
        live: LiveTrials,
        room: BudgetRoom,
        candidates: Candidates,
        failures: FirstFailures,
    ) -> None:
        self._study = study
        self._rung_wise = rung_wise
        self._live = live
        self._room = room
        self._candidates = candidates
        self._failures = failures

    def pause(self, active: RunningTrial, *, may_continue: bool) -> Decision:
        """Pause a trial. With `may_continue`, promote it at once if it is the next to be promoted."""
        self._failures.went_well()
        self._live.pause(active)
        if may_continue and self._rung_wise.next() is active and self._rung_wise.promote(active):
            self._live.running[active.id] = active
            return Decision.CONTINUE
        self._live.announce.paused(active.view(TrialStatus.PAUSED))
        return Decision.PAUSE

    def pause_again(self, active: RunningTrial) -> bool:
        """Pause a trial that may not repeat the steps after its last report, and return True.

        Return False if its checkpoint is not that of its last report, or if that was its end: nothing follows it.
        """
        at_rest = 0 < active.reported == self._live.checkpoint_of(active.id)
        if not at_rest or active.reported >= active.shape.steps:
            return False
        active.grant(active.reported)
        self._live.pause(active)
        self._live.announce.paused(active.view(TrialStatus.PAUSED))
        return True

    def restore(self, frozen: FrozenTrial) -> bool:
        """Add a stored trial to the paused ones if it is paused, and return whether it is.

        It is if it has reported the end of what it had reserved, and has not ended.
        """
        attributes = frozen.user_attrs
        if views.PARAMETERS not in attributes or views.TRIAL_ID not in attributes:
            return False
        if frozen.state.name != "RUNNING" or views.OUTCOME in attributes:
            return False
        found = self._live.adopt(trial_of(self._study, frozen))
        if not (found.granted <= found.reported < found.shape.steps and self._room.holds(found.id)):
            return False
        self._live.paused[found.id] = found
        return True

    def leader_first(self, interrupted: Iterable[FrozenTrial]) -> list[FrozenTrial]:
        """Return interrupted trials, the leader first, so that it is the first to reserve the steps that it repeats."""
        return self._rung_wise.best_of(interrupted)

    def promote_or_end(self, otherwise: Wait | Stop) -> Suggestion | Wait | Stop:
        """Promote a paused trial. If none fits, end the search: the trials that are still paused end as PRUNED."""
        refused: set[str] = set()
        while self._live.paused:
            trial = self._rung_wise.next(refused)
            if trial is None:
                break
            if self._rung_wise.prunes(trial):
                trial.problem = self._candidates.why(trial.trial)
                why = trial.problem or f"the pruner stopped it at step {trial.step}"
                self._live.end(trial, TrialStatus.PRUNED, why)
            elif self._rung_wise.promote(trial):
                return self._live.resume(trial)
            else:
                refused.add(trial.id)
        if self._live.running:
            return Wait()
        for trial in tuple(self._live.paused.values()):
            self._live.end(trial, TrialStatus.PRUNED, UNUSED)
        return otherwise

    def complete_leader(self, stop: Stop) -> Suggestion | Wait | Stop:
        """Complete the leader of a search that was stopped. Other paused trials stay paused."""
        if self._live.running:
            return Wait()
        if self._rung_wise.is_complete:
            return stop
        for trial in self._rung_wise.completable():
            if self._rung_wise.promote(trial):
                return self._live.resume(trial)
        return stop
