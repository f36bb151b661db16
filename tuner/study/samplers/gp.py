"""Optuna's Gaussian process sampler."""

from __future__ import annotations

from optuna.samplers import GPSampler

from tuner.study.optuna_options import refused_options
from tuner.study.samplers.make import SamplerRequest

__all__ = ["build"]


def build(request: SamplerRequest) -> GPSampler:
    """Create the Gaussian process sampler."""
    with refused_options("sampler", request.name, request.options):
        return GPSampler(**{"warn_independent_sampling": False, "seed": request.next_seed, **request.options})
