"""DP-LSSGD (Wang et al. 2019): Laplacian smoothing of the noised gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages


@dataclass(frozen=True, kw_only=True)
class DPLSSGD(Hyperparameters):
    """Hyper-parameters of DP-LSSGD: the noised gradient is multiplied by the inverse of A_σ.

    Attributes:
        laplacian_sigma: σ; 0 is no smoothing.
        laplacian_scope: 'layer' smooths each parameter tensor separately (the authors' code). 'model' smooths the
            gradient of all parameters as one vector (Algorithm 1).
    """

    laplacian_sigma: float = 1.0
    laplacian_scope: str = "layer"

    def stages(self, layout: Layout) -> Stages:
        """Return the stages with Laplacian smoothing after the noise."""
        from trainables.engine.postprocess import LaplacianSmoothing

        sizes = layout.sizes if self.laplacian_scope == "layer" else (layout.dimension,)
        smoothing = LaplacianSmoothing(sigma=self.laplacian_sigma, sizes=sizes)
        gains = smoothing.variance_gains() if self.optimizer == "adam_corrected" and self.laplacian_sigma else ()
        return replace(super().stages(layout), postprocess=smoothing, variance_gains=gains)


METHOD = DPLSSGD
