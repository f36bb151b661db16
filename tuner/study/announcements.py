"""Events of trials: the driver tells its observers, and marks each end as told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.study.types import Observer, TrialView

__all__ = ["Announcements"]

_ANNOUNCED = "announced:"


class Announcements:
    """The observers of a study.

    Args:
        study: keeps the marks.
        observers: told in this order.
    """

    def __init__(self, study: Study, observers: Sequence[Observer]) -> None:
        self._study = study
        self._observers = tuple(observers)

    def started(self, view: TrialView) -> None:
        """Tell the observers of a start."""
        for observer in self._observers:
            observer.trial_started(view)

    def reported(self, view: TrialView, step: int, metrics: Mapping[str, float]) -> None:
        """Tell the observers of a report."""
        for observer in self._observers:
            observer.trial_reported(view, step, dict(metrics))

    def finished(self, view: TrialView) -> None:
        """Tell the observers of an end, at least once: after a crash before the mark they are told again."""
        for observer in self._observers:
            observer.trial_finished(view)
        self._study.set_user_attr(_ANNOUNCED + view.id, value=True)

    def announced(self) -> frozenset[str]:
        """Return the ids of the trials whose end was announced."""
        marks = (name for name in self._study.user_attrs if name.startswith(_ANNOUNCED))
        return frozenset(mark.removeprefix(_ANNOUNCED) for mark in marks)
