"""Axis: one searched parameter on the scale on which it is modelled."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log, log1p
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["ParameterAxis", "Warp"]

Warp = Literal["log", "log1p", "linear"]
Array = NDArray[np.float64]

GRID = 49
"""Number of points of a curve."""


@dataclass(frozen=True)
class ParameterAxis:
    """Parameter between two bounds, mapped onto [0, 1].

    The warp is `log1p` for a radius (its left end may be 0), `log` for a rate, and `linear` otherwise.
    """

    low: float
    high: float
    warp: Warp = "log1p"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"The lower bound must be below the upper bound (got {self.low!r} and {self.high!r}).")
        if self.low < {"log": 5e-324, "log1p": 0.0}.get(self.warp, -float("inf")):
            raise ValueError(f"An axis with the scale {self.warp} cannot start at {self.low!r}.")

    def place(self, value: float) -> float:
        """Return the place of a value: 0 at `low`, 1 at `high`, below 0 or above 1 outside the bounds."""
        low, high = self._warped(self.low), self._warped(self.high)
        return (self._warped(value) - low) / (high - low)

    def value(self, place: float) -> float:
        """Return the value at a place, limited to the bounds."""
        low, high = self._warped(self.low), self._warped(self.high)
        warped = low + place * (high - low)
        back = exp(warped) if self.warp == "log" else expm1(warped) if self.warp == "log1p" else warped
        return min(max(back, self.low), self.high)

    @property
    def grid(self) -> Array:
        """Places of a curve's points, including both ends."""
        return np.linspace(0.0, 1.0, GRID)

    def _warped(self, value: float) -> float:
        return log(value) if self.warp == "log" else log1p(value) if self.warp == "log1p" else float(value)
