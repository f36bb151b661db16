"""Protocols of samplers and pruners: the driver's questions, besides Optuna's own methods.

A sampler of ours inherits from Optuna's `BaseSampler` and from `StudySampler`, a pruner from `BasePruner` and from
`StudyPruner`. Each overrides the questions that it can answer. The defaults are the answers of Optuna's own samplers
and pruners, for which `sampler_of` and `pruner_of` answer. Imports no Optuna.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.unimodal.inference.beliefs import Beliefs

__all__ = ["CurveModel", "StudyPruner", "StudySampler", "pruner_of", "sampler_of"]


class CurveModel(Protocol):
    """Model of the score along one searched parameter."""

    @property
    def parameter(self) -> str:
        """Name of the parameter."""
        ...

    @property
    def scales(self) -> tuple[str, ...]:
        """Names of the parameters that multiply it."""
        ...

    def beliefs(self, study: Study) -> Beliefs | None:
        """Return what follows from the study; None before the bounds of the parameter are known."""
        ...


@runtime_checkable
class StudySampler(Protocol):
    """Sampler that can say more than values.

    Attributes:
        points: number of configurations that it can propose; None where there is no end.
        draws_whole: whether a candidate is one draw. A candidate that was stored only in part is then rejected when the
            search resumes, because the rest would come from another draw.
        wants_left: whether it needs `tell_left`. Counting asks the ledger a few times.
    """

    points: int | None = None
    draws_whole: bool = False
    wants_left: bool = False

    def tell_left(self, left: float | None) -> None:
        """Learn how many whole trials the budget still allows, the next one included; None where that is unknown."""
        return

    def waits(self, study: Study) -> bool:
        """Return whether no trial should start before a running one has reported more."""
        return False

    def is_over(self, study: Study) -> bool:
        """Return whether a complete trial is surely near the best."""
        return False

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the number of the trial believed to be the best, and the least probability that it is near it."""
        return None

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials, the one believed to be the best first."""
        return ()

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return one model for each parameter along which the score has one top."""
        return ()


@runtime_checkable
class StudyPruner(Protocol):
    """Pruner that can give its reasons."""

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Return why `prune` has just stopped the trial, from scores and parameters alone; empty without a reason."""
        return ""

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return one model for each parameter along which the score has one top."""
        return ()


class _PlainSampler(StudySampler):
    """Answers for a sampler that knows only Optuna's methods."""


class _PlainPruner(StudyPruner):
    """Answers for a pruner that knows only Optuna's methods."""


def sampler_of(study: Study) -> StudySampler:
    """Return the sampler of a study, or default answers for a sampler of Optuna."""
    return study.sampler if isinstance(study.sampler, StudySampler) else _PlainSampler()


def pruner_of(study: Study) -> StudyPruner:
    """Return the pruner of a study, or default answers for a pruner of Optuna."""
    return study.pruner if isinstance(study.pruner, StudyPruner) else _PlainPruner()
