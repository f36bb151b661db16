"""Protocols of samplers and pruners, with methods that the driver needs in addition to Optuna's methods.

Our samplers inherit from Optuna's `BaseSampler` and from `StudySampler`. Our pruners inherit from Optuna's `BasePruner`
and from `StudyPruner`. They override the methods that they support. For Optuna's own samplers and pruners, the
default methods are used. This module imports no Optuna.
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
        scales: names of other parameters that multiply this parameter. The model is a function of the product.
    """

    parameter: str
    scales: tuple[str, ...]

    def beliefs(self, study: Study) -> Beliefs | None:
        """Return the conclusions from the trials of the study, or None if the parameter's bounds are still unknown."""


@runtime_checkable
class StudySampler(Protocol):
    """Sampler that also decides when the search waits for reports and when it may end.

    Attributes:
        points: number of configurations that the sampler can propose, or None if the number is unlimited.
        draws_whole: whether all values of a candidate are drawn together. If so, a resumed search rejects a candidate
            whose values were not all stored, because the missing values would come from another draw.
    """

    points: int | None = None
    draws_whole: bool = False

    def waits(self, study: Study) -> bool:
        """Return whether the next trial must wait for further reports of running trials."""
        return False

    def is_over(self, study: Study) -> bool:
        """Return whether the search may end because a complete trial is near the optimum with high probability."""
        return False

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the number of the probably best trial, and a lower bound on its probability of being near the optimum.

        Return None if no such trial is known.
        """
        return None

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials, from the probably best to the probably worst."""
        return ()

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return one model for each unimodal parameter. The score is assumed to have one maximum along each of them."""
        return ()


@runtime_checkable
class StudyPruner(Protocol):
    """Pruner that also explains its decisions."""

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Return the reason why `prune` has just stopped the trial, or "" if there is no explanation.

        The reason may depend on scores and parameters only.
        """
        return ""

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return one model for each unimodal parameter. The score is assumed to have one maximum along each of them."""
        return ()


class _PlainSampler(StudySampler):
    """Default methods for a sampler of Optuna."""


class _PlainPruner(StudyPruner):
    """Default methods for a pruner of Optuna."""


def sampler_of(study: Study) -> StudySampler:
    """Return the sampler of a study, or an object with default methods if the sampler is Optuna's."""
    return study.sampler if isinstance(study.sampler, StudySampler) else _PlainSampler()


def pruner_of(study: Study) -> StudyPruner:
    """Return the pruner of a study, or an object with default methods if the pruner is Optuna's."""
    return study.pruner if isinstance(study.pruner, StudyPruner) else _PlainPruner()
