"""Initial guesses for noise calibration, and the search for the least noise. Every result is checked again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_UP, Decimal
from math import erfc, exp, inf, isfinite, log, log1p, sqrt
from typing import TypeAlias

__all__ = [
    "NOISE_RANGE",
    "guess_gdp",
    "guess_noise",
    "guess_on_coarse_grid",
    "least_noise",
    "previous",
    "round_up",
    "secant",
]

NOISE_RANGE = (0.05, 1e5)
"""The least and the largest noise multiplier that `least_noise` tries."""

_DIGITS = 5

_CoarseCost: TypeAlias = Callable[..., float]
"""Noise multiplier → ε on a grid `coarser` (a keyword) times as coarse as a claim's; may be `math.inf`."""


def secant(seen: list[tuple[float, float]], target: float) -> float | None:
    """Return the x at which the line through two (x, y) points reaches y = `target`; None if there is no such line."""
    if len(seen) < 2 or seen[0][0] == seen[1][0] or seen[0][1] == seen[1][1]:
        return None
    (x0, y0), (x1, y1) = seen
    return x1 + (target - y1) * (x1 - x0) / (y1 - y0)


def guess_gdp(epsilon: float, delta: float) -> float:
    """Return a guess of μ for the Gaussian mechanism that is (ε, δ)-DP (Balle & Wang 2018, Theorem 8)."""

    def delta_of(mu: float) -> float:
        tail = 0.5 * erfc((epsilon / mu + mu / 2) / sqrt(2))
        return 0.5 * erfc((epsilon / mu - mu / 2) / sqrt(2)) - (exp(epsilon + log(tail)) if tail > 0 else 0.0)

    low, high = 1e-9, 1e4
    for _ in range(60):
        middle = sqrt(low * high)
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def guess_noise(spread: float, mu: float) -> float:
    """Return a guess of the noise with which steps of `spread` = √Σ(sample_rate²) are `mu`-GDP (Bu et al. 2020)."""
    return min(max(1 / sqrt(log1p((mu / spread) ** 2)), NOISE_RANGE[0] * 2), NOISE_RANGE[1] / 2)


def guess_on_coarse_grid(cost: _CoarseCost, epsilon: float, noise: float) -> tuple[float, float]:
    """Return a guess of the noise that costs `epsilon`, and of d log ε / d log noise at that noise.

    A grid eight times as coarse takes an eighth of the time. The error is quadratic in the interval, so the costs at
    factors 8 and 4 predict the cost at factor 1.
    """
    slope = -1.0
    seen: list[tuple[float, float]] = []
    for _ in range(8):
        value = cost(noise, coarser=8)
        if not isfinite(value):
            noise *= 1.5
            continue
        seen = [*seen[-1:], (log(noise), log(value))]
        if len(seen) == 2 and abs(seen[0][0] - seen[1][0]) > 1e-6:
            slope = min((seen[1][1] - seen[0][1]) / (seen[1][0] - seen[0][0]), -0.1)
        if len(seen) == 2 and abs(log(epsilon) - log(value)) < 1e-3:
            break
        # At least half a percent, so that the next slope is measured on the curve and not on its rounding.
        step = min(max((log(epsilon) - log(value)) / slope, -1.0), 1.0)
        noise *= exp(step if abs(step) > 5e-3 or len(seen) == 2 else 5e-3)
        noise = min(max(noise, NOISE_RANGE[0]), NOISE_RANGE[1])
    coarse, finer = cost(noise, coarser=8), cost(noise, coarser=4)
    fine = finer - (coarse - finer) * (4**2 - 1) / (8**2 - 4**2)
    if not (isfinite(fine) and fine > 0):
        return noise, slope
    # If even the most noise costs far more than epsilon, the line would lead beyond the largest double.
    return noise * exp(min(max((log(epsilon) - log(fine)) / slope, -20.0), 20.0)), slope


def least_noise(
    cost: Callable[[float], float], epsilon: float, *, guess: float, slope: float = -1.0, low: float = NOISE_RANGE[0]
) -> float | None:
    """Return the least noise multiplier of five significant digits whose cost is at most `epsilon`; None if none fits.

    The cost must fall with the noise. Then the result fits, and one less in the fifth digit does not, unless the
    result is `low`: both were computed. `guess` and `slope` are only the starting point.

    Args:
        cost: noise multiplier → ε; may be `math.inf`.
        epsilon: the limit, above 0.
        guess: first noise to try.
        slope: estimate of d log cost / d log noise, below 0.
        low: least noise to try; the largest is 100 000.
    """
    least, high = (Decimal(repr(bound)) for bound in (low, NOISE_RANGE[1]))
    below, known_high, turn = least, False, 0
    seen: list[tuple[float, float]] = []
    while _next_up(below) < high or not known_high:
        turn += 1
        noise = min(max(round_up(guess), _next_up(below)), previous(high) if known_high else high)
        value = cost(float(noise))
        if value <= epsilon:
            high, known_high = noise, True
        elif noise == high:
            return None
        else:
            below = noise
        if isfinite(value):
            seen = [*seen[-1:], (log(noise), log(value))]
            if len(seen) == 2 and abs(seen[0][0] - seen[1][0]) > 1e-3:
                slope = min((seen[1][1] - seen[0][1]) / (seen[1][0] - seen[0][0]), -0.05)
        step = (log(epsilon) - log(value)) / slope if isfinite(value) else inf
        # The slope is good only near the last point. Otherwise, and every fourth time, halve the range.
        trusted = abs(step) < 1 and turn % 4
        guess = float(noise) * exp(step) if trusted else sqrt(float(below) * float(high))
    return float(least) if below == least and cost(float(least)) <= epsilon else float(high)


def _ulp(value: Decimal) -> Decimal:
    return Decimal(1).scaleb(value.adjusted() - _DIGITS + 1)


def round_up(value: float) -> Decimal:
    """Return `value`, rounded up to five significant digits."""
    exact = Decimal(value)
    return exact.quantize(_ulp(exact), rounding=ROUND_UP)


def _next_up(value: Decimal) -> Decimal:
    """Return the next larger number of five significant digits."""
    return value + _ulp(value)


def previous(value: Decimal) -> Decimal:
    """Return the next smaller number of five significant digits."""
    below = value - _ulp(value)
    return below if below.adjusted() == value.adjusted() else value - _ulp(below)
