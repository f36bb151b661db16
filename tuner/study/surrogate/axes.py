"""Axes of a search space: its numbers and choices as coordinates, and points that fill it.

The axes are found by asking the space for configurations, so any `Space` has them, conditional parameters included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, isfinite, log
from typing import Any

import numpy as np

from search_spaces.domains import Scalar, is_number
from tuner.study.gaussian_process import Array, spread_out
from tuner.study.suggest import Space

__all__ = ["Axes", "Choice", "Number"]


@dataclass(frozen=True)
class Number:
    """Range of a parameter that is a number.

    Attributes:
        name: flat name of the parameter.
        low: lower bound.
        high: upper bound.
        log: whether the coordinate is the natural logarithm of the value.
        whole: whether values are whole numbers.
    """

    name: str
    low: float
    high: float
    log: bool
    whole: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest coordinate."""
        return (log(self.low), log(self.high)) if self.log else (self.low, self.high)

    @property
    def unit(self) -> float:
        """Coordinate difference over which scores usually differ: half the range; in logarithms from 1 to 3."""
        low, high = self.bounds
        half = (high - low) / 2
        return min(max(half, 1.0), 3.0) if self.log else half

    def coordinate(self, value: object) -> float:
        """Return the coordinate of a value, or NaN if the value is not a number that has one."""
        if not is_number(value) or (self.log and value <= 0):
            return float("nan")
        return log(value) if self.log else float(value)

    def value(self, coordinate: float) -> float | int:
        """Return the value at a coordinate, moved into the range."""
        low, high = self.bounds
        inside = min(max(coordinate, low), high)
        found = exp(inside) if self.log else inside
        found = min(max(round(found) if self.whole else found, self.low), self.high)
        return int(found) if self.whole else float(found)


@dataclass(frozen=True)
class Choice:
    """Parameter that has one of several options."""

    name: str
    options: tuple[Scalar, ...]

    def index(self, value: object) -> int:
        """Return the index of an option, or −1 if the value is no option."""
        same = (i for i, option in enumerate(self.options) if option == value and type(option) is type(value))
        return next(same, -1)


@dataclass
class _Walk:
    """Implementation of `Suggest` that takes values from fixed shares, and notes every axis it meets.

    Attributes:
        shares: position of each parameter in its range, from 0 to 1. Without one, the position is 0.
        taken: values of the searched parameters.
    """

    shares: Mapping[str, float]
    numbers: dict[str, Number] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    taken: dict[str, Scalar] = field(default_factory=dict)

    def _number(self, axis: Number) -> float | int:
        self.numbers[axis.name] = axis
        low, high = axis.bounds
        self.taken[axis.name] = found = axis.value(low + (high - low) * self.shares.get(axis.name, 0.0))
        return found

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return float(self._number(Number(name, low, high, log, whole=False)))

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return int(self._number(Number(name, low, high, log, whole=True)))

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        self.choices[name] = Choice(name, options)
        index = min(int(self.shares.get(name, 0.0) * len(options)), len(options) - 1)
        self.taken[name] = found = options[index]
        return found


@dataclass(frozen=True)
class Axes:
    """Searched parameters of a space that have more than one value."""

    space: Space
    numbers: tuple[Number, ...]
    choices: tuple[Choice, ...]

    @classmethod
    def of(cls, space: Space) -> Axes:
        """Find the axes of a space, by asking for a configuration with every option of every choice."""
        numbers: dict[str, Number] = {}
        choices: dict[str, Choice] = {}
        todo: list[dict[str, float]] = [{}]
        while todo:
            shares = todo.pop()
            walk = _Walk(shares)
            space.sample(walk)
            numbers = walk.numbers | numbers
            for name, choice in walk.choices.items():
                if name not in choices:
                    choices[name] = choice
                    size = len(choice.options)
                    todo.extend({**shares, name: (index + 0.5) / size} for index in range(1, size))
        ordered = sorted(numbers), sorted(choices)
        return cls(
            space,
            tuple(numbers[name] for name in ordered[0] if numbers[name].low < numbers[name].high),
            tuple(choices[name] for name in ordered[1] if len(choices[name].options) > 1),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, numbers before choices."""
        return (*(axis.name for axis in self.numbers), *(axis.name for axis in self.choices))

    @property
    def size(self) -> int:
        """Number of axes."""
        return len(self.numbers) + len(self.choices)

    def at(self, shares: Sequence[float]) -> dict[str, Scalar]:
        """Return the values of the searched parameters at a point of the unit cube, numbers before choices."""
        walk = _Walk(dict(zip(self.names, shares, strict=True)))
        self.space.sample(walk)
        return walk.taken

    def kept(self, parameters: Mapping[str, object]) -> dict[str, object]:
        """Return the searched parameters of a configuration."""
        return {name: parameters[name] for name in self.names if name in parameters}

    def fill(self, count: int, seed: int) -> list[dict[str, Scalar]]:
        """Return configurations that are spread evenly over the space."""
        return [self.at(list(point)) for point in spread_out(count, self.size, seed)]

    def shares(self, parameters: Mapping[str, object]) -> Array:
        """Return the point of the unit cube of a configuration. Absent parameters are at the middle."""
        found = np.full(self.size, 0.5)
        for place, axis in enumerate(self.numbers):
            low, high = axis.bounds
            at = axis.coordinate(parameters.get(axis.name))
            if isfinite(at):
                found[place] = min(max((at - low) / (high - low), 0.0), 1.0)
        for place, choice in enumerate(self.choices, start=len(self.numbers)):
            index = choice.index(parameters.get(choice.name))
            if index >= 0:
                found[place] = (index + 0.5) / len(choice.options)
        return found

    def around(
        self, centres: Sequence[Mapping[str, object]], count: int, reach: float, seed: int
    ) -> list[dict[str, Any]]:
        """Return `count` configurations near each centre. `reach` is the standard deviation as a share of a range."""
        random = np.random.default_rng([seed, count])
        found = []
        for centre in centres:
            at = self.shares(centre)
            for _ in range(count):
                moved = at.copy()
                many = len(self.numbers)
                steps = random.normal(size=many) * reach * (random.random(many) < max(0.5, 2.0 / max(many, 1)))
                moved[:many] = np.clip(moved[:many] + steps, 0.0, 1.0)
                flips = random.random(len(self.choices)) < 0.2
                moved[many:] = np.where(flips, random.random(len(self.choices)), moved[many:])
                found.append(self.at(list(moved)))
        return found
