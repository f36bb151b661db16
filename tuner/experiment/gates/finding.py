"""Common types of all gates: `Gate`, its result `GateFinding`, and the `Draft` of an experiment that gates examine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from search_spaces import (
    MINIMA,
    PARAMETERS,
    Domain,
    DomainError,
    SearchSpace,
    SpaceError,
    default_space,
    parse_declared,
    parse_space,
)
from trainables.data import public_train_size
from trainables.errors import DatasetError
from trainables.methods import METHODS
from tuner.experiment.model import Experiment
from tuner.experiment.prior import ONE_RUN, with_prior
from tuner.experiment.resolving import with_defaults
from tuner.experiment.yamlfile import Path
from tuner.privacy.modes import Mode
from tuner.study.unimodal.options import assumed

__all__ = ["OWN_CODE", "Draft", "Gate", "GateFinding", "gate"]

OWN_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
"""Name of a function of the user's own, package.module:function."""


@dataclass(frozen=True)
class GateFinding:
    """Violation of a gate's rule by the experiment file.

    Attributes:
        code: stable error code of the rule.
        key: dotted key of the refused value, or a tuple of keys if a key itself may contain a dot.
        rule: the broken rule and its reason.
        fix: what to write instead.
        value: text that shows the refused value. If it is empty, the value at `key` is shown.
    """

    code: str
    key: str | Path
    rule: str
    fix: str = ""
    value: str = ""

    @property
    def path(self) -> Path:
        """The key as a tuple of its parts."""
        return tuple(self.key.split(".")) if isinstance(self.key, str) else self.key


class Draft:
    """Experiment that the gates examine. Every value has the right type, and the search space is parsed only once."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        method = experiment.trainable.method
        self.method = method if method in METHODS or OWN_CODE.match(method) else None
        noise = experiment.privacy.noise_multiplier
        self._moved: dict[str, object] = {"noise_multiplier": noise} if isinstance(noise, Mapping) else {}

    @cached_property
    def parsed(self) -> SearchSpace | SpaceError:
        """Search space of the file, or the error that lists all problems of the space.

        A domain at `privacy.noise_multiplier` is part of the space.
        """
        raw: Mapping[str, object] = self.experiment.search.space
        if not raw and self.method is not None:
            several = self.experiment.search.trials > 1 or self.method in MINIMA
            raw = default_space(self.method) if several else ONE_RUN
        try:
            filled = with_prior({**raw, **self._moved}, self.experiment)
            return parse_space(filled, method=self.method, optimizer=self.experiment.trainable.optimizer)
        except SpaceError as error:
            return error

    @property
    def space(self) -> SearchSpace | None:
        """Search space of the file, or None if the space is malformed, which the gate `space` reports."""
        return None if isinstance(self.parsed, SpaceError) else self.parsed

    @cached_property
    def resolved(self) -> SearchSpace | None:
        """Search space with all defaults, or None if the space or the method is malformed.

        If the search is unimodal, the space declares at least one unimodal parameter.
        """
        if self.space is None or self.method is None:
            return None
        space = with_defaults(self.space, method=self.method)
        return assumed(space) if self.experiment.search.is_unimodal else space

    @cached_property
    def priced(self) -> dict[str, tuple[Domain, Path]]:
        """Domain and key of each parameter that affects the budget, by name. Malformed domains are left out."""
        found: dict[str, tuple[Domain, Path]] = {}
        space = self.experiment.search.space
        for parameter in (each for each in PARAMETERS.values() if each.priced):
            for key in (parameter.name, *parameter.aliases):
                if key in space:
                    try:
                        domain = parameter.default if space[key] == "default" else parse_declared(space[key])[0]
                        parameter.check(domain)
                    except (DomainError, SpaceError):
                        continue
                    found[parameter.name] = domain, ("search", "space", key)
        for name, noise in self._moved.items():
            found[name] = parse_declared(noise)[0], ("privacy", name)
        return found

    @property
    def mode(self) -> Mode:
        """The accounting mode of the file. An unknown mode counts as composition here; another gate reports it."""
        return self.experiment.mode_or_default

    @cached_property
    def public_size(self) -> int | None:
        """Public number of training records (or users), or None if it is missing, which the data gates report."""
        try:
            return public_train_size(self.experiment.dataset_request())
        except DatasetError:
            return None


Check: TypeAlias = Callable[[Draft], Iterator[GateFinding]]


@dataclass(frozen=True)
class Gate:
    """Check of an experiment.

    Attributes:
        check: function that yields the violations of the gate's rule.
        needs: keys that the check reads. If the value of such a key is malformed, the check is skipped, so that each
            mistake is reported only once.
    """

    check: Check
    needs: tuple[Path, ...]


def gate(*keys: str) -> Callable[[Check], Gate]:
    """Return a decorator that turns a check into a `Gate`. `keys` are the dotted keys that the check reads."""
    return lambda check: Gate(check, tuple(tuple(key.split(".")) for key in keys))
