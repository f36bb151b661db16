"""Creation of the sampler ``unimodal``, which contains one sampler for each unimodal parameter."""

from __future__ import annotations

from optuna.samplers import BaseSampler

from tuner.study.samplers.make import make_sampler
from tuner.study.samplers.request import SamplerRequest
from tuner.study.unimodal.options import DEFAULT_OTHERS, Along, checked_facts
from tuner.study.unimodal.sampler import UnimodalSampler, UnimodalSamplers

__all__ = ["build"]


def build(request: SamplerRequest) -> UnimodalSamplers:
    """Create the sampler."""
    options = dict(request.options)
    facts = checked_facts("sampler", options, request.unimodality)
    others = options.pop("others", DEFAULT_OTHERS)

    def one(along: Along, base: BaseSampler) -> UnimodalSampler:
        # The draws also depend on the trial's number, so a resumed sweep can use the same seed.
        return UnimodalSampler(along.name, base=base, seed=request.seed, **facts.arguments(along, options))

    base = make_sampler(others, seed=request.seed, trials_before=request.trials_before)
    return UnimodalSamplers(facts.parameters, base, one)
