"""A trial that some executor is running: what the driver remembers of it, and its way to and from the storage."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tuner.study import views
from tuner.study.rungs import scaled_rungs
from tuner.study.types import TrialShape, TrialState, TrialView

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

__all__ = ["Active", "new_id", "stored", "trial_of"]


@dataclass
class Active:
    """A trial on its way.

    Attributes:
        trial: Optuna's.
        id: ours.
        parameters: what it trains with.
        shape: what it takes, and where it reports.
        step: the last that it is known to have taken.
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
        """A stored trial again.

        Args:
            trial: as Optuna lets it be reported on.
            frozen: the same, as it is stored.
            mode: ``"max"`` or ``"min"``.
            rungs: the nominal ones.
        """
        view = views.view_of(frozen, mode=mode, steps_planned=rungs[-1])
        shape = TrialShape(steps=view.steps_planned, rungs=tuple(scaled_rungs(rungs, view.steps_planned)))
        return cls(trial, view.id, dict(view.parameters), shape, view.step, view.last_score, view.best_score)

    def view(self, state: TrialState = TrialState.RUNNING, reason: str = "") -> TrialView:
        """What may be shown of it."""
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
    """A stored trial, as Optuna lets it be reported on."""
    import optuna

    # Optuna has no public way from a stored trial back to one that can report; `ask` calls this constructor.
    return optuna.trial.Trial(study, frozen._trial_id)


def stored(study: Study, trial: Trial) -> FrozenTrial:
    """A trial as it is stored now."""
    return next(frozen for frozen in study.get_trials(deepcopy=False) if frozen.number == trial.number)


def new_id(number: int) -> str:
    """Our name for a trial. The tail keeps it unique in the ledger when a driver dies between two of its writes."""
    return f"{number:04d}-{uuid.uuid4().hex[:6]}"
