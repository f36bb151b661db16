"""Creation of the sampler ``unimodal``, which contains one sampler for each unimodal parameter."""

from __future__ import annotations

from tuner.study.samplers.make import SamplerRequest, make_sampler
from tuner.study.unimodal.options import DEFAULT_OTHERS, checked_facts
from tuner.study.unimodal.sampler import UnimodalSampler, UnimodalSamplers

__all__ = ["build"]


def build(request: SamplerRequest) -> UnimodalSamplers:
    """Create the sampler ``unimodal``. The sampler named by the option `others` proposes all other parameters."""
    options = dict(request.options)
    facts = checked_facts("sampler", options, request.unimodality)
    others = options.pop("others", DEFAULT_OTHERS)
    base = make_sampler(others, seed=request.seed, trials_before=request.trials_before)
    layers: list[UnimodalSampler] = []
    for along in facts.parameters:
        # A resumed sweep can use the same seed, because the draws also depend on the trial's number.
        base = UnimodalSampler(along.name, base=base, seed=request.seed, **facts.arguments(along, options))
        layers.append(base)
    return UnimodalSamplers(layers)
