"""A search space: the domains of one method's parameters in file order, with the schedule's conditions."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces import common, schedules
from search_spaces.domains import UNIMODAL, Categorical, Domain, Fixed, Promoted, Scalar, Suggest, sample_domain
from search_spaces.methods import METHODS
from search_spaces.parameter import Parameter

__all__ = ["PARAMETERS", "SearchSpace", "default_space", "parameters_of"]

PARAMETERS: dict[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        *common.PARAMETERS,
        schedules.SCHEDULE,
        schedules.WARMUP,
        *schedules.CONDITIONAL,
        *(parameter for method in METHODS.values() for parameter in method),
        *common.PRICED,
    )
}
"""Every parameter by name."""

_SCALES: dict[str, tuple[str, ...]] = {"smoothing_radius": ("learning_rate", "noise_multiplier", "max_grad_norm")}
"""What a parameter is multiplied by where it acts: the perturbation's standard deviation is R times these three."""


def parameters_of(method: str) -> dict[str, Parameter]:
    """Return the parameters that ``method`` has, the priced ones included, by name.

    Raises:
        KeyError: there is no such method.
    """
    own = {parameter.name for parameter in METHODS[method]}
    foreign = {parameter.name for other in METHODS.values() for parameter in other} - own
    return {name: parameter for name, parameter in PARAMETERS.items() if name not in foreign}


def default_space(method: str) -> dict[str, object]:
    """Return, as it would stand in a file, what is searched when the file names nothing.

    Raises:
        KeyError: there is no such method.
    """
    return {name: "default" for name, parameter in parameters_of(method).items() if parameter.usual}


@dataclass(frozen=True)
class SearchSpace:
    """What is searched, in the order of the file.

    Attributes:
        parameters: name and domain of each; flat names, a schedule's own parameters after ``schedule``.
        conditions: conditional parameter → the kind of ``schedule`` it needs.
        unimodal: searched ranges along which the score is declared to have one top, in the order of the file.
    """

    parameters: tuple[tuple[str, Domain], ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    unimodal: tuple[str, ...] = ()

    @classmethod
    def of(cls, domains: Mapping[str, Domain], *, unimodal: Container[str] = ()) -> SearchSpace:
        """Return the space of these domains, a schedule's own parameters placed after it.

        Args:
            domains: domain of each parameter, by its flat name.
            unimodal: names of those that are declared unimodal.
        """
        ordered: dict[str, Domain] = {}
        for name, domain in domains.items():
            if schedules.kind_of(name) is None:
                ordered[name] = domain
            if name == "schedule":
                ordered |= {own: each for own, each in domains.items() if schedules.kind_of(own) is not None}
        conditions = tuple((name, kind) for name in ordered if (kind := schedules.kind_of(name)) is not None)
        return cls(tuple(ordered.items()), conditions, tuple(name for name in ordered if name in unimodal))

    @property
    def searched(self) -> tuple[str, ...]:
        """Names whose domain holds more than one value, conditional ones included; a promoted one has one plan."""
        return tuple(name for name, domain in self.parameters if not isinstance(domain, Fixed | Promoted))

    @property
    def promoted(self) -> dict[str, tuple[int, ...]]:
        """Name → levels of what rises within every trial."""
        return {name: domain.levels for name, domain in self.parameters if isinstance(domain, Promoted)}

    @property
    def free(self) -> tuple[str, ...]:
        """Searched names that cost the accountant nothing."""
        return tuple(name for name in self.searched if not PARAMETERS[name].priced)

    @property
    def priced(self) -> tuple[str, ...]:
        """Searched names on which the accountant's answer depends."""
        return tuple(name for name in self.searched if PARAMETERS[name].priced)

    def scales(self, name: str) -> tuple[str, ...]:
        """The searched parameters that a parameter is multiplied by: its values compare only where these are equal."""
        return tuple(each for each in _SCALES.get(name, ()) if each in self.searched)

    def sample(self, suggest: Suggest) -> dict[str, object]:
        """Return the flat parameters of one trial, in file order.

        Args:
            suggest: asked once for each searched parameter, in file order but for the unimodal ones, which come last:
                their sampler looks at all others. For a conditional one only when its schedule was chosen. Fixed
                values are filled in without asking, and so is the plan of a promoted one, as it stands in a file.
        """
        conditions = dict(self.conditions)
        chosen: dict[str, object] = {}
        for name, domain in sorted(self.parameters, key=lambda each: self._turn(each[0])):
            if name not in conditions or chosen.get("schedule") == conditions[name]:
                chosen[name] = sample_domain(domain, name, suggest)
        return {name: chosen[name] for name, _ in self.parameters if name in chosen}

    def _turn(self, name: str) -> int:
        """When a parameter is asked for: one that others scale comes after them, although they be unimodal too."""
        return 0 if name not in self.unimodal else 2 if self.scales(name) else 1

    def grid(self, points: int) -> dict[str, list[Scalar]]:
        """Return the values of each searched parameter on a grid, at most ``points`` for a range.

        A conditional parameter's values stand in it like any other's; whoever walks the grid takes their product only
        under the schedule they belong to (`conditions`).
        """
        return {name: domain.grid(points) for name, domain in self.parameters if name in self.searched}

    def to_spec(self) -> dict[str, Any]:
        """Return the form that stands in an experiment file: `parse_space` of it is this space."""
        conditions = dict(self.conditions)
        nested: dict[str, dict[str, Any]] = {}
        for name, domain in self.parameters:
            if name in conditions:
                nested.setdefault(conditions[name], {})[name.rpartition(".")[2]] = self._spec(name, domain)
        spec: dict[str, Any] = {}
        for name, domain in self.parameters:
            if name == "schedule":
                spec[name] = _schedule_spec(domain, nested)
            elif name == schedules.WARMUP.name:
                spec["warmup"] = self._spec(name, domain)
            elif name not in conditions:
                spec[name] = self._spec(name, domain)
        return spec

    def _spec(self, name: str, domain: Domain) -> object:
        spec = domain.to_spec()
        return {**spec, UNIMODAL: True} if isinstance(spec, dict) and name in self.unimodal else spec


def _schedule_spec(domain: Domain, nested: Mapping[str, Mapping[str, Any]]) -> object:
    def option(kind: Scalar) -> object:
        own = nested.get(str(kind))
        return {str(kind): dict(own)} if own else kind

    if isinstance(domain, Categorical):
        return {"choice": [option(kind) for kind in domain.options]}
    return option(domain.value) if isinstance(domain, Fixed) else domain.to_spec()
