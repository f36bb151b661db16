"""Privacy loss distributions on a grid: one step of DP-SGD, and the composition of steps.

The formulas, and the order in which they are evaluated, are those of dp_accounting 0.6 (connect-the-dots, FFT). Its
loops over the points of the grid take most of the time of a plan, and its import takes a second, so they are written
here for numpy. A test compares every part with the library. Why the results are upper bounds is in `pld`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, expm1, floor, inf, isfinite, log, log1p
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import log_ndtr, ndtr, ndtri

__all__ = ["GridMasses", "LossDistribution"]

Floats: TypeAlias = NDArray[np.float64]

_STEP_TAIL = -50.0
"""Logarithm of the probability of the noise beyond which the loss of one step counts as infinite."""

_COMPOSED_TAIL = 1e-15
"""Probability that may be cut from the tails of a composition. It counts as infinite loss."""

_NOT_DECREASING = 1e-12
_CHERNOFF_ORDERS = 20
_FIRST_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class GridMasses:
    """Distribution of the privacy loss in one direction of adjacency: of a removed or of an added record.

    Attributes:
        grid: spacing of the losses, a power of two.
        lowest: smallest loss, in units of `grid`.
        masses: probability of each loss from `lowest` on, float64 of shape (points,). The FFT of a composition may
            leave values that are negative by a rounding error.
        infinite: probability of an infinite loss.
    """

    grid: float
    lowest: int
    masses: Floats
    infinite: float

    @property
    def losses(self) -> Floats:
        """Return the loss of each point, float64 of shape (points,)."""
        return np.asarray((np.arange(self.masses.size) + self.lowest) * self.grid, dtype=np.float64)

    def compose(self, other: GridMasses) -> GridMasses:
        """Return the composition with a distribution on the same grid."""
        if self.grid != other.grid:
            raise ValueError(f"Loss distributions on the grids {self.grid} and {other.grid} cannot be composed.")
        size = self.masses.size + other.masses.size - 1
        fast = _transform_length(size)
        both = fft.irfft(fft.rfft(self.masses, fast) * fft.rfft(other.masses, fast), fast)[:size]
        first = _points_within(both, _COMPOSED_TAIL / 2)
        last = max(size - _points_within(both[::-1], _COMPOSED_TAIL / 2), first + 1)
        kept = both[first:last].copy()
        kept[0] += np.sum(both[:first])
        infinite = self.infinite + other.infinite - self.infinite * other.infinite + float(np.sum(both[last:]))
        return GridMasses(self.grid, self.lowest + other.lowest + first, kept, infinite)

    def self_compose(self, steps: int) -> GridMasses:
        """Return the composition of `steps` such losses, at least 1."""
        first, last = _chernoff_range(self.masses, steps)
        size = last - first + 1
        fast = _transform_length(max(size, self.masses.size))
        whole = np.real(fft.ifft(_power(self.masses, fast, steps)))
        # The transform wraps around, so the range of interest starts at `first` modulo its length.
        kept = np.roll(whole, -first)[:size]
        infinite = _COMPOSED_TAIL - expm1(steps * log1p(-self.infinite))
        return GridMasses(self.grid, self.lowest * steps + first, kept, infinite)

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence at `epsilon`."""
        losses = self.losses
        first = int(np.searchsorted(losses, epsilon, side="right"))
        return float(self.infinite + (-np.expm1(epsilon - losses[first:]) * self.masses[first:]).sum())

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε ≥ 0 whose divergence is at most `delta`; `math.inf` if e^loss overflows first."""
        if self.infinite > delta:
            return inf
        downwards = self.masses[::-1]
        highest = self.lowest + self.masses.size - 1
        above, below = float(self.infinite), 0.0  # probability of losses above ε, with and without the record
        start, chunk = 0, _FIRST_CHUNK
        while start < downwards.size:
            masses = downwards[start : start + chunk]
            losses = (highest - np.arange(start, start + masses.size)) * self.grid
            with np.errstate(all="ignore"):
                weights = np.exp(-losses)
                aboves = np.add.accumulate(np.concatenate(([above], masses)))
                belows = np.add.accumulate(np.concatenate(([below], weights * masses)))
                crossing = np.log((aboves[:-1] - delta) / belows[:-1])
            found = (aboves[:-1] > delta) & (belows[:-1] > 0) & (crossing >= losses)
            too_large = np.isinf(weights)
            vanished = (aboves[1:] >= delta) & (belows[1:] == 0)  # e^-loss is 0 in double precision
            ends = found | too_large | vanished
            if ends.any():
                at = int(np.argmax(ends))
                if found[at]:
                    above, below = float(aboves[at]), float(belows[at])
                    break
                return inf if too_large[at] else max(0.0, float(losses[at]))
            above, below = float(aboves[-1]), float(belows[-1])
            start, chunk = start + masses.size, 2 * chunk
        if above <= below + delta:
            return 0.0
        return log((above - delta) / below) if below > 0 else inf


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Distribution of the privacy loss in both directions of adjacency. They are one object if they are equal."""

    remove: GridMasses
    add: GridMasses

    @classmethod
    def of_step(cls, *, sample_rate: float, noise: float, grid: float) -> Self:
        """Return the distribution of one Poisson-sampled Gaussian step, which dominates that of the true step."""
        removed = _step(sample_rate, noise, grid, added=False)
        return cls(removed, removed if sample_rate == 1.0 else _step(sample_rate, noise, grid, added=True))

    @classmethod
    def of_claim(cls, epsilon: float, delta: float, *, grid: float) -> Self:
        """Return a distribution that dominates every (`epsilon`, `delta`)-DP mechanism."""
        high, low = ceil(epsilon / grid), ceil(-epsilon / grid)
        masses = np.zeros(high - low + 1)
        masses[-1] = (1 - delta) / (1 + exp(-epsilon))
        masses[0] += (1 - delta) / (1 + exp(epsilon))
        either = GridMasses(grid, low, masses, delta)
        return cls(either, either)

    @property
    def directions(self) -> tuple[GridMasses, ...]:
        """Return the different directions: two, or one if they are equal."""
        return (self.remove,) if self.add is self.remove else (self.remove, self.add)

    def compose(self, other: LossDistribution) -> LossDistribution:
        """Return the composition with a distribution on the same grid."""
        removed = self.remove.compose(other.remove)
        if self.add is self.remove and other.add is other.remove:
            return LossDistribution(removed, removed)
        return LossDistribution(removed, self.add.compose(other.add))

    def self_compose(self, steps: int) -> LossDistribution:
        """Return the composition of `steps` such losses, at least 1."""
        removed = self.remove.self_compose(steps)
        return LossDistribution(removed, removed if self.add is self.remove else self.add.self_compose(steps))

    def delta(self, epsilon: float) -> float:
        """Return the larger divergence of the two directions at `epsilon`."""
        return max(direction.delta(epsilon) for direction in self.directions)

    def epsilon(self, delta: float) -> float:
        """Return the larger ε of the two directions at `delta`; `math.inf` if there is no bound."""
        return max(direction.epsilon(delta) for direction in self.directions)


def _step(rate: float, noise: float, grid: float, *, added: bool) -> GridMasses:
    """Return the loss of one step by connect-the-dots (Doroshenko et al. 2022, Algorithm 1)."""
    tail = float(ndtri(0.5 * exp(_STEP_TAIL))) * noise
    # The loss falls as the output grows. An added record shifts the other distribution to the right.
    low, high = (tail, 1 - tail) if added else (tail - 1, -tail)
    lowest = floor(_loss(high, rate, noise, added=added) / grid)
    highest = ceil(_loss(low, rate, noise, added=added) / grid)
    deltas = _step_deltas(np.arange(lowest, highest + 1, dtype=np.float64) * grid, rate, noise, added=added)
    if deltas.size == 1:
        return GridMasses(grid, lowest, 1 - deltas, float(deltas[0]))
    if np.any(np.diff(deltas) > _NOT_DECREASING):
        raise ValueError("The divergence of a step must not increase with epsilon.")
    deltas = np.minimum.accumulate(deltas)
    falls = np.diff(deltas)
    masses = np.zeros_like(deltas)
    masses[0] = 1 - deltas[0] + falls[0] / expm1(grid)
    masses[1:-1] = (falls[1:] - falls[:-1] * exp(grid)) / expm1(grid)
    masses[-1] = falls[-1] / expm1(-grid)
    return GridMasses(grid, lowest, np.maximum(0.0, masses), float(deltas[-1]))


def _loss(output: float, rate: float, noise: float, *, added: bool) -> float:
    """Return the privacy loss of one output of a step."""
    plain = (-0.5 - (-output if added else output)) / noise**2
    if rate == 1.0:
        return -plain if added else plain
    with_it, without = plain + np.log(rate), np.log(1 - rate)
    low, high = min(with_it, without), max(with_it, without)
    found = float(high + np.log1p(np.exp(low - high)))
    return -found if added else found


def _step_deltas(epsilons: Floats, rate: float, noise: float, *, added: bool) -> Floats:
    """Return the hockey-stick divergence of one step at each of `epsilons`, float64 of the same shape."""
    deltas = np.zeros_like(epsilons)
    inside = np.ones(epsilons.shape, dtype=bool)
    if rate < 1.0 and added:
        inside = epsilons < -log1p(-rate)  # above, the divergence is 0
    elif rate < 1.0:
        inside = epsilons > log1p(-rate)  # below, it is 1 − e^ε
        deltas[~inside] = -np.expm1(epsilons[~inside])
    epsilon = epsilons[inside]
    plain = _loss_without_sampling(-epsilon if added else epsilon, rate)
    # The outputs up to `output` are those whose loss is at least ε.
    if added:
        output = 1 + (-0.5 + plain * noise**2)
        above = ndtr(output / noise)
        log_below = log_ndtr((output - 1) / noise)
        if rate < 1.0:
            log_below = np.logaddexp(np.log1p(-rate) + log_ndtr(output / noise), np.log(rate) + log_below)
    else:
        output = -0.5 - plain * noise**2
        above = ndtr((output + 1) / noise)
        if rate < 1.0:
            above = (1 - rate) * ndtr(output / noise) + rate * above
        log_below = log_ndtr(output / noise)
    deltas[inside] = above - np.exp(epsilon + log_below)
    return np.clip(deltas, 0, 1)


def _loss_without_sampling(loss: Floats, rate: float) -> Floats:
    """Return log(1 + (e^`loss` − 1) / `rate`), the loss of the full batch; −∞ where `loss` is log(1 − `rate`)."""
    if rate == 1.0:
        return loss
    # Next to its limit the difference is a rounding error. Then no output is left out, which moves δ by at most 1e-16.
    least = log(1 - rate)
    at_limit = np.abs(loss - least) <= 1e-9 * np.maximum(np.abs(loss), abs(least))
    scaled, constant = loss + np.log(1 / rate), np.log(1 / rate - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = scaled + np.log1p(-np.exp(constant - scaled))
    found[loss == 0] = np.log(1 / rate + (1 - 1 / rate))
    found[at_limit | ~(constant < scaled)] = -inf
    return np.asarray(found)


def _transform_length(size: int) -> int:
    """Return the smallest of 4, 5, 6 or 7 times a power of two that is at least `size`.

    SciPy keeps tables for the last lengths of each transform. With few lengths, a long search keeps few tables.
    """
    unit = 1 << max((size - 1).bit_length() - 3, 0)
    return -(-size // unit) * unit


def _power(masses: Floats, size: int, steps: int) -> NDArray[np.complex128]:
    """Return the transform of `size` points, raised to the power `steps`.

    The second half of a real sequence's transform mirrors the first, bit for bit. Powers take most of the time.
    """
    half = fft.rfft(masses, size) ** steps
    return np.concatenate((half, np.conj(half[1 : (size + 1) // 2][::-1])))


def _chernoff_range(masses: Floats, steps: int) -> tuple[int, int]:
    """Return the range of sums of `steps` indices outside of which there is at most `_COMPOSED_TAIL` of probability."""
    first, last = 0, (masses.size - 1) * steps
    room = log(2 / _COMPOSED_TAIL)
    for sign in (-1, 1):
        # The moments at the orders ±1/n, …, ±20/n. Larger orders would overflow.
        factor = np.exp(sign * np.arange(masses.size) / masses.size)
        weighted = masses
        for place in range(1, _CHERNOFF_ORDERS + 1):
            weighted = weighted * factor
            moment = float(weighted.sum())
            bound = (steps * log(moment) + room) / (sign * place / masses.size) if moment > 0 else inf
            if not isfinite(bound):
                continue
            if sign > 0:
                last = min(last, ceil(bound))
            else:
                first = max(first, floor(bound))
    return first, last


def _points_within(masses: Floats, probability: float) -> int:
    """Return how many of the first points have together at most `probability`."""
    beyond = np.add.accumulate(masses) > probability
    return int(np.argmax(beyond)) if beyond.any() else int(masses.size)
