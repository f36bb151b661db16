"""Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna.samplers import TPESampler

from tuner.study.optuna_options import refused_options

if TYPE_CHECKING:
    from tuner.study.samplers.request import SamplerRequest

__all__ = ["build"]


def build(request: SamplerRequest) -> TPESampler:
    """Create the sampler, by default multivariate and grouped.

    Conditional parameters change the space from trial to trial; a grouped sampler still models it jointly.
    """
    with refused_options("sampler", request.name, request.options):
        return TPESampler(**{"group": True, "multivariate": True, "seed": request.next_seed, **request.options})
