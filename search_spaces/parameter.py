"""Searchable parameter: names, legal values, default domain, effect on the privacy cost, and source of the default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.domains import Categorical, Domain, Fixed, Integer, Promoted, as_yaml, is_number
from search_spaces.errors import DomainError

__all__ = ["Limits", "Parameter", "Words"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Legal range of a number. ``low_open`` excludes ``low`` itself, and ``high_open`` excludes ``high`` itself.

    A value may also be one of ``words``.
    """

    low: float = 0.0
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    integer: bool = False
    words: tuple[str, ...] = ()

    def allows(self, value: object) -> bool:
        """Return whether ``value`` is legal. NaN and infinity are never legal."""
        if isinstance(value, str):
            return value in self.words
        if not is_number(value) or (self.integer and not isinstance(value, int)):
            return False
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        kind = "an integer" if self.integer else "a number"
        kind = f"{', '.join(self.words)} or {kind}" if self.words else kind
        low = f"above {self.low:g}" if self.low_open else f"of at least {self.low:g}"
        if math.isinf(self.high):
            return f"{kind} {low}"
        return f"{kind} {low} and {f'below {self.high:g}' if self.high_open else f'at most {self.high:g}'}"


@dataclass(frozen=True)
class Words:
    """Legal words of a parameter. ``refused`` gives a reason for each illegal word that users are likely to try."""

    words: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    def allows(self, value: object) -> bool:
        """Return whether ``value`` is one of the words."""
        return isinstance(value, str) and value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """Parameter that a search can choose for each trial.

    Attributes:
        name: name in code, logs and tracking.
        aliases: other names that an experiment file may use, mostly symbols of the papers.
        default: domain that the word ``default`` means in an experiment file.
        legal: values that a domain may contain and that a trial accepts.
        usual: whether the default search space contains the parameter.
        priced: whether ε depends on the parameter.
        promotable: whether the value may rise within a trial (`Promoted`).
        needs: another parameter, and its values with which a trial has this parameter. None for every trial.
        of_trainable: whether the section `trainable` of an experiment file sets the value if the space does not.
        source: where the default domain comes from.
    """

    name: str
    aliases: tuple[str, ...] = ()
    default: Domain
    legal: Limits | Words
    usual: bool = False
    priced: bool = False
    promotable: bool = False
    needs: tuple[str, tuple[str, ...]] | None = None
    of_trainable: bool = False
    source: str

    def check(self, domain: Domain) -> None:
        """Raise DomainError if a value of ``domain`` is illegal."""
        spec = as_yaml(domain.to_spec())
        if isinstance(domain, Promoted) and not self.promotable:
            rule = f"{self.name} must not rise within a trial; only smoothing_samples may rise"
            raise DomainError("promotion-unsupported", rule, spec, "Write one value, a range or a choice.")
        rule = f"{self.name} must be {self.legal}"
        if isinstance(self.legal, Words):
            if not isinstance(domain, Fixed | Categorical):
                raise DomainError("value-illegal", rule, spec, f"Write {{choice: [{', '.join(self.legal.words)}]}}.")
        elif self.legal.integer and not isinstance(domain, Fixed | Categorical | Integer | Promoted):
            fix = "Use `{integer: [low, high]}` or `{log_integer: [low, high]}`."
            raise DomainError("value-illegal", f"{self.name} must be an integer", spec, fix)
        values = domain.levels if isinstance(domain, Promoted) else domain.grid(2)
        for value in values:
            if self.legal.allows(value):
                continue
            if isinstance(self.legal, Words) and str(value) in self.legal.refused:
                fix = f"Write one of {', '.join(self.legal.words)}."
                raise DomainError("clipping-of-batch-mean", self.legal.refused[str(value)], as_yaml(value), fix)
            fix = f"Write for example {self.name.rpartition('.')[2]}: {as_yaml(self.default.to_spec())}."
            raise DomainError("value-illegal", rule, as_yaml(value), fix)
