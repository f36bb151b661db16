"""Registry of the methods. Every module of this folder declares a method as `METHOD`. None of them imports torch."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, Final

from search_spaces import PARAMETERS
from search_spaces.spaces import OWN, can_be, is_own_method
from trainables.checks import near_name_hint
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings
from trainables.errors import HyperparameterError
from trainables.hyperparameters import PRICED, Hyperparameters
from trainables.own_method import OwnMethod
from trainables.promotion import Promotion

__all__ = ["METHODS", "STEP_METHODS", "from_parameters"]

METHODS: Final[Mapping[str, type[Hyperparameters]]] = {
    module.name: import_module(f"{__name__}.{module.name}").METHOD for module in pkgutil.iter_modules(__path__)
}
"""Method name → class of its hyper-parameters. The class also creates the stages of the method."""

STEP_METHODS: Final = {name: kind for name, kind in METHODS.items() if not (kind.on_release or kind.at_once)}
"""Methods that train by private steps on batches. The others train on a release, or perturb a minimum."""


_ADAM_PARAMETERS: Final = frozenset(
    name for name, each in PARAMETERS.items() if each.needs and each.needs[0] == "optimizer" and not each.of_trainable
)


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

    The keys of `parameters` are names of fields and keys of SCHEDULE_KEYS. The value of `schedule` is a kind of
    schedule. The value of a promoted parameter is a mapping for `Promotion.of`. If `parameters` has `optimizer` or
    `momentum`, the argument of that name is ignored.

    Raises:
        HyperparameterError: the method or a name is unknown, a name is in PRICED or of another optimizer, or a value is
            illegal.
    """
    if is_own_method(method):
        return _own_method(
            method,
            parameters,
            batch_size=batch_size,
            steps=steps,
            noise_multiplier=noise_multiplier,
            optimizer=optimizer,
            momentum=momentum,
        )
    if method not in METHODS:
        hint = near_name_hint(method, METHODS) or f" The methods are {', '.join(METHODS)}."
        raise HyperparameterError("method-unknown", f"There is no method {method!r}.{hint}")
    kind = METHODS[method]
    known = [each.name for each in fields(kind) if each.name not in PRICED]
    unknown = [name for name in parameters if name not in known and name not in SCHEDULE_KEYS]
    HyperparameterError.raise_any(_problem_of_name(name, method, known) for name in unknown)
    chosen = parameters.get("optimizer", optimizer)
    foreign = [name for name in parameters if name in _ADAM_PARAMETERS and not can_be(name, [chosen])]
    HyperparameterError.raise_any(
        ("optimizer-mismatch", f"`{name}` must not be set with the optimizer {chosen!r}.") for name in foreign
    )
    values: dict[str, Any] = {"optimizer": optimizer, "momentum": momentum}
    values |= {
        name: Promotion.of(value) if isinstance(value, Mapping) and _is_promotable(name) else value
        for name, value in parameters.items()
        if name in known
    }
    values |= {"schedule": _schedule(parameters)}
    return kind(**values, batch_size=batch_size, steps=steps, noise_multiplier=noise_multiplier)


def _own_method(method: str, parameters: Mapping[str, object], **others: Any) -> OwnMethod:  # noqa: ANN401 - of `from_parameters`
    """Return the hyper-parameters of a method of the user's own. Its own parameters have names such as ``own.keep``."""
    own = {name: value for name, value in parameters.items() if name.startswith(f"{OWN}.")}
    shared = from_parameters("dp_sgd", {name: value for name, value in parameters.items() if name not in own}, **others)
    values = {each.name: getattr(shared, each.name) for each in fields(shared)}
    return OwnMethod(**values, function=method, own={name.partition(".")[2]: value for name, value in own.items()})  # type: ignore[misc]


def _is_promotable(name: str) -> bool:
    return name in PARAMETERS and PARAMETERS[name].promotable


def _problem_of_name(name: str, method: str, known: list[str]) -> tuple[str, str]:
    if name in PRICED:
        return (
            "parameter-priced",
            f"ε depends on `{name}`, so a trial must not choose the value of `{name}`. Set the value in the experiment "
            "file, or as an argument of `dp_trainable`.",
        )
    names = [*known, *SCHEDULE_KEYS]
    hint = near_name_hint(name, names)
    return "parameter-unknown", f"{method} has no parameter {name!r}.{hint} Its parameters are {', '.join(names)}."


def _schedule(parameters: Mapping[str, object]) -> ScheduleSettings:
    kind = parameters.get("schedule", "constant")
    settings: dict[str, Any] = {"kind": kind}
    for key, (owner, name) in SCHEDULE_KEYS.items():
        if key not in parameters:
            continue
        if owner not in (None, kind):
            raise HyperparameterError(
                "schedule-mismatch", f"`{key}` can be set only with the schedule {owner!r} (got {kind!r})."
            )
        settings[name] = parameters[key]
    return ScheduleSettings(**settings)
