"""Optuna pruners by name, with resources counted in training steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner

from tuner.errors import InputError
from tuner.search import names

__all__ = ["make_pruner"]


def make_pruner(
    name: str, options: Mapping[str, object] | None = None, *, rung_steps: Sequence[int] = ()
) -> BasePruner:
    """A pruner by its name.

    Successive halving and Hyperband count their resource in training steps; unless the options say otherwise the
    least is the first rung and the most is the last, because nothing is reported in between.

    Args:
        name: one of `names.PRUNERS`, an alias (``asha``) or an Optuna class name.
        options: constructor options, checked against `names.PRUNERS`; ``wrapped_pruner`` is itself a name or
            ``{name: …, options}``.
        rung_steps: the steps at which trials report.

    Raises:
        tuner.errors.InputError: unknown name or option, or a value that Optuna refuses.
    """
    settings: dict[str, Any] = dict(options or {})
    problems = names.pruner_problems(name, settings)
    if problems:
        raise InputError("; ".join(problems))
    canonical = names.canonical_pruner(name) or name
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
    if isinstance(inner, str):
        return make_pruner(inner, rung_steps=rung_steps)
    if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
        options = {str(key): value for key, value in inner.items() if key != "name"}
        return make_pruner(inner["name"], options, rung_steps=rung_steps)
    raise InputError(f"wrapped_pruner must be a pruner's name or {{name: …, options}}, got {inner!r}")
