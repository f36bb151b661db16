"""Creation of the pruner ``unimodal``, which contains one pruner for each unimodal parameter."""

from __future__ import annotations

from tuner.study.pruners.make import PrunerRequest, make_pruner
from tuner.study.unimodal.inference.beliefs import Rules
from tuner.study.unimodal.options import DEFAULT_FALLBACK, checked_facts, component
from tuner.study.unimodal.pruner import UnimodalPruner, UnimodalPruners

__all__ = ["build"]


def build(request: PrunerRequest) -> UnimodalPruners:
    """Create the pruner ``unimodal`` with its fallback pruner."""
    options = dict(request.options)
    facts = checked_facts("pruner", options, request.unimodality)
    name, settings = component(options.pop("fallback", DEFAULT_FALLBACK)) or (DEFAULT_FALLBACK, {})
    fallback = make_pruner(name, settings, rung_steps=request.rung_steps)
    # The pruner of each parameter may stop the best trial by mistake. The pruners share the allowed risk.
    share = len(facts.parameters)
    options["full_from"] = facts.full_from
    options["risk"] = options.get("risk", Rules.risk) / share
    pruners = [UnimodalPruner(along.name, **facts.arguments(along, options)) for along in facts.parameters]
    return UnimodalPruners(pruners, fallback, called=name)
