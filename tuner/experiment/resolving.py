"""Default values of parameters that are missing in a file's search space."""

from __future__ import annotations

from dataclasses import MISSING, fields

from search_spaces import PARAMETERS, Domain, Fixed, Scalar, SearchSpace, method_parameters
from search_spaces.common import AVERAGED, CHOSEN
from search_spaces.spaces import can_be, owner_of
from trainables.engine.schedules import SCHEDULE_KEYS, ScheduleSettings
from trainables.hyperparameters import Hyperparameters
from trainables.methods import METHODS
from tuner.experiment.sections import TrainableSection

__all__ = ["hyperparameter_defaults", "with_defaults"]


def with_defaults(space: SearchSpace, *, method: str) -> SearchSpace:
    """Return `space` with every missing parameter of the method added at its default value.

    Parameters of a schedule or an optimizer are added only if a trial may have that schedule or optimizer. Those that
    the section `trainable` has for all trials are not added.
    """
    named = dict(space.parameters)
    defaults = hyperparameter_defaults(method)
    usual = {"schedule": Fixed(ScheduleSettings().kind), "optimizer": Fixed(space.optimizer)}
    left_out: dict[str, Domain] = {
        name: Fixed(value)
        for name, value in defaults.items()
        if name not in named and not PARAMETERS[name].of_trainable
        if (owner := owner_of(name)) is None or can_be(name, named.get(owner, usual[owner]).grid(1))
    }
    return SearchSpace.of(named | left_out, unimodal=space.unimodal, optimizer=space.optimizer)


def hyperparameter_defaults(method: str) -> dict[str, Scalar]:
    """Return the defaults of a method's hyper-parameters by name, without parameters that affect the budget."""
    settings = ScheduleSettings()
    kind = METHODS.get(method, Hyperparameters)  # a method of the user's own has what every method has
    values = {each.name: each.default for each in fields(kind) if each.default is not MISSING}
    values["schedule"] = settings.kind
    values["activation"] = TrainableSection.model_fields["activation"].default
    values |= {key: getattr(settings, name) for key, (_, name) in SCHEDULE_KEYS.items()}
    if not kind.on_release:
        values |= {"ema_decay": AVERAGED, "extrapolation": CHOSEN}  # the class has the papers' last weights
    return {name: values[name] for name, parameter in method_parameters(method).items() if not parameter.priced}
