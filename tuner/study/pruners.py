"""Optuna pruners by name, with resources counted in training steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner

from tuner.errors import InputError
from tuner.study import names
from tuner.study.unimodal_options import DEFAULT_FALLBACK, Unimodality, check_options, component

__all__ = ["make_pruner"]


def make_pruner(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    rung_steps: Sequence[int] = (),
    unimodality: Unimodality | None = None,
) -> BasePruner:
    """A pruner by its name.

    Successive halving and Hyperband count their resource in training steps; unless the options say otherwise the
    least is the first rung and the most is the last, because nothing is reported in between.

    Args:
        name: one of `names.PRUNERS`, an alias (``asha``) or an Optuna class name.
        options: constructor options, checked against `names.PRUNERS`; ``wrapped_pruner`` is itself a name or
            ``{name: …, options}``.
        rung_steps: the steps at which trials report.
        unimodality: needed by ``unimodal``.

    Raises:
        tuner.errors.InputError: unknown name or option, a value that is refused, or nothing is known of what is
            unimodal.
    """
    settings: dict[str, Any] = dict(options or {})
    problems = names.pruner_problems(name, settings)
    if problems:
        raise InputError("; ".join(problems))
    canonical = names.canonical_pruner(name) or name
    if canonical == "unimodal":
        return _unimodal(settings, rung_steps, unimodality)
    if rung_steps and canonical in ("successive_halving", "hyperband"):
        settings.setdefault("min_resource", rung_steps[0])
    if rung_steps and canonical == "hyperband":
        settings.setdefault("max_resource", rung_steps[-1])
    if canonical == "patient":
        settings["wrapped_pruner"] = _wrapped(settings.get("wrapped_pruner"), rung_steps)
    try:
        with warnings.catch_warnings():
            # PatientPruner and WilcoxonPruner are marked experimental; the choice is the user's.
            warnings.simplefilter("ignore", ExperimentalWarning)
            pruner: BasePruner = getattr(optuna.pruners, names.PRUNER_CLASSES[canonical])(**settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"pruner {name!r} refuses its options {dict(options or {})}: {error}") from error
    return pruner


def _wrapped(inner: object, rung_steps: Sequence[int]) -> BasePruner | None:
    if inner is None:
        return None
    named = component(inner)
    if named is None:
        raise InputError(f"wrapped_pruner must be a pruner's name or {{name: …, options}}, got {inner!r}")
    return make_pruner(*named, rung_steps=rung_steps)


def _unimodal(options: Mapping[str, Any], rung_steps: Sequence[int], unimodality: Unimodality | None) -> BasePruner:
    check_options("pruner", options)
    if unimodality is None or not unimodality.parameters:
        raise InputError(
            "pruner 'unimodal' needs a parameter along which the score has one top, got none. Give it to a search of "
            "its own, not to another pruner"
        )
    from tuner.study.unimodal.beliefs import Rules
    from tuner.study.unimodal_optuna import UnimodalPruner
    from tuner.study.unimodal_study import UnimodalPruners

    rules = {name: value for name, value in options.items() if name not in ("tolerance", "fallback")}
    # Each parameter is a chance to stop the best trial; together they take no more than was allowed.
    rules["full_from"] = unimodality.full_from
    for each in ("risk", "runs"):
        rules[each] = options.get(each, getattr(Rules, each)) / len(unimodality.parameters)
    pruners = [
        UnimodalPruner(
            along.name,
            tolerance=options.get("tolerance", unimodality.tolerance),
            last_step=unimodality.last_step,
            scales=along.scales,
            **(rules if along.starts is None else {**rules, "starts": along.starts}),
        )
        for along in unimodality.parameters
    ]
    called, settings = component(options.get("fallback", DEFAULT_FALLBACK)) or (DEFAULT_FALLBACK, {})
    return UnimodalPruners(pruners, make_pruner(called, settings, rung_steps=rung_steps), called=called)
