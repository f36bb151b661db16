"""Terms of all gates: the gate, its finding, and the draft of an experiment that it examines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from search_spaces import (
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
from tuner.experiment.resolving import with_defaults
from tuner.experiment.yamlfile import Path
from tuner.privacy.modes import COMPOSITION, MODES, Mode
from tuner.study.unimodal.options import assumed

__all__ = ["Draft", "Gate", "GateFinding", "gate"]


@dataclass(frozen=True)
class GateFinding:
    """Refusal by a gate.

    Attributes:
        code: stable code of the rule.
        key: dotted key of the value; a path if a part of the key may contain a dot.
        rule: the broken rule and its reason.
        fix: what to write instead.
        value: the refused value; empty for the value at `key`.
    """

    code: str
    key: str | Path
    rule: str
    fix: str = ""
    value: str = ""

    @property
    def path(self) -> Path:
        """Path of the key."""
        return tuple(self.key.split(".")) if isinstance(self.key, str) else self.key


class Draft:
    """Experiment that the gates examine. Every value is well formed, and the space is parsed once."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.method = method if (method := experiment.trainable.method) in METHODS else None
        noise = experiment.privacy.noise_multiplier
        self._moved: dict[str, object] = {"noise_multiplier": noise} if isinstance(noise, Mapping) else {}

    @cached_property
    def parsed(self) -> SearchSpace | SpaceError:
        """Space of the file, with the noise of the privacy section, or the error with all its problems."""
        raw = self.experiment.search.space
        if not raw and self.method is not None and self.experiment.search.trials > 1:
            raw = default_space(self.method)
        try:
            return parse_space({**raw, **self._moved}, method=self.method)
        except SpaceError as error:
            return error

    @property
    def space(self) -> SearchSpace | None:
        """Space of the file, or None if it is malformed; the gate `space` reports this."""
        return None if isinstance(self.parsed, SpaceError) else self.parsed

    @cached_property
    def resolved(self) -> SearchSpace | None:
        """Space with all defaults and a declared unimodal parameter, or None if the space or method is malformed."""
        if self.space is None or self.method is None:
            return None
        space = with_defaults(self.space, method=self.method)
        return assumed(space) if self.experiment.search.is_unimodal else space

    @cached_property
    def priced(self) -> dict[str, tuple[Domain, Path]]:
        """Domain of each priced parameter and its path in the file, without malformed domains."""
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
        """The accounting mode; composition if the file's is unknown, which another gate reports."""
        return MODES.get(self.experiment.privacy.accounting, COMPOSITION)

    @cached_property
    def public_size(self) -> int | None:
        """Public number of training records (users), or None if it is missing; the data gates report this."""
        try:
            return public_train_size(self.experiment.dataset_request())
        except DatasetError:
            return None


Check: TypeAlias = Callable[[Draft], Iterator[GateFinding]]


@dataclass(frozen=True)
class Gate:
    """Check of an experiment.

    Attributes:
        check: function that yields its refusals.
        needs: keys that the check reads; a malformed one skips the check, so each mistake is reported once.
    """

    check: Check
    needs: tuple[Path, ...]


def gate(*keys: str) -> Callable[[Check], Gate]:
    """Return a decorator that makes a gate of a check of these dotted keys."""
    return lambda check: Gate(check, tuple(tuple(key.split(".")) for key in keys))
