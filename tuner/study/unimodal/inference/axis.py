"""Axis of a searched parameter, which maps the parameter's values to [0, 1] for the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, expm1, log, log1p
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "ParameterAxis", "Warp"]

Warp = Literal["log", "log1p", "linear"]
Array = NDArray[np.float64]

GRID = 49
"""Number of positions at which a curve is computed."""

_SCALES: Final[Mapping[Warp, tuple[Callable[[float], float], Callable[[float], float]]]] = {
    "log": (log, exp),
    "log1p": (log1p, expm1),
    "linear": (float, float),
}
"""For each scale, the function that the scale applies to a value, and the inverse function."""


@dataclass(frozen=True)
class ParameterAxis:
    """Mapping that assigns positions in [0, 1] to the values of a parameter between two bounds.

    The scale `warp` is for example `log` for a learning rate, or `log1p` for a radius, whose lower bound may be 0.
    """

    low: float
    high: float
    warp: Warp = "log1p"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"The lower bound must be below the upper bound (got {self.low!r} and {self.high!r}).")
        if self.low < {"log": 5e-324, "log1p": 0.0}.get(self.warp, -float("inf")):
            least = "above 0" if self.warp == "log" else "at least 0"
            raise ValueError(f"The lower bound of a {self.warp} axis must be {least} (got {self.low!r}).")

    def place(self, value: float) -> float:
        """Return the position of a value. It is 0 at `low`, 1 at `high`, and outside [0, 1] beyond these bounds."""
        warp, _ = _SCALES[self.warp]
        return (warp(value) - warp(self.low)) / (warp(self.high) - warp(self.low))

    def value(self, place: float) -> float:
        """Return the value at a position. Beyond the axis, return the nearer bound."""
        warp, inverse = _SCALES[self.warp]
        value = inverse(warp(self.low) + place * (warp(self.high) - warp(self.low)))
        return min(max(value, self.low), self.high)

    @property
    def grid(self) -> Array:
        """Positions at which a curve is computed, from 0 to 1 inclusive."""
        return np.linspace(0.0, 1.0, GRID)
