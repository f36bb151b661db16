"""Random search: Optuna's sampler, and in a sealed search one without a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from optuna.samplers import RandomSampler

from tuner.study.samplers.prior import PriorSampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from tuner.study.samplers.request import SamplerRequest

__all__ = ["build"]


def build(request: SamplerRequest) -> BaseSampler:
    """Create the sampler."""
    return PriorSampler(random.SystemRandom()) if request.secret else RandomSampler(seed=request.next_seed)
