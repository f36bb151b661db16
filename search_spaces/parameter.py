"""Searchable parameter: names, legal values, default domain, effect on the privacy cost, and source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from search_spaces.domains import Categorical, Domain, Fixed, Integer, Promoted, Scalar, as_yaml, is_number
from search_spaces.errors import DomainError

__all__ = ["Limits", "Parameter", "Words"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Legal range of a number. ``low`` and ``high`` are legal unless ``low_open`` or ``high_open`` is true."""

    low: float = 0.0
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    integer: bool = False

    def allows(self, value: object) -> bool:
        """Return whether ``value`` is legal. NaN and infinity never are."""
        if not is_number(value) or (self.integer and not isinstance(value, int)):
            return False
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        kind = "an integer" if self.integer else "a number"
        low = f"above {self.low:g}" if self.low_open else f"of at least {self.low:g}"
        if math.isinf(self.high):
            return f"{kind} {low}"
        return f"{kind} {low} and {f'below {self.high:g}' if self.high_open else f'at most {self.high:g}'}"


@dataclass(frozen=True)
class Words:
    """Legal words of a parameter. ``refused`` has words that users may try → reason why they are illegal."""

    words: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    def allows(self, value: object) -> bool:
        """Return whether ``value`` is one of the words."""
        return isinstance(value, str) and value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter that trials may choose.

    Attributes:
        name: name in code, logs and tracking.
        aliases: other keys in an experiment file, the symbols of the papers.
        default: domain that the word ``default`` means in an experiment file.
        legal: values that a domain may contain and a trial accepts.
        usual: whether the parameter is searched when an experiment file has no space.
        priced: whether ε depends on the parameter.
        promotable: whether the parameter may rise within a trial (`Promoted`).
        source: origin of the default domain.
    """

    name: str
    aliases: tuple[str, ...] = ()
    default: Domain
    legal: Limits | Words
    usual: bool = False
    priced: bool = False
    promotable: bool = False
    source: str

    def check(self, domain: Domain) -> None:
        """Raise DomainError if a value of ``domain`` is illegal."""
        spec = as_yaml(domain.to_spec())
        if isinstance(domain, Promoted) and not self.promotable:
            rule = f"{self.name} must be one value for all steps of a trial; only smoothing_samples can rise"
            raise DomainError("promotion-unsupported", rule, spec, "Write one value, or a domain to search it.")
        rule = f"{self.name} must be {self.legal}"
        if isinstance(self.legal, Words):
            if not isinstance(domain, Fixed | Categorical):
                raise DomainError("value-illegal", rule, spec, f"Write {{choice: [{', '.join(self.legal.words)}]}}.")
        elif self.legal.integer and not isinstance(domain, Fixed | Categorical | Integer | Promoted):
            fix = "Use {integer: [low, high]} or {log_integer: [low, high]}."
            raise DomainError("value-illegal", f"{self.name} takes integers", spec, fix)
        for value in _ends(domain):
            if self.legal.allows(value):
                continue
            if isinstance(self.legal, Words) and str(value) in self.legal.refused:
                fix = f"Write one of {', '.join(self.legal.words)}."
                raise DomainError("clipping-of-batch-mean", self.legal.refused[str(value)], as_yaml(value), fix)
            fix = f"Write for example {self.name.rpartition('.')[2]}: {as_yaml(self.default.to_spec())}."
            raise DomainError("value-illegal", rule, as_yaml(value), fix)


def _ends(domain: Domain) -> Iterable[Scalar]:
    match domain:
        case Fixed(value=value):
            return (value,)
        case Categorical(options=options):
            return options
        case Promoted(levels=levels):
            return levels
        case _:
            return (domain.low, domain.high)
