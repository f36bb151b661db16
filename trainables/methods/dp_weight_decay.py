"""Weight decay: added to the gradients before the clip (the method), or applied in the update (the baseline)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages


@dataclass(frozen=True, kw_only=True)
class DPWeightDecay(Hyperparameters):
    """Hyper-parameters of weight decay, which acts before the clip or in the update.

    Attributes:
        weight_decay: λ.
        weight_decay_mode: 'before_clipping' adds λθ to each sample's gradient, 'decoupled' decays θ in the update.
    """

    weight_decay: float = 1e-4
    weight_decay_mode: str = "before_clipping"

    def stages(self, layout: Layout) -> Stages:
        """Return the stages with weight decay before the clip, or in the update."""
        stages = super().stages(layout)
        if self.weight_decay_mode == "before_clipping":
            return replace(stages, weight_decay_before_clipping=self.weight_decay)
        return replace(stages, decoupled_weight_decay=self.weight_decay)


METHOD = DPWeightDecay
