"""Domains of one parameter: Uniform, LogUniform, Integer, Categorical, Fixed, Promoted; finite, checked when made.

In an experiment file::

    0.1                            Fixed
    {uniform: [0, 3]}              Uniform
    {log_uniform: [1, 80]}         LogUniform
    {integer: [1, 20]}             Integer
    {log_integer: [1, 64]}         Integer on a logarithmic scale
    {choice: [mean, sum]}          Categorical
    {promote: [1, 3, 10]}          Promoted: not searched, rises within every trial

A range may say that the score has one top along it: ``{uniform: [0, 100], unimodal: true}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeGuard

from search_spaces.errors import DomainError

__all__ = [
    "Categorical",
    "Domain",
    "Fixed",
    "Integer",
    "LogUniform",
    "Promoted",
    "Scalar",
    "Suggest",
    "Uniform",
    "is_number",
    "parse_declared",
    "parse_domain",
    "promoted_levels",
    "sample_domain",
    "show",
]

Scalar: TypeAlias = str | int | float | bool
"""A value that a file, a tracking server and an Optuna storage all carry without loss."""

_LARGEST_INTEGER = 2**53  # Beyond it a float, which is what storages keep, no longer holds every integer.


class Suggest(Protocol):
    """Whoever chooses the values of a trial: a sampler, a grid, a test."""

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        """Return a number in [low, high], on a logarithmic scale when ``log``."""

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        """Return an integer in [low, high], on a logarithmic scale when ``log``."""

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        """Return one of the options."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether ``value`` is a finite number; a truth value is not one, NaN neither."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER


def show(value: object) -> str:
    """Return ``value`` as it would stand in the file, cut to 80 characters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isnan(value):
            return ".nan"
        if math.isinf(value):
            return ".inf" if value > 0 else "-.inf"
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {show(entry)}" for key, entry in value.items()) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(show(entry) for entry in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _check_bounds(low: object, high: object) -> None:
    if not (is_number(low) and is_number(high)):
        raise DomainError("the bounds must be finite numbers", show([low, high]))
    if not low < high:
        raise DomainError(
            "the lower bound must lie below the upper bound",
            show([low, high]),
            "Write a plain number for a value that is not searched." if low == high else "Swap the bounds.",
        )


def _check_points(points: int) -> None:
    if not (_is_integer(points) and points >= 1):
        raise DomainError("a grid needs at least one point", show(points))


@dataclass(frozen=True)
class Uniform:
    """Every number of [low, high], evenly.

    Raises:
        DomainError: a bound is not finite, or low is not below high.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def contains(self, value: object) -> bool:
        """Whether ``value`` is a number within the closed bounds."""
        return is_number(value) and self.low <= value <= self.high

    def to_spec(self) -> dict[str, list[float]]:
        """Return the form that stands in an experiment file."""
        return {"uniform": [self.low, self.high]}

    def grid(self, points: int) -> list[Scalar]:
        """Return ``points`` evenly spaced values with both ends; the middle for one point."""
        _check_points(points)
        if points == 1:
            return [self.low + (self.high - self.low) / 2]
        inner = [self.low + (self.high - self.low) * i / (points - 1) for i in range(1, points - 1)]
        return [self.low, *inner, self.high]


@dataclass(frozen=True)
class LogUniform:
    """Every number of [low, high], evenly in its logarithm.

    Raises:
        DomainError: as for `Uniform`, or low is not positive.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        _check_positive(self.low, self.high)

    def contains(self, value: object) -> bool:
        """Whether ``value`` is a number within the closed bounds."""
        return is_number(value) and self.low <= value <= self.high

    def to_spec(self) -> dict[str, list[float]]:
        """Return the form that stands in an experiment file."""
        return {"log_uniform": [self.low, self.high]}

    def grid(self, points: int) -> list[Scalar]:
        """Return ``points`` values in geometric progression with both ends; the geometric mean for one point."""
        _check_points(points)
        span = math.log(self.high) - math.log(self.low)
        if points == 1:
            return [self.low * math.exp(span / 2)]
        inner = [self.low * math.exp(span * i / (points - 1)) for i in range(1, points - 1)]
        return [self.low, *inner, self.high]


@dataclass(frozen=True)
class Integer:
    """Every integer of [low, high], evenly or (``log``) evenly in its logarithm.

    Raises:
        DomainError: a bound is no integer, low is not below high, or low is not positive with ``log``.
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        if not (_is_integer(self.low) and _is_integer(self.high)):
            raise DomainError(
                "the bounds must be integers of at most 2^53", show([self.low, self.high]), "Use uniform for numbers."
            )
        _check_bounds(self.low, self.high)
        if self.log:
            _check_positive(self.low, self.high)

    def contains(self, value: object) -> bool:
        """Whether ``value`` is an integer within the closed bounds."""
        return _is_integer(value) and self.low <= value <= self.high

    def to_spec(self) -> dict[str, list[int]]:
        """Return the form that stands in an experiment file."""
        return {"log_integer" if self.log else "integer": [self.low, self.high]}

    def grid(self, points: int) -> list[Scalar]:
        """Return at most ``points`` different integers, evenly spaced on this scale, with both ends."""
        scale = LogUniform(self.low, self.high) if self.log else Uniform(self.low, self.high)
        return list(dict.fromkeys(round(float(value)) for value in scale.grid(points)))


@dataclass(frozen=True)
class Categorical:
    """One of a few values without an order.

    Raises:
        DomainError: no option, an option twice, or an option that is no string, finite number or truth value.
    """

    options: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.options, tuple) or not self.options:
            raise DomainError("a choice needs a list of at least one option", show(self.options))
        for option in self.options:
            if not (isinstance(option, str | bool) or is_number(option)):
                raise DomainError("an option must be a word, a finite number, true or false", show(option))
        if len({(type(option), option) for option in self.options}) != len(self.options):
            raise DomainError("every option must stand once", show(self.options), "Leave out the repeated ones.")

    def contains(self, value: object) -> bool:
        """Whether ``value`` is one of the options; 1, 1.0 and true are three different options."""
        return any(type(value) is type(option) and value == option for option in self.options)

    def to_spec(self) -> dict[str, list[Scalar]]:
        """Return the form that stands in an experiment file."""
        return {"choice": list(self.options)}

    def grid(self, points: int) -> list[Scalar]:
        """Return all options: a choice has no order by which some could be left out."""
        _check_points(points)
        return list(self.options)


@dataclass(frozen=True)
class Fixed:
    """One value; nothing is searched.

    Raises:
        DomainError: the value is no string, finite number or truth value.
    """

    value: Scalar

    def __post_init__(self) -> None:
        if not (isinstance(self.value, str | bool) or is_number(self.value)):
            raise DomainError("a value must be a word, a finite number, true or false", show(self.value))

    def contains(self, value: object) -> bool:
        """Whether ``value`` is this value."""
        return type(value) is type(self.value) and value == self.value

    def to_spec(self) -> Scalar:
        """Return the form that stands in an experiment file."""
        return self.value

    def grid(self, points: int) -> list[Scalar]:
        """Return the value."""
        _check_points(points)
        return [self.value]


@dataclass(frozen=True)
class Promoted:
    """A plan that is the same for every trial: a whole number that rises from level to level while the trial lasts.

    Nothing is searched. Level i of n is meant for the steps from the fraction i/n on; who runs trials says at which of
    their rungs that is.

    Attributes:
        levels: the numbers, at least two, each of at least 1 and greater than the one before.

    Raises:
        DomainError: they are not.
    """

    levels: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = isinstance(self.levels, tuple) and all(_is_integer(level) and level >= 1 for level in self.levels)
        if not (whole and len(self.levels) >= 2 and all(low < high for low, high in pairwise(self.levels))):
            raise DomainError(
                "a promotion needs at least two whole numbers of at least 1, each greater than the one before",
                show(self.levels),
                "Write for example {promote: [1, 3, 10]}, or one number that holds from the first step to the last.",
            )

    def contains(self, value: object) -> bool:
        """Whether ``value`` is one of the levels."""
        return _is_integer(value) and value in self.levels

    def to_spec(self) -> dict[str, list[int]]:
        """Return the form that stands in an experiment file, and as the value of a trial."""
        return {_PROMOTE: list(self.levels)}

    def grid(self, points: int) -> list[Scalar]:
        """Return the last level: every trial has the same plan, and ends with it."""
        _check_points(points)
        return [self.levels[-1]]


Domain: TypeAlias = Uniform | LogUniform | Integer | Categorical | Fixed | Promoted


def sample_domain(domain: Domain, name: str, suggest: Suggest) -> Scalar | dict[str, list[int]]:
    """Return a value of ``domain`` for the parameter ``name``; a fixed value, or a plan of levels, asks nobody."""
    match domain:
        case Fixed(value=value):
            return value
        case Promoted():
            return domain.to_spec()
        case Uniform(low=low, high=high):
            return suggest.uniform(name, low, high, log=False)
        case LogUniform(low=low, high=high):
            return suggest.uniform(name, low, high, log=True)
        case Integer(low=low, high=high, log=log):
            return suggest.integer(name, low, high, log=log)
        case Categorical(options=options):
            return suggest.choice(name, options)


def promoted_levels(value: object) -> tuple[int, ...] | None:
    """The levels of a trial's value that is promoted; None of any other value."""
    if not (isinstance(value, Mapping) and set(value) == {_PROMOTE}):
        return None
    return Promoted(tuple(value[_PROMOTE])).levels


def _check_positive(low: float, high: float) -> None:
    if not low > 0:
        raise DomainError(
            "a logarithmic scale needs a lower bound above 0",
            show([low, high]),
            "Raise the lower bound, or use uniform, which may start at 0.",
        )


UNIMODAL = "unimodal"
"""The key beside a domain that declares the score unimodal along it."""

_RANGES = ("uniform", "log_uniform", "integer", "log_integer")
_KINDS = (*_RANGES, "choice")
_PROMOTE = "promote"


def parse_domain(raw: object) -> Domain:
    """Return the domain that stands in a file as ``raw``.

    Raises:
        DomainError: with the rule, the value and the fix.
    """
    if not isinstance(raw, Mapping):
        if isinstance(raw, list | tuple):
            raise DomainError(
                "a list is no domain",
                show(raw),
                "Write {choice: [...]} for options or {uniform: [low, high]} for a range.",
            )
        return Fixed(raw)  # type: ignore[arg-type]  # Fixed checks it
    if len(raw) != 1:
        raise DomainError("a domain has exactly one key", show(raw), f"Use one of {', '.join(_KINDS)}.")
    kind, body = next(iter(raw.items()))
    if kind == _PROMOTE:
        return Promoted(tuple(body) if isinstance(body, list | tuple) else body)
    if kind not in _KINDS:
        near = get_close_matches(str(kind), (*_KINDS, _PROMOTE), n=1)
        raise DomainError(
            f"a domain is one of {', '.join(_KINDS)}", show(kind), f"Did you mean {near[0]!r}?" if near else ""
        )
    if kind == "choice":
        if not isinstance(body, list | tuple):
            raise DomainError("a choice needs a list of options", show(body), "Write {choice: [a, b]}.")
        return Categorical(tuple(body))
    if not isinstance(body, list | tuple) or len(body) != 2:
        raise DomainError("a range needs its two bounds", show(body), f"Write {{{kind}: [low, high]}}.")
    low, high = body
    match kind:
        case "uniform":
            return Uniform(low, high)
        case "log_uniform":
            return LogUniform(low, high)
        case "integer":
            return Integer(low, high)
        case _:
            return Integer(low, high, log=True)


def parse_declared(raw: object) -> tuple[Domain, bool]:
    """Return the domain that stands in a file, and whether the score is declared to have one top along it.

    Raises:
        DomainError: as for `parse_domain`, or what is declared so is no range.
    """
    if not (isinstance(raw, Mapping) and UNIMODAL in raw):
        return parse_domain(raw), False
    declared = raw[UNIMODAL]
    if not isinstance(declared, bool):
        raise DomainError(f"{UNIMODAL} must be true or false", show(declared))
    rest = {key: value for key, value in raw.items() if key != UNIMODAL}
    if declared and not set(rest) & set(_RANGES):
        raise DomainError(
            "only a range can be declared unimodal: options have no order, and one value is not searched",
            show(raw),
            f"Write for example {{uniform: [0, 100], {UNIMODAL}: true}}, or leave {UNIMODAL} out.",
        )
    return parse_domain(rest), declared
