"""A trial that an executor is running, and its storage in Optuna's study."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tuner.study import views
from tuner.study.rungs import scaled_rungs
from tuner.study.types import TrialShape, TrialStatus, TrialView

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

__all__ = ["RunningTrial", "new_trial_id", "stored", "trial_of"]


@dataclass
class RunningTrial:
    """A running trial as the driver remembers it.

    Attributes:
        trial: Optuna's trial.
        id: our name for it.
        parameters: flat parameters.
        shape: its steps, rungs and mechanism.
        step: the last step that it is known to have taken.
        last_score: its last score.
        best_score: the best of its scores.
        problem: why its last report could not be used, or why the pruner stopped it.
    """

    trial: Trial
    id: str
    parameters: dict[str, object]
    shape: TrialShape
    step: int = 0
    last_score: float | None = None
    best_score: float | None = None
    problem: str = ""

    @classmethod
    def of(cls, trial: Trial, frozen: FrozenTrial, *, mode: str, rungs: Sequence[int]) -> Self:
        """Restore a stored trial.

        Args:
            trial: Optuna's trial that can report.
            frozen: the same trial as stored.
            mode: ``"max"`` or ``"min"``.
            rungs: the nominal steps of the reports.
        """
        view = views.view_of(frozen, mode=mode, steps_planned=rungs[-1])
        shape = TrialShape(steps=view.steps_planned, rungs=tuple(scaled_rungs(rungs, view.steps_planned)))
        return cls(trial, view.id, dict(view.parameters), shape, view.step, view.last_score, view.best_score)

    def store_end(self, study: Study, outcome: TrialStatus, reason: str) -> None:
        """Store the outcome, the steps and the reason, then tell Optuna."""
        import optuna

        self.trial.set_user_attr(views.STEPS_TAKEN, self.step)
        self.trial.set_user_attr(views.REASON, reason)
        self.trial.set_user_attr(views.OUTCOME, outcome.value)  # last: its presence means that the others are written
        if outcome is TrialStatus.COMPLETE:
            study.tell(self.trial, self.last_score)
        else:
            states = optuna.trial.TrialState
            study.tell(self.trial, state=states.PRUNED if outcome is TrialStatus.PRUNED else states.FAIL)

    def view(self, state: TrialStatus = TrialStatus.RUNNING, reason: str = "") -> TrialView:
        """Return the public view of it."""
        return TrialView(
            id=self.id,
            number=self.trial.number,
            parameters=self.parameters,
            state=state,
            step=self.step,
            steps_planned=self.shape.steps,
            last_score=self.last_score,
            best_score=self.best_score,
            reason=reason,
        )


def trial_of(study: Study, frozen: FrozenTrial) -> Trial:
    """Return a stored trial as one that can report."""
    import optuna

    # Optuna has no public way from a stored trial back to one that can report; `ask` calls this constructor.
    return optuna.trial.Trial(study, frozen._trial_id)


def stored(study: Study, trial: Trial) -> FrozenTrial:
    """Return a trial as it is stored now."""
    return next(frozen for frozen in study.get_trials(deepcopy=False) if frozen.number == trial.number)


def new_trial_id(number: int) -> str:
    """Create our name for a trial. Its random end keeps it unique in the ledger after a crash between two writes."""
    return f"{number:04d}-{uuid.uuid4().hex[:6]}"
