"""Random search.

A sealed search takes its randomness from its secret key. Other searches use Optuna's random sampler.
"""

from __future__ import annotations

import random

from optuna.samplers import BaseSampler, RandomSampler

from tuner.study.samplers.make import SamplerRequest
from tuner.study.samplers.prior import PriorSampler

__all__ = ["build"]


def build(request: SamplerRequest) -> BaseSampler:
    """Create the random sampler."""
    return PriorSampler(random.SystemRandom()) if request.secret else RandomSampler(seed=request.next_seed)
