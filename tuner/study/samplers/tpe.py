"""Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from optuna.samplers import TPESampler

from tuner.study.optuna_options import refused_options
from tuner.study.samplers.make import SamplerRequest

__all__ = ["build"]


def build(request: SamplerRequest) -> TPESampler:
    """Create the TPE sampler. The options `multivariate` and `group` are on by default.

    With conditional parameters, trials have different parameters. With `group`, the sampler can still model the
    parameters jointly.
    """
    with refused_options("sampler", request.name, request.options):
        return TPESampler(**{"group": True, "multivariate": True, "seed": request.next_seed, **request.options})
