"""Domains: each describes the values that one parameter may have. Creating an illegal domain raises `DomainError`.

An experiment file writes a domain as::

    0.1                            Fixed
    {uniform: [0, 3]}              Uniform
    {log_uniform: [1, 80]}         LogUniform
    {integer: [1, 20]}             Integer
    {log_integer: [1, 64]}         Integer on a logarithmic scale
    {choice: [mean, sum]}          Categorical
    {promote: [1, 3, 10]}          Promoted: not searched; the value rises within every trial
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeGuard

from search_spaces.errors import DomainError

__all__ = [
    "PROMOTE",
    "UNIMODAL",
    "Categorical",
    "Domain",
    "Fixed",
    "Integer",
    "LogUniform",
    "Promoted",
    "Scalar",
    "Suggest",
    "Uniform",
    "as_yaml",
    "is_number",
    "promoted_levels",
    "sample_domain",
]

Scalar: TypeAlias = str | int | float | bool
"""Value that files, tracking servers and Optuna storages store without loss."""

PROMOTE = "promote"
"""Key that marks a promoted domain in an experiment file."""

UNIMODAL = "unimodal"
"""Key that declares that the score has a single maximum along a range: ``{uniform: [0, 100], unimodal: true}``."""

_LARGEST_INTEGER = 2**53  # Storages convert numbers to floats, which are exact up to here.


class Suggest(Protocol):
    """Source of a trial's values: a sampler, a grid or a test. ``log`` requests a logarithmic scale."""

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        """Return a number in [low, high]."""

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        """Return an integer in [low, high]."""

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        """Return one of the options."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether ``value`` is a finite number. Booleans do not count as numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER


def as_yaml(value: object) -> str:
    """Return ``value`` in the notation of an experiment file, cut to 80 characters."""
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
        text = "{" + ", ".join(f"{key}: {as_yaml(entry)}" for key, entry in value.items()) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(as_yaml(entry) for entry in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _check_bounds(low: object, high: object) -> None:
    if not (is_number(low) and is_number(high)):
        raise DomainError(
            "domain-bounds", "the bounds must be finite numbers", as_yaml([low, high]), "For words, use choice."
        )
    if not low < high:
        fix = "Write only the number if the parameter is not searched." if low == high else "Swap the bounds."
        raise DomainError("domain-bounds", "the lower bound must be below the upper bound", as_yaml([low, high]), fix)


def _check_points(points: int) -> None:
    if not (_is_integer(points) and points >= 1):
        raise DomainError("grid-points-invalid", "a grid needs at least one point", as_yaml(points))


@dataclass(frozen=True)
class _Range:
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def contains(self, value: object) -> bool:
        """Return whether ``value`` is a number within the closed bounds."""
        return is_number(value) and self.low <= value <= self.high


class Uniform(_Range):
    """Uniform range: every number in [low, high]."""

    def to_spec(self) -> dict[str, list[float]]:
        """Return the domain as an experiment file writes it."""
        return {"uniform": [self.low, self.high]}

    def grid(self, points: int) -> list[Scalar]:
        """Return ``points`` evenly spaced values, including both bounds. If ``points`` is 1, return only the middle."""
        _check_points(points)
        if points == 1:
            return [self.low + (self.high - self.low) / 2]
        inner = [self.low + (self.high - self.low) * i / (points - 1) for i in range(1, points - 1)]
        return [self.low, *inner, self.high]


class LogUniform(_Range):
    """Logarithmic range: numbers in [low, high], spread evenly on a logarithmic scale. ``low`` must be positive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self.low, self.high)

    def to_spec(self) -> dict[str, list[float]]:
        """Return the domain as an experiment file writes it."""
        return {"log_uniform": [self.low, self.high]}

    def grid(self, points: int) -> list[Scalar]:
        """Return ``points`` values in geometric progression, including both bounds.

        If ``points`` is 1, return only the geometric mean of the bounds.
        """
        _check_points(points)
        span = math.log(self.high) - math.log(self.low)
        if points == 1:
            return [self.low * math.exp(span / 2)]
        inner = [self.low * math.exp(span * i / (points - 1)) for i in range(1, points - 1)]
        return [self.low, *inner, self.high]


@dataclass(frozen=True)
class Integer:
    """Integer range [low, high]. If ``log`` is true, the scale is logarithmic, and ``low`` must be positive."""

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        if not (_is_integer(self.low) and _is_integer(self.high)):
            bounds, fix = as_yaml([self.low, self.high]), "For numbers that are not integers, use uniform."
            raise DomainError("domain-bounds", "the bounds must be integers of at most 2^53", bounds, fix)
        _check_bounds(self.low, self.high)
        if self.log:
            _check_positive(self.low, self.high)

    def contains(self, value: object) -> bool:
        """Return whether ``value`` is an integer within the closed bounds."""
        return _is_integer(value) and self.low <= value <= self.high

    def to_spec(self) -> dict[str, list[int]]:
        """Return the domain as an experiment file writes it."""
        return {"log_integer" if self.log else "integer": [self.low, self.high]}

    def grid(self, points: int) -> list[Scalar]:
        """Return the rounded values of the uniform or logarithmic grid, without repeated integers."""
        scale = LogUniform(self.low, self.high) if self.log else Uniform(self.low, self.high)
        return list(dict.fromkeys(round(float(value)) for value in scale.grid(points)))


@dataclass(frozen=True)
class Categorical:
    """Choice among different values that have no order."""

    options: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.options, tuple) or not self.options:
            rule, fix = "a choice needs a list of at least one option", "Write `{choice: [a, b]}`."
            raise DomainError("choice-invalid", rule, as_yaml(self.options), fix)
        for option in self.options:
            if not (isinstance(option, str | bool) or is_number(option)):
                raise DomainError(
                    "choice-invalid", "an option must be a string, a finite number, true or false", as_yaml(option)
                )
        if len({(type(option), option) for option in self.options}) != len(self.options):
            raise DomainError(
                "choice-invalid",
                "every option must occur only once",
                as_yaml(self.options),
                "Remove the repeated options.",
            )

    def contains(self, value: object) -> bool:
        """Return whether ``value`` is one of the options. 1, 1.0 and true are three different options."""
        return any(type(value) is type(option) and value == option for option in self.options)

    def to_spec(self) -> dict[str, list[Scalar]]:
        """Return the domain as an experiment file writes it."""
        return {"choice": list(self.options)}

    def grid(self, points: int) -> list[Scalar]:
        """Return all options. ``points`` has no effect."""
        _check_points(points)
        return list(self.options)


@dataclass(frozen=True)
class Fixed:
    """Domain of a single value, which is not searched."""

    value: Scalar

    def __post_init__(self) -> None:
        if not (isinstance(self.value, str | bool) or is_number(self.value)):
            raise DomainError(
                "value-not-plain", "a value must be a string, a finite number, true or false", as_yaml(self.value)
            )

    def contains(self, value: object) -> bool:
        """Return whether ``value`` equals the fixed value and has the same type."""
        return type(value) is type(self.value) and value == self.value

    def to_spec(self) -> Scalar:
        """Return the domain as an experiment file writes it."""
        return self.value

    def grid(self, points: int) -> list[Scalar]:
        """Return a list that contains only the fixed value."""
        _check_points(points)
        return [self.value]


@dataclass(frozen=True)
class Promoted:
    """Whole number that rises from level to level within every trial. It is not searched.

    Level i of n, counted from 0, starts after about i/n of the trial's steps. The plan of the search chooses the exact
    steps.

    Attributes:
        levels: at least two rising whole numbers of at least 1.
    """

    levels: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = isinstance(self.levels, tuple) and all(_is_integer(level) and level >= 1 for level in self.levels)
        if not (whole and len(self.levels) >= 2 and all(low < high for low, high in pairwise(self.levels))):
            rule = "promote needs a list of two or more whole numbers, all at least 1 and in rising order"
            fix = "Write for example `{promote: [1, 3, 10]}`, or one number for all steps."
            raise DomainError("promotion-invalid", rule, as_yaml(self.levels), fix)

    def contains(self, value: object) -> bool:
        """Return whether ``value`` is one of the levels."""
        return _is_integer(value) and value in self.levels

    def to_spec(self) -> dict[str, list[int]]:
        """Return the domain as an experiment file writes it: a mapping with the levels."""
        return {PROMOTE: list(self.levels)}

    def grid(self, points: int) -> list[Scalar]:
        """Return a list that contains only the last level, because every trial ends at this level."""
        _check_points(points)
        return [self.levels[-1]]


Domain: TypeAlias = Uniform | LogUniform | Integer | Categorical | Fixed | Promoted


def sample_domain(domain: Domain, name: str, suggest: Suggest) -> Scalar | dict[str, list[int]]:
    """Return a value of ``domain``. If the domain is searched, ``suggest`` chooses the value."""
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
    """Return the levels if ``value`` is the mapping of a promoted parameter. Return None for any other value."""
    if not (isinstance(value, Mapping) and set(value) == {PROMOTE}):
        return None
    return Promoted(tuple(value[PROMOTE])).levels


def _check_positive(low: float, high: float) -> None:
    if not low > 0:
        fix = "Use a larger lower bound, or use uniform or integer, which may start at 0."
        raise DomainError("domain-bounds", "a logarithmic scale needs a lower bound above 0", as_yaml([low, high]), fix)
