"""Search space: the domain of each parameter, and the conditions under which a trial has the parameter."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces import common, schedules
from search_spaces.domains import UNIMODAL, Categorical, Domain, Fixed, Promoted, Scalar, Suggest, sample_domain
from search_spaces.methods import METHODS
from search_spaces.parameter import Parameter

__all__ = ["DIVIDES", "PARAMETERS", "SearchSpace", "default_space", "method_parameters"]

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
"""Every parameter of every method, by name."""

_SCALES: dict[str, tuple[str, ...]] = {
    "smoothing_radius": ("learning_rate", "noise_multiplier", "max_grad_norm", "batch_size")
}
"""Parameter → parameters that scale its effect; those in `DIVIDES` divide it. DPLIS perturbs by R · η · σ · C / b."""

DIVIDES = frozenset({"batch_size"})
"""Parameters that divide the effect of those that they scale."""


def method_parameters(method: str) -> dict[str, Parameter]:
    """Return the parameters of ``method`` by name, including shared ones. Raise KeyError if ``method`` is unknown."""
    own = {parameter.name for parameter in METHODS[method]}
    foreign = {parameter.name for other in METHODS.values() for parameter in other} - own
    return {name: parameter for name, parameter in PARAMETERS.items() if name not in foreign}


def default_space(method: str) -> dict[str, object]:
    """Return the default search space of a method, in the form of an experiment file."""
    return {name: "default" for name, parameter in method_parameters(method).items() if parameter.usual}


@dataclass(frozen=True)
class SearchSpace:
    """Domains of a search, in the order of the experiment file.

    Attributes:
        parameters: (flat name, domain) pairs; the parameters of a schedule come after ``schedule``. A trial has
            only the parameters of its own schedule.
        unimodal: names of the ranges along which the score is declared unimodal.
    """

    parameters: tuple[tuple[str, Domain], ...]
    unimodal: tuple[str, ...]

    @classmethod
    def of(cls, domains: Mapping[str, Domain], *, unimodal: Container[str] = ()) -> SearchSpace:
        """Return the search space with these domains, by flat name. ``unimodal`` has the names of unimodal ranges."""
        ordered: dict[str, Domain] = {}
        for name, domain in domains.items():
            if schedules.kind_of(name) is None:
                ordered[name] = domain
            if name == "schedule":
                for option in domain.grid(1):
                    ordered |= {own: each for own, each in domains.items() if schedules.kind_of(own) == option}
        return cls(tuple(ordered.items()), tuple(name for name in ordered if name in unimodal))

    @property
    def searched(self) -> tuple[str, ...]:
        """Names of the parameters that are neither fixed nor promoted, including conditional parameters."""
        return tuple(name for name, domain in self.parameters if not isinstance(domain, Fixed | Promoted))

    @property
    def promoted(self) -> dict[str, tuple[int, ...]]:
        """Levels of each promoted parameter, by name."""
        return {name: domain.levels for name, domain in self.parameters if isinstance(domain, Promoted)}

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the searched parameters on which ε does not depend."""
        return tuple(name for name in self.searched if not PARAMETERS[name].priced)

    @property
    def priced(self) -> tuple[str, ...]:
        """Names of the searched parameters on which ε depends."""
        return tuple(name for name in self.searched if PARAMETERS[name].priced)

    def scales(self, name: str) -> tuple[str, ...]:
        """Return the searched parameters that scale the effect of the parameter ``name``."""
        return tuple(each for each in _SCALES.get(name, ()) if each in self.searched)

    def sample(self, suggest: Suggest) -> dict[str, object]:
        """Return the flat parameters of one trial, in file order.

        ``suggest`` chooses the value of each searched parameter. It is called in file order, but unimodal parameters
        come last, because their sampler uses the values of the other parameters. A parameter of a schedule is sampled
        only if that schedule was chosen.
        """
        chosen: dict[str, object] = {}
        for name, domain in sorted(self.parameters, key=lambda each: self._turn(each[0])):
            if schedules.kind_of(name) in (None, chosen.get("schedule")):
                chosen[name] = sample_domain(domain, name, suggest)
        return {name: chosen[name] for name, _ in self.parameters if name in chosen}

    def _turn(self, name: str) -> int:
        """Return the sort key for sampling. A unimodal parameter comes after the parameters that scale its effect."""
        return 0 if name not in self.unimodal else 2 if self.scales(name) else 1

    def grid(self, points: int) -> dict[str, list[Scalar]]:
        """Return the grid values of each searched parameter by name. A range has at most ``points`` values."""
        return {name: domain.grid(points) for name, domain in self.parameters if name in self.searched}

    def to_spec(self) -> dict[str, Any]:
        """Return the space in the form of an experiment file. `parse_space` converts it back to an equal space."""
        nested: dict[str, dict[str, Any]] = {}
        spec: dict[str, Any] = {}
        for name, domain in self.parameters:
            kind, short = schedules.kind_of(name), name.rpartition(".")[2]
            if kind is None:
                spec[short] = self._spec(name, domain)
            else:
                nested.setdefault(kind, {})[short] = self._spec(name, domain)
        if "schedule" in spec:
            spec["schedule"] = _schedule_spec(dict(self.parameters)["schedule"], nested)
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
