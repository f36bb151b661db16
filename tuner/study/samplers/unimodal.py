"""Unimodal search: one sampler for each parameter along which the score has one top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.study.samplers.make import make_sampler
from tuner.study.unimodal.options import DEFAULT_OTHERS, Along, check_options
from tuner.study.unimodal.sampler import UnimodalSampler
from tuner.study.unimodal.samplers import UnimodalSamplers

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from tuner.study.samplers.request import SamplerRequest

__all__ = ["build"]


def build(request: SamplerRequest) -> UnimodalSamplers:
    """Create the sampler.

    Raises:
        tuner.errors.InputError: an option is out of range, or there is no parameter along which the score has one top.
    """
    options, about = request.options, request.unimodality
    check_options("sampler", options)
    if about is None or not about.parameters:
        raise InputError(
            "unimodal-parameter-missing",
            "The sampler 'unimodal' needs a parameter along which the score has one top, but there is none.",
        )
    rules = {name: value for name, value in options.items() if name not in ("tolerance", "others")}

    def one(along: Along, base: BaseSampler) -> UnimodalSampler:
        own = rules if along.starts is None else {**rules, "starts": along.starts}
        return UnimodalSampler(
            along.name,
            tolerance=options.get("tolerance", about.tolerance),
            last_step=about.last_step,
            scales=along.scales,
            base=base,
            seed=request.seed,  # its draws depend on the trial's number too, and are the same after a resume
            **own,
        )

    others = make_sampler(options.get("others", DEFAULT_OTHERS), seed=request.seed, trials_before=request.trials_before)
    return UnimodalSamplers(about.parameters, others, one)
