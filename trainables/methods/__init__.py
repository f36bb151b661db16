"""Registry of the methods: every module of this folder is a method, and declares it as `METHOD`. No torch."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, Final

from search_spaces import PARAMETERS
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings
from trainables.errors import HyperparameterError
from trainables.hyperparameters import PRICED, Hyperparameters, Method
from trainables.promotion import Promotion

__all__ = ["METHODS", "from_parameters"]

METHODS: Final[Mapping[str, Method]] = {
    module.name: import_module(f"{__name__}.{module.name}").METHOD for module in pkgutil.iter_modules(__path__)
}
"""Method name → its hyper-parameters and stages."""


def from_parameters(
    method: str,
    parameters: Mapping[str, object],
    *,
    batch_size: int,
    steps: int,
    noise_multiplier: float,
    optimizer: str = "sgd",
    momentum: float = 0.0,
) -> Hyperparameters:
    """Return the hyper-parameters of one trial from its flat dictionary.

    Args:
        method: a key of METHODS.
        parameters: values of the trial: field names, `schedule` with the name of its kind, and that kind's own keys
            (SCHEDULE_KEYS); `smoothing_samples` is a number, or a mapping as `Promotion.of` takes it. An `optimizer` or
            `momentum` here takes precedence over the argument of that name.
        batch_size: of the whole search.
        steps: of the trial.
        noise_multiplier: of the whole search.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD.

    Raises:
        HyperparameterError: the method or a name is unknown, a name is priced, or a value is illegal.
    """
    if method not in METHODS:
        names = ", ".join(METHODS)
        raise HyperparameterError(
            "method-unknown", f"There is no method {method!r}.{_nearest(method, METHODS)} The methods are {names}."
        )
    kind = METHODS[method].hyperparameters
    known = [each.name for each in fields(kind) if each.name not in PRICED]
    unknown = [name for name in parameters if name not in known and name not in SCHEDULE_KEYS]
    if unknown:
        raise HyperparameterError.of([_problem_of_name(name, method, known) for name in unknown])
    values: dict[str, Any] = {"optimizer": optimizer, "momentum": momentum}
    values |= {
        name: Promotion.of(value) if isinstance(value, Mapping) and _is_promotable(name) else value
        for name, value in parameters.items()
        if name in known
    }
    values |= {"schedule": _schedule(parameters)}
    return kind(**values, batch_size=batch_size, steps=steps, noise_multiplier=noise_multiplier)


def _is_promotable(name: str) -> bool:
    return name in PARAMETERS and PARAMETERS[name].promotable


def _problem_of_name(name: str, method: str, known: list[str]) -> tuple[str, str]:
    if name in PRICED:
        return "parameter-priced", f"`{name}` is priced: the whole search has one. Set it in the experiment file."
    names = [*known, *SCHEDULE_KEYS]
    hint = _nearest(name, names)
    return "parameter-unknown", f"{method} has no parameter {name!r}.{hint} It has {', '.join(names)}."


def _schedule(parameters: Mapping[str, object]) -> ScheduleSettings:
    kind = parameters.get("schedule", "constant")
    if isinstance(kind, ScheduleSettings):
        return kind
    settings: dict[str, Any] = {"kind": kind}
    for key, (owner, name) in SCHEDULE_KEYS.items():
        if key not in parameters:
            continue
        if owner not in (None, kind):
            raise HyperparameterError(
                "schedule-mismatch", f"`{key}` belongs to the schedule {owner!r}, but the schedule is {kind!r}."
            )
        settings[name] = parameters[key]
    return ScheduleSettings(**settings)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
