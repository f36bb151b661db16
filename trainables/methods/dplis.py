"""DPLIS (Wang et al. 2021): the loss is smoothed by public weight perturbations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters, Method
from trainables.promotion import Promotion

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.objective import Objective
    from trainables.engine.step import Stages

__all__ = ["DPLIS", "METHOD", "objectives"]


@dataclass(frozen=True, kw_only=True)
class DPLIS(Hyperparameters):
    """Hyper-parameters of DPLIS: the loss is smoothed over K weight perturbations of strength R.

    Attributes:
        smoothing_radius: R; 0 is no perturbation.
        smoothing_samples: K: one number, or levels that are reached at given steps.
        smoothing_reduction: 'mean' is the paper's equation 6; 'sum' is the authors' code, which never divides by K.
    """

    smoothing_radius: float = 10.0
    smoothing_samples: int | Promotion = 10
    smoothing_reduction: str = "mean"


def objectives(hyperparameters: DPLIS) -> tuple[tuple[int, Objective], ...]:
    """Return the smoothed loss of each K with its first step; only one, from step 0 on, where K is one number."""
    samples = hyperparameters.smoothing_samples
    if not isinstance(samples, Promotion):
        return ((0, _objective(hyperparameters, samples)),)
    return tuple(
        (start, _objective(hyperparameters, level))
        for start, level in zip(samples.from_step, samples.levels, strict=True)
    )


def _objective(hyperparameters: DPLIS, samples: int) -> Objective:
    """Return the smoothed loss. R = 0 with the mean (or K = 1) is the plain loss, which takes one pass and not K."""
    from trainables.engine.objective import Plain, Smoothed

    mean = hyperparameters.smoothing_reduction == "mean" or samples == 1
    if hyperparameters.smoothing_radius == 0 and mean:
        return Plain()
    return Smoothed(
        radius=hyperparameters.smoothing_radius,
        samples=samples,
        reduction=hyperparameters.smoothing_reduction,
    )


def _changes(hyperparameters: DPLIS, _layout: Layout) -> Stages:
    from trainables.engine.step import Stages

    (_, first), *later = objectives(hyperparameters)
    return Stages(objective=first, later=tuple(later))


METHOD = Method(DPLIS, _changes)
