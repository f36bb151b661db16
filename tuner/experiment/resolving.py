"""Default values of parameters that are missing in a file's search space."""

from __future__ import annotations

from dataclasses import MISSING, fields

from search_spaces import Domain, Fixed, Scalar, SearchSpace, method_parameters
from search_spaces.schedules import kind_of
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings
from trainables.methods import METHODS

__all__ = ["hyperparameter_defaults", "with_defaults"]


def with_defaults(space: SearchSpace, *, method: str) -> SearchSpace:
    """Return `space` with every missing parameter of the method added at its default value.

    Parameters of a learning-rate schedule are added only for the kinds of schedule that a trial may have.
    """
    named = dict(space.parameters)
    defaults = hyperparameter_defaults(method)
    kinds = named.get("schedule", Fixed(defaults["schedule"])).grid(1)
    left_out: dict[str, Domain] = {
        name: Fixed(value)
        for name, value in defaults.items()
        if name not in named and (kind_of(name) is None or kind_of(name) in kinds)
    }
    return SearchSpace.of(named | left_out, unimodal=space.unimodal)


def hyperparameter_defaults(method: str) -> dict[str, Scalar]:
    """Return the defaults of a method's hyper-parameters by name, without parameters that affect the budget."""
    settings = ScheduleSettings()
    values = {each.name: each.default for each in fields(METHODS[method]) if each.default is not MISSING}
    values["schedule"] = settings.kind
    values |= {key: getattr(settings, name) for key, (_, name) in SCHEDULE_KEYS.items()}
    return {name: values[name] for name, parameter in method_parameters(method).items() if not parameter.priced}
