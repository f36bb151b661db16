"""Unimodal pruning: one pruner for each parameter along which the score has one top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.study.pruners.make import make_pruner
from tuner.study.unimodal.inference.beliefs import Rules
from tuner.study.unimodal.options import DEFAULT_FALLBACK, check_options, component
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.pruners import UnimodalPruners

if TYPE_CHECKING:
    from tuner.study.pruners.request import PrunerRequest

__all__ = ["build"]


def build(request: PrunerRequest) -> UnimodalPruners:
    """Create the pruner.

    Raises:
        tuner.errors.InputError: an option is out of range, or there is no parameter along which the score has one top.
    """
    options, about = request.options, request.unimodality
    check_options("pruner", options)
    if about is None or not about.parameters:
        raise InputError(
            "unimodal-parameter-missing",
            "The pruner 'unimodal' needs a parameter along which the score has one top, but there is none. It cannot "
            "be an option of another pruner.",
        )
    # Each parameter is a chance to stop the best trial. Together they take no more risk than the options allow.
    share = len(about.parameters)
    rules = {name: value for name, value in options.items() if name not in ("tolerance", "fallback")} | {
        "full_from": about.full_from,
        "risk": options.get("risk", Rules.risk) / share,
        "runs": options.get("runs", Rules.runs) / share,
    }
    pruners = [
        UnimodalPruner(
            along.name,
            tolerance=options.get("tolerance", about.tolerance),
            last_step=about.last_step,
            scales=along.scales,
            **(rules if along.starts is None else {**rules, "starts": along.starts}),
        )
        for along in about.parameters
    ]
    called, settings = component(options.get("fallback", DEFAULT_FALLBACK)) or (DEFAULT_FALLBACK, {})
    return UnimodalPruners(pruners, make_pruner(called, settings, rung_steps=request.rung_steps), called=called)
