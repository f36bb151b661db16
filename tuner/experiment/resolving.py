"""Writing out what a file leaves out of its space: what is then searched, and the fixed value of everything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from search_spaces import Categorical, Domain, Fixed, Scalar, SearchSpace, default_space, parameters_of, parse_space
from search_spaces.schedules import kind_of
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings
from trainables.hyperparameters import HYPERPARAMETERS

__all__ = ["hyperparameter_defaults", "resolved_space"]


def resolved_space(raw: Mapping[str, object], *, method: str, trials: int) -> dict[str, Any]:
    """Return the space of a file with nothing left out: aliases and ``default`` resolved, every other value fixed.

    Args:
        raw: the mapping under ``search.space``. When it is empty, several trials search the method's default space;
            one trial is one configuration, with every value at its default.
        method: the training method.
        trials: trials of the search.

    Returns:
        What the file names, in its order, then what it does not name. Of a schedule's own parameters only those of the
        kinds that a trial may have. The resolved space of the result is the result.

    Raises:
        search_spaces.SpaceError: something is wrong with the space.
        KeyError: there is no such method.
    """
    space = parse_space(raw if raw or trials == 1 else default_space(method), method=method)
    return parse_space({**space.to_spec(), **_left_out(space, method)}, method=method).to_spec()


def hyperparameter_defaults(method: str) -> dict[str, Scalar]:
    """Return the value that each free hyper-parameter of ``method`` has when no trial sets it, by its flat name.

    Raises:
        KeyError: there is no such method.
    """
    settings = ScheduleSettings()
    values = {each.name: each.default for each in fields(HYPERPARAMETERS[method]) if each.default is not MISSING}
    values["schedule"] = settings.kind
    values |= {key: getattr(settings, name) for key, (_, name) in SCHEDULE_KEYS.items()}
    return {name: values[name] for name, parameter in parameters_of(method).items() if not parameter.priced}


def _left_out(space: SearchSpace, method: str) -> dict[str, Scalar]:
    defaults = hyperparameter_defaults(method)
    named = dict(space.parameters)
    kinds = _options(named.get("schedule", Fixed(defaults["schedule"])))
    return {
        name: value
        for name, value in defaults.items()
        if name not in named and (kind_of(name) is None or kind_of(name) in kinds)
    }


def _options(domain: Domain) -> tuple[Scalar, ...]:
    match domain:
        case Fixed(value=value):
            return (value,)
        case Categorical(options=options):
            return options
        case _:
            return ()
