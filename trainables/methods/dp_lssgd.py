"""DP-LSSGD (Wang et al. 2019): the noised gradient is smoothed, which is post-processing."""

from __future__ import annotations

from trainables.engine.augmentation import random_views
from trainables.engine.layout import Layout
from trainables.engine.postprocess import Identity, LaplacianSmoothing, Postprocess
from trainables.engine.step import Stages
from trainables.hyperparameters import DPLSSGD


def stages(hyperparameters: DPLSSGD, layout: Layout) -> Stages:
    """DP-SGD with Laplacian smoothing after the noise."""
    return Stages(
        augmentation=random_views(hyperparameters.augmentation, copies=hyperparameters.augmentation_multiplicity),
        postprocess=postprocess(hyperparameters, layout),
    )


def postprocess(hyperparameters: DPLSSGD, layout: Layout) -> Postprocess:
    """The smoothing in its scope; σ = 0 is none."""
    if hyperparameters.laplacian_sigma == 0:
        return Identity()
    sizes = layout.sizes if hyperparameters.laplacian_scope == "layer" else (layout.dimension,)
    return LaplacianSmoothing(sigma=hyperparameters.laplacian_sigma, sizes=sizes)
