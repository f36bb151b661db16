"""Optuna's pruners, with resources counted in training steps."""

from __future__ import annotations

import optuna
from optuna.pruners import BasePruner

from tuner.errors import InputError
from tuner.study import names
from tuner.study.optuna_options import refused_options
from tuner.study.pruners.make import PrunerRequest, make_pruner
from tuner.study.unimodal.options import component

__all__ = ["build"]


def build(request: PrunerRequest) -> BasePruner:
    """Create one of Optuna's pruners from its name.

    The resource of successive halving and Hyperband is the number of training steps. By default, the minimum resource
    is the first rung and the maximum resource is the last rung.
    """
    settings, rungs = dict(request.options), request.rung_steps
    if rungs and request.canonical in ("successive_halving", "hyperband"):
        settings.setdefault("min_resource", rungs[0])
    if rungs and request.canonical == "hyperband":
        settings.setdefault("max_resource", rungs[-1])
    if request.canonical == "patient":
        settings["wrapped_pruner"] = _wrapped(settings.get("wrapped_pruner"), rungs)
    with refused_options("pruner", request.name, request.options):
        pruner: BasePruner = getattr(optuna.pruners, names.PRUNER_CLASSES[request.canonical])(**settings)
    return pruner


def _wrapped(inner: object, rung_steps: tuple[int, ...]) -> BasePruner | None:
    if inner is None:
        return None
    named = component(inner)
    if named is None:
        raise InputError(
            "option-invalid",
            f"`wrapped_pruner` must be a pruner's name, or a mapping with a name and options (got {inner!r}).",
        )
    return make_pruner(*named, rung_steps=rung_steps)
