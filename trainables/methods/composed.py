"""All stages at once: what one method changes at one stage, another leaves alone, so they compose."""

from __future__ import annotations

from trainables.engine.augmentation import random_views
from trainables.engine.layout import Layout
from trainables.engine.step import Stages
from trainables.hyperparameters import Composed
from trainables.methods.dp_lssgd import postprocess
from trainables.methods.dp_weight_decay import decays
from trainables.methods.dplis import objectives


def stages(hyperparameters: Composed, layout: Layout) -> Stages:
    """Smoothed loss, weight decay and Laplacian smoothing together."""
    before, decoupled = decays(hyperparameters)
    (_, first), *later = objectives(hyperparameters)
    return Stages(
        objective=first,
        later=tuple(later),
        augmentation=random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity),
        weight_decay_before_clipping=before,
        postprocess=postprocess(hyperparameters, layout),
        decoupled_weight_decay=decoupled,
    )
