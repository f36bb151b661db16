"""Privacy losses of one Poisson-sampled Gaussian step, split onto a grid as in items 1 and 4 of `loss`'s docstring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, erfc, expm1, floor, inf, log, log1p, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Masses", "Part", "TooLargeError", "longest_loss", "masses_of", "merged"]

Array = npt.NDArray[np.float64]


class Part(NamedTuple):
    """A mechanism and its number of steps."""

    sample_rate: float
    noise_multiplier: float
    steps: int


class TooLargeError(ValueError):
    """A composition needs more grid points or larger losses than the second accountant allows."""


def merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts, sorted and merged: the steps of equal mechanisms are added, and parts without steps removed.

    Raises:
        ValueError: a value is out of range or NaN.
    """
    steps: dict[tuple[float, float], int] = {}
    for rate, noise, count in parts:
        if not (0 < rate <= 1 and 0 < noise < inf and count >= 0 and count == int(count)):
            raise ValueError(
                f"steps need a rate in (0, 1], finite noise above 0 and a whole count (got {(rate, noise, count)!r})"
            )
        steps[float(rate), float(noise)] = steps.get((float(rate), float(noise)), 0) + int(count)
    return tuple(Part(rate, noise, count) for (rate, noise), count in sorted(steps.items()) if count)


@dataclass(frozen=True)
class Masses:
    """Split losses of `steps` equal steps. Each step has the mass `weights[i]` at the loss `places[i]`·h.

    h is the distance between grid points. The weights sum to 1 minus the mass of the tails that were cut off.
    """

    places: Array
    weights: Array
    log_weights: Array
    steps: int

    def log_moment(self, tilt: float, grid: float) -> float:
        """Return log E[e^{tilt·Y}] for one step's split loss Y. `grid` is h."""
        exponents = self.log_weights + tilt * grid * self.places
        top = float(exponents.max())
        return top + log(float(np.exp(exponents - top).sum()))

    def coarse(self) -> Masses:
        """Return the losses merged into at most 4096 groups. With fewer losses, θ and the window are found faster."""
        group = max(1, ceil(len(self.weights) / 4096))
        pad = -len(self.weights) % group
        weights = np.pad(self.weights, (0, pad)).reshape(-1, group)
        places = (self.places[0] + np.arange(len(self.weights) + pad)).reshape(-1, group)
        mass = weights.sum(1)
        kept = mass > 0
        return Masses((weights * places).sum(1)[kept] / mass[kept], mass[kept], np.log(mass[kept]), self.steps)


def masses_of(parts: Sequence[Part], grid: float, tail: float, *, adding: bool) -> list[Masses]:
    """Return the split losses of one step of each part, in one direction of adjacency.

    Args:
        parts: the steps.
        grid: h, the distance between the losses on the grid.
        tail: largest total probability of the tails that are cut off from the losses of each step.
        adding: True to compare (N, M), which adds a record; False to compare (M, N), which removes a record.

    Raises:
        TooLargeError: a loss is too large for a double.
    """
    found = []
    for part in parts:
        first, weights = _split(part.sample_rate, part.noise_multiplier, grid, tail, adding)
        with np.errstate(divide="ignore"):
            found.append(Masses(first + np.arange(len(weights), dtype=float), weights, np.log(weights), part.steps))
    return found


def longest_loss(part: Part, tail: float) -> float:
    """Return the distance between the smallest and the largest loss of a step after its tails are cut off."""
    reach = sqrt(2 * log(1 / tail)) * part.noise_multiplier
    rate, noise = part.sample_rate, part.noise_multiplier
    return _loss(1 + reach, rate, noise) - _loss(-reach, rate, noise)


@lru_cache(maxsize=8)
def _split(rate: float, noise: float, grid: float, tail: float, adding: bool) -> tuple[int, Array]:  # noqa: FBT001
    """Return the index of the first grid point, and the masses of one step from this point on."""
    reach = sqrt(2 * log(1 / tail)) * noise
    start = floor(_loss(-reach, rate, noise) / grid)
    end = ceil(_loss(1 + reach, rate, noise) / grid)
    losses = grid * np.arange(start, end + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = losses if rate == 1 else np.log((np.expm1(losses) + rate) / rate)
        edges = np.asarray(0.5 + noise**2 * inner, dtype=np.float64)
    edges[np.isnan(edges)] = -np.inf  # no outcome has a loss below log(1 − q)
    null = _normal_bins(edges / noise)
    mixed = (1 - rate) * null + rate * _normal_bins((edges - 1) / noise)
    up = -expm1(-grid)
    if adding:
        total, part = null, (null - mixed * np.exp(-losses[1:])) / up
    else:
        total, part = mixed, (mixed - null * np.exp(losses[:-1])) / up
    part = np.clip(part, 0.0, total)  # only rounding errors are outside this range
    weights = np.zeros(len(losses))
    if adding:  # the losses have the opposite sign, so the bins are in reverse order
        weights[1:] += part[::-1]
        weights[:-1] += (total - part)[::-1]
        return -end, weights
    weights[1:] += part
    weights[:-1] += total - part
    return start, weights


def _loss(x: float, rate: float, noise: float) -> float:
    exponent = (2 * x - 1) / (2 * noise**2)
    found = exponent + log(rate) if exponent > 300 else log1p(rate * expm1(exponent)) if rate < 1 else exponent
    if not abs(found) < 600:
        raise TooLargeError(
            f"losses of one step exceed the limit of 600 at sample_rate {rate!r}, noise_multiplier {noise!r}"
        )
    return found


def _normal_bins(edges: Array) -> Array:
    """Return the standard normal probability between each pair of neighbouring edges, computed from the nearer tail."""
    tails = 0.5 * np.array([erfc(edge) for edge in (np.abs(edges) / sqrt(2)).tolist()])
    above = edges >= 0
    lower = np.where(above, 1 - tails, tails)
    return np.where(above[:-1], tails[:-1] - tails[1:], lower[1:] - lower[:-1])
