"""Weight decay before the clip, or decoupled from it in the update as the baseline that it replaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters, Method

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages

__all__ = ["METHOD", "DPWeightDecay", "decays"]


@dataclass(frozen=True, kw_only=True)
class DPWeightDecay(Hyperparameters):
    """Hyper-parameters of weight decay before clipping.

    Attributes:
        weight_decay: λ.
        weight_decay_mode: 'before_clipping' adds λθ to each sample's gradient, 'decoupled' decays θ in the update.
    """

    weight_decay: float = 1e-4
    weight_decay_mode: str = "before_clipping"


def decays(hyperparameters: DPWeightDecay) -> tuple[float, float]:
    """Return (λ before the clip, λ decoupled), one of which is 0."""
    decay = hyperparameters.weight_decay
    return (decay, 0.0) if hyperparameters.weight_decay_mode == "before_clipping" else (0.0, decay)


def _changes(hyperparameters: DPWeightDecay, _layout: Layout) -> Stages:
    from trainables.engine.step import Stages

    before, decoupled = decays(hyperparameters)
    return Stages(weight_decay_before_clipping=before, decoupled_weight_decay=decoupled)


METHOD = Method(DPWeightDecay, _changes)
