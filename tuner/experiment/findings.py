"""What a gate finds, and what the gates ask of an experiment whose values are well formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from search_spaces import PARAMETERS, Domain, DomainError, SearchSpace, SpaceError, parse_declared, parse_space
from trainables.data import public_train_size
from trainables.errors import DatasetError
from trainables.hyperparameters import HYPERPARAMETERS
from tuner.experiment.model import Experiment
from tuner.experiment.yamlfile import Path

__all__ = ["Finding", "Gate", "priced_domains", "public_size", "whole_space"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One refusal.

    Attributes:
        path: the key that it is about.
        rule: what must hold, and why.
        fix: what to do.
        value: what was found; empty for the value at ``path``.
    """

    path: Path
    rule: str
    fix: str = ""
    value: str = ""


Gate: TypeAlias = Callable[[Experiment], Iterator[Finding]]


def public_size(experiment: Experiment) -> int | None:
    """The public number of training records (or users), or None where another gate says what is wrong with it."""
    try:
        return public_train_size(experiment.dataset_request())
    except DatasetError:
        return None


def whole_space(experiment: Experiment) -> SearchSpace:
    """What is searched, a domain at privacy.noise_multiplier included.

    Raises:
        SpaceError: something is wrong with it.
    """
    method = experiment.trainable.method
    noise = experiment.privacy.noise_multiplier
    moved = {"noise_multiplier": noise} if isinstance(noise, Mapping) else {}
    return parse_space({**experiment.search.space, **moved}, method=method if method in HYPERPARAMETERS else None)


def priced_domains(experiment: Experiment) -> dict[str, tuple[Domain, Path]]:
    """Each priced parameter that has a well-formed domain, with where it stands."""
    found: dict[str, tuple[Domain, Path]] = {}
    for parameter in (each for each in PARAMETERS.values() if each.priced):
        for key in (parameter.name, *parameter.aliases):
            if key in experiment.search.space:
                raw = experiment.search.space[key]
                try:
                    domain = parameter.default if raw == "default" else parse_declared(raw)[0]
                    parameter.check(domain)
                except (DomainError, SpaceError):
                    continue
                found[parameter.name] = domain, ("search", "space", key)
    noise = experiment.privacy.noise_multiplier
    if isinstance(noise, Mapping):
        found["noise_multiplier"] = parse_declared(noise)[0], ("privacy", "noise_multiplier")
    return found
