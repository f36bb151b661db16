"""DPLIS (Wang et al. 2021): the loss is smoothed by public weight perturbations."""

from __future__ import annotations

from trainables.engine.augmentation import random_views
from trainables.engine.layout import Layout
from trainables.engine.objective import Objective, Plain, Smoothed
from trainables.engine.step import Stages
from trainables.hyperparameters import DPLIS


def stages(hyperparameters: DPLIS, _layout: Layout) -> Stages:
    """DP-SGD on the smoothed loss."""
    return Stages(
        objective=objective(hyperparameters),
        augmentation=random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity),
    )


def objective(hyperparameters: DPLIS) -> Objective:
    """The smoothed loss; R = 0 with the mean (or with K = 1) is the plain one, at the cost of one pass and not of K."""
    mean = hyperparameters.smoothing_reduction == "mean" or hyperparameters.smoothing_samples == 1
    if hyperparameters.smoothing_radius == 0 and mean:
        return Plain()
    return Smoothed(
        radius=hyperparameters.smoothing_radius,
        samples=hyperparameters.smoothing_samples,
        reduction=hyperparameters.smoothing_reduction,
    )
