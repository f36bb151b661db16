"""Composed method: Laplacian smoothing, DPLIS and weight decay together; each changes a stage of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.hyperparameters import Method
from trainables.methods.dp_lssgd import DPLSSGD, postprocess
from trainables.methods.dp_weight_decay import DPWeightDecay, decays
from trainables.methods.dplis import DPLIS, objectives
from trainables.promotion import Promotion

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages

__all__ = ["METHOD", "DPComposed"]


@dataclass(frozen=True, kw_only=True)
class DPComposed(DPLSSGD, DPLIS, DPWeightDecay):
    """Hyper-parameters of all methods; each is off by default, so that the defaults are DP-SGD."""

    laplacian_sigma: float = 0.0
    smoothing_radius: float = 0.0
    smoothing_samples: int | Promotion = 1
    weight_decay: float = 0.0


def _changes(hyperparameters: DPComposed, layout: Layout) -> Stages:
    from trainables.engine.step import Stages

    before, decoupled = decays(hyperparameters)
    (_, first), *later = objectives(hyperparameters)
    return Stages(
        objective=first,
        later=tuple(later),
        weight_decay_before_clipping=before,
        postprocess=postprocess(hyperparameters, layout),
        decoupled_weight_decay=decoupled,
    )


METHOD = Method(DPComposed, _changes)
