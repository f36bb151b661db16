"""DPLIS (Wang et al. 2021): the loss is smoothed by public weight perturbations."""

from __future__ import annotations

from trainables.engine.augmentation import random_views
from trainables.engine.layout import Layout
from trainables.engine.objective import Objective, Plain, Smoothed
from trainables.engine.step import Stages
from trainables.hyperparameters import DPLIS
from trainables.promotion import Promotion


def stages(hyperparameters: DPLIS, _layout: Layout) -> Stages:
    """DP-SGD on the smoothed loss."""
    (_, first), *later = objectives(hyperparameters)
    return Stages(
        objective=first,
        later=tuple(later),
        augmentation=random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity),
    )


def objectives(hyperparameters: DPLIS) -> tuple[tuple[int, Objective], ...]:
    """The smoothed loss of each K, with the step from which it holds; one from step 0 on where K does not rise."""
    samples = hyperparameters.smoothing_samples
    if not isinstance(samples, Promotion):
        return ((0, _objective(hyperparameters, samples)),)
    return tuple(
        (start, _objective(hyperparameters, level))
        for start, level in zip(samples.from_step, samples.levels, strict=True)
    )


def _objective(hyperparameters: DPLIS, samples: int) -> Objective:
    """The smoothed loss; R = 0 with the mean (or with K = 1) is the plain one, at the cost of one pass and not of K."""
    mean = hyperparameters.smoothing_reduction == "mean" or samples == 1
    if hyperparameters.smoothing_radius == 0 and mean:
        return Plain()
    return Smoothed(
        radius=hyperparameters.smoothing_radius,
        samples=samples,
        reduction=hyperparameters.smoothing_reduction,
    )
