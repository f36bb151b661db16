"""Running trials: their storage in Optuna's study, and the announcement of their events to observers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tuner.study import views
from tuner.study.rungs import scaled_rungs
from tuner.study.types import TrialShape, TrialStatus, TrialView

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from tuner.study.types import Observer

__all__ = ["Announcements", "RunningTrial", "new_trial_id", "stored", "trial_of"]

_ANNOUNCED = "announced:"
"""Prefix of the study attributes that mark trials whose end was announced to the observers."""


@dataclass
class RunningTrial:
    """State of a running trial that the driver keeps in memory.

    Attributes:
        step: step of the last report, or of the checkpoint from which the trial resumed.
        reported: step of the last report, 0 before the first.
        forfeits: whether all that the trial has reserved is charged at its end.
        granted: step up to which the trial's steps are reserved. 0 means its end.
        scored: step of the checkpoint that the trial does not score again when it starts. 0 if there is none.
        problem: why the last report was invalid, or why the pruner stopped the trial. Empty if neither happened.
        committed: whether it is the committed run. No pruner stops it.
    """

    trial: Trial
    id: str
    parameters: dict[str, object]
    shape: TrialShape
    step: int = 0
    last_score: float | None = None
    best_score: float | None = None
    problem: str = ""
    reported: int = 0
    forfeits: bool = False
    committed: bool = False
    granted: int = 0
    scored: int = 0

    @classmethod
    def of(cls, trial: Trial, frozen: FrozenTrial, *, mode: str, rungs: Sequence[int]) -> Self:
        """Restore a trial from its stored state `frozen`. `rungs` are the rungs of the longest trial."""
        view = views.view_of(frozen, mode=mode, steps_planned=rungs[-1])
        shape = TrialShape(steps=view.steps_planned, rungs=tuple(scaled_rungs(rungs, view.steps_planned)))
        return cls(
            trial,
            view.id,
            dict(view.parameters),
            shape,
            view.step,
            view.last_score,
            view.best_score,
            reported=view.step,
            # The outcome is written last. Without it the trial goes on, and may give back what it does not use.
            forfeits={views.FORFEITS, views.OUTCOME} <= frozen.user_attrs.keys(),
            committed=view.committed,
            granted=int(frozen.user_attrs.get(views.GRANTED, 0)),
        )

    def grant(self, until: int) -> None:
        """Store that the trial has reserved its steps up to `until`."""
        self.granted = until
        self.trial.set_user_attr(views.GRANTED, until)

    def store_end(self, study: Study, outcome: TrialStatus, reason: str) -> None:
        """Store the trial's steps, outcome and reason, then end the trial in Optuna."""
        import optuna

        self.trial.set_user_attr(views.STEPS_TAKEN, self.step)
        self.trial.set_user_attr(views.REASON, reason)
        if self.forfeits:
            self.trial.set_user_attr(views.FORFEITS, value=True)
        self.trial.set_user_attr(views.OUTCOME, outcome.value)  # written last: it shows that the others exist
        if outcome is TrialStatus.COMPLETE:
            study.tell(self.trial, self.last_score)
        else:
            states = optuna.trial.TrialState
            study.tell(self.trial, state=states.PRUNED if outcome is TrialStatus.PRUNED else states.FAIL)

    def view(self, state: TrialStatus = TrialStatus.RUNNING, reason: str = "") -> TrialView:
        """Return the trial as a `TrialView`."""
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
            committed=self.committed,
        )


def trial_of(study: Study, frozen: FrozenTrial) -> Trial:
    """Return Optuna's `Trial` for a stored trial. Unlike a stored trial, a `Trial` can report scores."""
    import optuna

    # Optuna has no public function for this. `Study.ask` calls the same constructor.
    return optuna.trial.Trial(study, frozen._trial_id)


def stored(study: Study, trial: Trial) -> FrozenTrial:
    """Return the stored state of a trial."""
    return next(frozen for frozen in study.get_trials(deepcopy=False) if frozen.number == trial.number)


def new_trial_id(number: int) -> str:
    """Return a new trial id. Random digits make the id unique in the ledger, even if `number` is used again."""
    return f"{number:04d}-{uuid.uuid4().hex[:6]}"


class Announcements:
    """Announcements of a study's events to its observers."""

    def __init__(self, study: Study, observers: Sequence[Observer]) -> None:
        self._study = study
        self._observers = tuple(observers)

    def started(self, view: TrialView) -> None:
        """Announce the start of a trial."""
        for observer in self._observers:
            observer.trial_started(view)

    def reported(self, view: TrialView, step: int, metrics: Mapping[str, float]) -> None:
        """Announce a report of a trial."""
        for observer in self._observers:
            observer.trial_reported(view, step, dict(metrics))

    def paused(self, view: TrialView) -> None:
        """Announce that a trial pauses."""
        for observer in self._observers:
            observer.trial_paused(view)

    def lost(self, view: TrialView, why: str) -> None:
        """Announce that a trial lost its worker and continues."""
        for observer in self._observers:
            observer.trial_lost(view, why)

    def finished(self, view: TrialView) -> None:
        """Announce the end of a trial, then mark it as announced.

        After a crash between these two actions, the resumed sweep announces the end again.
        """
        for observer in self._observers:
            observer.trial_finished(view)
        self._study.set_user_attr(_ANNOUNCED + view.id, value=True)

    def announced(self) -> frozenset[str]:
        """Return the ids of the trials whose end was announced."""
        marks = (name for name in self._study.user_attrs if name.startswith(_ANNOUNCED))
        return frozenset(mark.removeprefix(_ANNOUNCED) for mark in marks)
