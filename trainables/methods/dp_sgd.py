"""DP-SGD (Abadi et al. 2016): no stage is changed, save for the augmentation that every method may have."""

from __future__ import annotations

from trainables.engine.augmentation import random_views
from trainables.engine.layout import Layout
from trainables.engine.step import Stages
from trainables.hyperparameters import DPSGD


def stages(hyperparameters: DPSGD, _layout: Layout) -> Stages:
    """The defaults."""
    return Stages(
        augmentation=random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity)
    )
