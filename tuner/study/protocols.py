"""Protocols of samplers and pruners: questions of the driver that Optuna's own methods do not answer.

A sampler of ours inherits from Optuna's `BaseSampler` and from `StudySampler`, a pruner from `BasePruner` and from
`StudyPruner`. Each overrides the questions that it can answer. The defaults are for Optuna's own samplers and pruners.
Imports no Optuna.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.unimodal.inference.beliefs import Beliefs

__all__ = ["CurveModel", "StudyPruner", "StudySampler", "pruner_of", "sampler_of"]


class CurveModel(Protocol):
    """Model of the score along one searched parameter.

    Attributes:
        parameter: name of the parameter.
        scales: names of the parameters that multiply it.
    """

    parameter: str
    scales: tuple[str, ...]

    def beliefs(self, study: Study) -> Beliefs | None:
        """Return the conclusions from the trials of the study; None while the bounds of the parameter are unknown."""


@runtime_checkable
class StudySampler(Protocol):
    """Sampler that also says how the search should continue.

    Attributes:
        points: number of configurations that the sampler can propose; None if unlimited.
        draws_whole: whether a candidate is one draw. A candidate that was stored only in part is then rejected when the
            search resumes, because the missing values would come from another draw.
        wants_left: whether the sampler needs `tell_left`. Counting costs some queries of the ledger.
    """

    points: int | None = None
    draws_whole: bool = False
    wants_left: bool = False

    def tell_left(self, left: float | None) -> None:
        """Learn how many whole trials the budget still allows, including the next one; None if unknown."""
        return

    def waits(self, study: Study) -> bool:
        """Return whether to start no trial before a running one has reported more."""
        return False

    def is_over(self, study: Study) -> bool:
        """Return whether a complete trial is surely near the best."""
        return False

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the number of the likely best trial, and a lower bound on the probability that it is near the best."""
        return None

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials, the likely best one first."""
        return ()

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return one model for each parameter along which the score has one top."""
        return ()


@runtime_checkable
class StudyPruner(Protocol):
    """Pruner that also gives its reasons."""

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Return why `prune` has just stopped the trial, from scores and parameters alone; empty without a reason."""
        return ""

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return one model for each parameter along which the score has one top."""
        return ()


class _PlainSampler(StudySampler):
    """Default answers for a sampler of Optuna."""


class _PlainPruner(StudyPruner):
    """Default answers for a pruner of Optuna."""


def sampler_of(study: Study) -> StudySampler:
    """Return the sampler of a study, or default answers for a sampler of Optuna."""
    return study.sampler if isinstance(study.sampler, StudySampler) else _PlainSampler()


def pruner_of(study: Study) -> StudyPruner:
    """Return the pruner of a study, or default answers for a pruner of Optuna."""
    return study.pruner if isinstance(study.pruner, StudyPruner) else _PlainPruner()
