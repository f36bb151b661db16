"""DP-LSSGD (Wang et al. 2019): Laplacian smoothing of the noised gradient, which is post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters, Method

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.postprocess import Postprocess
    from trainables.engine.step import Stages

__all__ = ["DPLSSGD", "METHOD", "postprocess"]


@dataclass(frozen=True, kw_only=True)
class DPLSSGD(Hyperparameters):
    """Hyper-parameters of DP-LSSGD: the noised gradient is multiplied by the inverse of A_σ.

    Attributes:
        laplacian_sigma: σ; 0 is no smoothing.
        laplacian_scope: 'layer' smooths each parameter tensor by itself (the authors' code), 'model' the whole vector
            (Algorithm 1).
    """

    laplacian_sigma: float = 1.0
    laplacian_scope: str = "layer"


def postprocess(hyperparameters: DPLSSGD, layout: Layout) -> Postprocess:
    """Return the smoothing in its scope; the identity for σ = 0."""
    from trainables.engine.postprocess import Identity, LaplacianSmoothing

    if hyperparameters.laplacian_sigma == 0:
        return Identity()
    sizes = layout.sizes if hyperparameters.laplacian_scope == "layer" else (layout.dimension,)
    return LaplacianSmoothing(sigma=hyperparameters.laplacian_sigma, sizes=sizes)


def _changes(hyperparameters: DPLSSGD, layout: Layout) -> Stages:
    from trainables.engine.step import Stages

    return Stages(postprocess=postprocess(hyperparameters, layout))


METHOD = Method(DPLSSGD, _changes)
