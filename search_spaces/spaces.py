"""Search space: the domain of each parameter, and the conditions under which a trial has the parameter."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces import common, optimizers, schedules
from search_spaces.domains import UNIMODAL, Categorical, Domain, Fixed, Promoted, Scalar, Suggest, sample_domain
from search_spaces.methods import METHODS, MINIMA
from search_spaces.parameter import Parameter

__all__ = [
    "DIVIDES",
    "OWN",
    "PARAMETERS",
    "SearchSpace",
    "can_be",
    "default_space",
    "is_own_method",
    "method_parameters",
    "owner_of",
]

OWN = "own"
"""Key that holds the parameters of the user's own method. Their flat names begin with ``own.``."""

PARAMETERS: dict[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        *common.PARAMETERS,
        *optimizers.PARAMETERS,
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
"""Parameter → parameters that multiply its effect, or divide it (`DIVIDES`). DPLIS perturbs by R · η · σ · C / b."""

DIVIDES = frozenset({"batch_size"})
"""Parameters that divide the effect of those that they scale."""

_OWNERS = ("schedule", "optimizer")
"""Parameters that others need (`Parameter.needs`)."""

_USUAL_OWNER = {"schedule": "constant", "optimizer": optimizers.SGD}


def is_own_method(method: str) -> bool:
    """Return whether a method is the user's own, ``package.module:function``."""
    return ":" in method


def method_parameters(method: str) -> dict[str, Parameter]:
    """Return the parameters of ``method`` by name, including shared ones. Raise KeyError if ``method`` is unknown.

    Of a method of the user's own, only the shared ones are known. A method of `MINIMA` shares only the noise.
    """
    if method in MINIMA:
        return {parameter.name: parameter for parameter in METHODS[method]} | {
            "noise_multiplier": PARAMETERS["noise_multiplier"]
        }
    own = set() if is_own_method(method) else {parameter.name for parameter in METHODS[method]}
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
            only the parameters of its own schedule and optimizer.
        unimodal: names of the ranges along which the score is declared unimodal.
        optimizer: optimizer of all trials, if it is no parameter of the space.
    """

    parameters: tuple[tuple[str, Domain], ...]
    unimodal: tuple[str, ...]
    optimizer: str = optimizers.SGD

    @classmethod
    def of(
        cls, domains: Mapping[str, Domain], *, unimodal: Container[str] = (), optimizer: str = optimizers.SGD
    ) -> SearchSpace:
        """Return the search space with these domains, by flat name, without parameters that no trial can have.

        Args:
            domains: domain of each parameter.
            unimodal: names of unimodal ranges.
            optimizer: optimizer of all trials, if it is not in `domains`.
        """
        usual = {**_USUAL_OWNER, "optimizer": optimizer}
        ordered: dict[str, Domain] = {}
        for name, domain in domains.items():
            owner = owner_of(name)
            if owner is None or (owner not in domains and can_be(name, [usual[owner]])):
                ordered[name] = domain
            if name in _OWNERS:
                for option in domain.grid(1):
                    ordered |= {
                        own: each for own, each in domains.items() if owner_of(own) == name and can_be(own, [option])
                    }
        return cls(tuple(ordered.items()), tuple(name for name in ordered if name in unimodal), optimizer)

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
        return tuple(name for name in self.searched if name not in self.priced)

    @property
    def priced(self) -> tuple[str, ...]:
        """Names of the searched parameters on which ε depends."""
        return tuple(name for name in self.searched if name in PARAMETERS and PARAMETERS[name].priced)

    def scales(self, name: str) -> tuple[str, ...]:
        """Return the searched parameters that scale the effect of the parameter ``name``.

        A step of Adam is as long as the learning rate, so that nothing else scales a smoothing radius.
        """
        chosen = dict(self.parameters).get("optimizer", Fixed(self.optimizer))
        found = _SCALES.get(name, ()) if chosen.contains(optimizers.SGD) else _SCALES.get(name, ())[:1]
        return tuple(each for each in found if each in self.searched)

    def sample(self, suggest: Suggest) -> dict[str, object]:
        """Return the flat parameters of one trial, in file order.

        ``suggest`` chooses the value of each searched parameter. It is called in file order, but unimodal parameters
        come last, because their sampler uses the values of the other parameters. A parameter of a schedule or an
        optimizer is sampled only if that schedule or optimizer was chosen.
        """
        chosen: dict[str, object] = {}
        for name, domain in sorted(self.parameters, key=lambda each: self._turn(each[0])):
            owner = owner_of(name)
            if owner not in chosen or can_be(name, [chosen[owner]]):
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
            if name.startswith(f"{OWN}."):
                spec.setdefault(OWN, {})[short] = self._spec(name, domain)
            elif kind is None:
                spec[short] = self._spec(name, domain)
            else:
                nested.setdefault(kind, {})[short] = self._spec(name, domain)
        if "schedule" in spec:
            spec["schedule"] = _schedule_spec(dict(self.parameters)["schedule"], nested)
        return spec

    def _spec(self, name: str, domain: Domain) -> object:
        spec = domain.to_spec()
        return {**spec, UNIMODAL: True} if isinstance(spec, dict) and name in self.unimodal else spec


def owner_of(name: str) -> str | None:
    """Return the parameter that decides whether a trial has the parameter ``name``, or None if every trial has it."""
    needs = PARAMETERS[name].needs if name in PARAMETERS else None
    return None if needs is None else needs[0]


def can_be(name: str, options: Iterable[object]) -> bool:
    """Return whether a trial has the parameter ``name`` if the parameter that it needs is one of the options."""
    needs = PARAMETERS[name].needs if name in PARAMETERS else None
    return needs is None or any(option in needs[1] for option in options)


def _schedule_spec(domain: Domain, nested: Mapping[str, Mapping[str, Any]]) -> object:
    def option(kind: Scalar) -> object:
        own = nested.get(str(kind))
        return {str(kind): dict(own)} if own else kind

    if isinstance(domain, Categorical):
        return {"choice": [option(kind) for kind in domain.options]}
    return option(domain.value) if isinstance(domain, Fixed) else domain.to_spec()
