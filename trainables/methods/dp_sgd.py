"""DP-SGD (Abadi et al. 2016): no stage is changed; and augmentation, which every method may have (De et al. 2022)."""

from __future__ import annotations

from trainables.engine.augmentation import RandomViews
from trainables.engine.layout import Layout
from trainables.engine.step import Augmentation, Stages
from trainables.hyperparameters import DPSGD, Hyperparameters


def stages(hyperparameters: DPSGD, _layout: Layout) -> Stages:
    """The defaults."""
    return Stages(augmentation=augmentation(hyperparameters))


def augmentation(hyperparameters: Hyperparameters) -> Augmentation | None:
    """The random views of a sample; None where it is taken as it is."""
    kind = hyperparameters.augmentation
    if kind == "none":
        return None
    return RandomViews(
        crop=kind in ("crop", "crop_flip"),
        flip=kind in ("flip", "crop_flip"),
        copies=hyperparameters.augmentation_multiplicity,
    )
