"""One searchable parameter: names, legal values, default domain, effect on the privacy cost, and source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from search_spaces.domains import Categorical, Domain, Fixed, Integer, Promoted, Scalar, as_yaml, is_number
from search_spaces.errors import DomainError

__all__ = ["Limits", "Parameter", "Words"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Legal range of a number.

    Attributes:
        low: least value.
        high: greatest value.
        low_open: whether ``low`` itself is not legal.
        high_open: whether ``high`` itself is not legal.
        integer: whether only integers are legal.
    """

    low: float = 0.0
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    integer: bool = False

    def allows(self, value: object) -> bool:
        """Return whether ``value`` is legal; NaN and infinity never are."""
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
    """Legal words of a parameter without an order.

    Attributes:
        words: the values.
        refused: words that users may try, each with the reason why it is refused.
    """

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
        name: the only name in code, logs and tracking.
        aliases: other keys for it in a file: the symbols of the papers.
        default: the domain that ``default`` means in a file.
        legal: the values that any domain of it must stay within, and that a trial accepts.
        usual: whether it is searched when a file names nothing to search.
        priced: whether ε depends on it; the cap of a search must then hold for each of its values.
        promotable: whether it may rise within a trial (`Promoted`).
        source: where the default range comes from.
        description: one line for people.
    """

    name: str
    aliases: tuple[str, ...] = ()
    default: Domain
    legal: Limits | Words
    usual: bool = False
    priced: bool = False
    promotable: bool = False
    source: str
    description: str

    def check(self, domain: Domain) -> None:
        """Check that every value of ``domain`` is legal.

        Raises:
            DomainError: one is not.
        """
        if isinstance(domain, Promoted) and not self.promotable:
            raise DomainError(
                "promotion-unsupported",
                f"{self.name} is one value for all steps of a trial: only smoothing_samples is promoted",
                as_yaml(domain.to_spec()),
                "Write one value, or a domain to search it.",
            )
        if (
            isinstance(self.legal, Limits)
            and self.legal.integer
            and not isinstance(domain, Fixed | Categorical | Integer | Promoted)
        ):
            raise DomainError(
                "value-illegal",
                f"{self.name} takes integers",
                as_yaml(domain.to_spec()),
                "Use {integer: [low, high]} or {log_integer: [low, high]}.",
            )
        if isinstance(self.legal, Words) and not isinstance(domain, Fixed | Categorical):
            raise DomainError(
                "value-illegal",
                f"{self.name} must be {self.legal}",
                as_yaml(domain.to_spec()),
                f"Write {{choice: [{', '.join(self.legal.words)}]}}.",
            )
        for value in _ends(domain):
            if not self.legal.allows(value):
                if isinstance(self.legal, Words) and str(value) in self.legal.refused:
                    why = self.legal.refused[str(value)]
                    fix = f"Write one of {', '.join(self.legal.words)}."
                    raise DomainError("clipping-of-batch-mean", why, as_yaml(value), fix)
                fix = f"Write for example {self.name.rpartition('.')[2]}: {as_yaml(self.default.to_spec())}."
                raise DomainError("value-illegal", f"{self.name} must be {self.legal}", as_yaml(value), fix)


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
