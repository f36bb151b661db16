"""DPLIS (Wang et al. 2021): the loss is averaged over public random perturbations of the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters
from trainables.promotion import Promotion

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.objective import Objective
    from trainables.engine.step import Stages


@dataclass(frozen=True, kw_only=True)
class DPLIS(Hyperparameters):
    """Hyper-parameters of DPLIS, which averages the loss over K weight perturbations of strength R.

    Attributes:
        smoothing_radius: R; 0 is no perturbation.
        smoothing_samples: K, as one number or as levels that rise within the trial.
        smoothing_reduction: 'mean' is the paper's equation 6; 'sum' is the authors' code, which does not divide by K.
    """

    smoothing_radius: float = 10.0
    smoothing_samples: int | Promotion = 10
    smoothing_reduction: str = "mean"

    def stages(self, layout: Layout) -> Stages:
        """Return the stages with the smoothed loss of each level of K."""
        samples = self.smoothing_samples
        if isinstance(samples, Promotion):
            starts, levels = samples.from_step, samples.levels
        else:
            starts, levels = (0,), (samples,)
        objectives = tuple((start, self._objective(level)) for start, level in zip(starts, levels, strict=True))
        return replace(super().stages(layout), objectives=objectives)

    def _objective(self, samples: int) -> Objective:
        """Return the objective with K `samples`. If smoothing has no effect, return the plain loss, which is faster."""
        from trainables.engine.objective import Plain, Smoothed

        if self.smoothing_radius == 0 and (self.smoothing_reduction == "mean" or samples == 1):
            return Plain()
        return Smoothed(radius=self.smoothing_radius, samples=samples, reduction=self.smoothing_reduction)


METHOD = DPLIS
