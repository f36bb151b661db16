"""Domains of one parameter: Uniform, LogUniform, Integer, Categorical, Fixed; finite, closed, checked when made.

In an experiment file::

    0.1                            Fixed
    {uniform: [0, 3]}              Uniform
    {log_uniform: [1, 80]}         LogUniform
    {integer: [1, 20]}             Integer
    {log_integer: [1, 64]}         Integer on a logarithmic scale
    {choice: [mean, sum]}          Categorical
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol, TypeAlias, TypeGuard

from search_spaces.errors import DomainError

__all__ = [
    "Categorical",
    "Domain",
    "Fixed",
    "Integer",
    "LogUniform",
    "Scalar",
    "Suggest",
    "Uniform",
    "is_number",
    "parse_domain",
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


Domain: TypeAlias = Uniform | LogUniform | Integer | Categorical | Fixed


def sample_domain(domain: Domain, name: str, suggest: Suggest) -> Scalar:
    """Return a value of ``domain`` for the parameter ``name``; a fixed value asks nobody."""
    match domain:
        case Fixed(value=value):
            return value
        case Uniform(low=low, high=high):
            return suggest.uniform(name, low, high, log=False)
        case LogUniform(low=low, high=high):
            return suggest.uniform(name, low, high, log=True)
        case Integer(low=low, high=high, log=log):
            return suggest.integer(name, low, high, log=log)
        case Categorical(options=options):
            return suggest.choice(name, options)


def _check_positive(low: float, high: float) -> None:
    if not low > 0:
        raise DomainError(
            "a logarithmic scale needs a lower bound above 0",
            show([low, high]),
            "Raise the lower bound, or use uniform, which may start at 0.",
        )


_RANGES = ("uniform", "log_uniform", "integer", "log_integer")
_KINDS = (*_RANGES, "choice")


def parse_domain(raw: object) -> Domain:
    """Return the domain that stands in a file as ``raw``.

    Raises:
        DomainError: with the rule, the value and the mend.
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
    if kind not in _KINDS:
        near = get_close_matches(str(kind), _KINDS, n=1)
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
