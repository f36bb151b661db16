"""Composed method: Laplacian smoothing, DPLIS and weight decay together, each at its own stage."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.methods.dp_lssgd import DPLSSGD
from trainables.methods.dp_weight_decay import DPWeightDecay
from trainables.methods.dplis import DPLIS
from trainables.promotion import Promotion


@dataclass(frozen=True, kw_only=True)
class DPComposed(DPLSSGD, DPLIS, DPWeightDecay):
    """Hyper-parameters of all methods. Every method is off by default, so the defaults are DP-SGD."""

    laplacian_sigma: float = 0.0
    smoothing_radius: float = 0.0
    smoothing_samples: int | Promotion = 1
    weight_decay: float = 0.0


METHOD = DPComposed
