"""Unimodal pruner of a whole search: several parameters at once, and a fallback where the score has several tops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optuna.pruners import BasePruner

from tuner.study.protocols import CurveModel, StudyPruner

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.unimodal.pruner import UnimodalPruner

__all__ = ["UnimodalPruners"]


class UnimodalPruners(BasePruner, StudyPruner):
    """Pruner that stops a trial when the pruner of any parameter does.

    Where a parameter's scores contradict the assumption of one top, its pruner is ignored and the fallback is asked.

    Args:
        pruners: one for each parameter, each with its share of the risk.
        fallback: asked instead of a pruner that finds more than one top.
        called: the name of the fallback, for people.

    Raises:
        ValueError: there is no pruner.
    """

    def __init__(self, pruners: Sequence[UnimodalPruner], fallback: BasePruner, *, called: str) -> None:
        if not pruners:
            raise ValueError("`pruners` must hold at least one pruner.")
        self._pruners, self._fallback, self._called = tuple(pruners), fallback, called

    @property
    def each(self) -> tuple[UnimodalPruner, ...]:
        """Pruner of every parameter."""
        return self._pruners

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return the pruner of every parameter."""
        return self._pruners

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether to stop the trial; before its first report, whether not to start it."""
        if any(pruner.prune(study, trial) for pruner in self._pruners if _holds(pruner, study)):
            return True
        # Asked only once: some pruners count how often they are asked.
        return not all(_holds(pruner, study) for pruner in self._pruners) and self._fallback.prune(study, trial)

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Return why `prune` has just stopped the trial, from scores and parameters alone."""
        for pruner in self._pruners:
            if _holds(pruner, study) and pruner.prune(study, trial):
                return pruner.why(study, trial)
        return f"the score has more than one top, and the pruner {self._called} stopped the trial"


def _holds(pruner: UnimodalPruner, study: Study) -> bool:
    """Return whether the assumption of one top holds; it does before anything is known."""
    believed = pruner.beliefs(study)
    return believed is None or believed.unimodal
