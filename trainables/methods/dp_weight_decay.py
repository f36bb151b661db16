"""Weight decay before the clip, or decoupled in the update as the baseline that it replaces."""

from __future__ import annotations

from trainables.engine.augmentation import random_views
from trainables.engine.layout import Layout
from trainables.engine.step import Stages
from trainables.hyperparameters import DPWeightDecay


def stages(hyperparameters: DPWeightDecay, _layout: Layout) -> Stages:
    """DP-SGD with the decay where its mode says."""
    before, decoupled = decays(hyperparameters)
    return Stages(
        augmentation=random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity),
        weight_decay_before_clipping=before,
        decoupled_weight_decay=decoupled,
    )


def decays(hyperparameters: DPWeightDecay) -> tuple[float, float]:
    """(λ before the clip, λ decoupled), one of which is 0."""
    decay = hyperparameters.weight_decay
    return (decay, 0.0) if hyperparameters.weight_decay_mode == "before_clipping" else (0.0, decay)
