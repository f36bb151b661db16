"""Initial guesses for noise calibration. Results are always re-checked, so nothing here makes a claim."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_UP, Decimal
from math import erfc, exp, inf, isfinite, log, log1p, sqrt
from typing import Protocol

__all__ = [
    "NOISE_RANGE",
    "CoarseCost",
    "guess_gdp",
    "guess_noise",
    "guess_on_coarse_grid",
    "least_noise",
    "next_up",
    "previous",
    "round_up",
    "secant",
]

NOISE_RANGE = (0.05, 1e5)
"""The least and the largest noise multiplier that `least_noise` tries."""

_DIGITS = 5


def secant(seen: list[tuple[float, float]], target: float) -> float | None:
    """Return where the line through the last two points reaches `target`; None where they do not make a line."""
    if len(seen) < 2 or seen[0][0] == seen[1][0] or seen[0][1] == seen[1][1]:
        return None
    (x0, y0), (x1, y1) = seen
    return x1 + (target - y1) * (x1 - x0) / (y1 - y0)


def guess_gdp(epsilon: float, delta: float) -> float:
    """Return μ of the Gaussian mechanism that is (ε, δ)-DP (Balle & Wang 2018, Theorem 8): a guess, never a claim."""

    def delta_of(mu: float) -> float:
        tail = 0.5 * erfc((epsilon / mu + mu / 2) / sqrt(2))
        return 0.5 * erfc((epsilon / mu - mu / 2) / sqrt(2)) - (exp(epsilon + log(tail)) if tail > 0 else 0.0)

    low, high = 1e-9, 1e4
    for _ in range(60):
        middle = sqrt(low * high)
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def guess_noise(spread: float, mu: float) -> float:
    """Return the noise at which steps with `spread` = √Σ(sample_rate²) are about `mu`-GDP (Bu et al. 2020): a guess."""
    return min(max(1 / sqrt(log1p((mu / spread) ** 2)), NOISE_RANGE[0] * 2), NOISE_RANGE[1] / 2)


class CoarseCost(Protocol):
    """ε of a noise multiplier on a grid `coarser` times as coarse as that of the claim; may be `math.inf`."""

    def __call__(self, noise: float, *, coarser: int) -> float:
        """Return ε at `noise`."""
        ...


def guess_on_coarse_grid(cost: CoarseCost, epsilon: float, noise: float) -> tuple[float, float]:
    """Return a noise whose cost is near `epsilon`, and d log ε / d log noise there: a guess, never a claim.

    A grid eight times as coarse takes an eighth of the time. The error is quadratic in the interval, so the difference
    between eight and four times as coarse shows the one between four times and the grid of the claim.
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
        # At least half a percent, so that the next secant measures the curve and not rounding.
        step = min(max((log(epsilon) - log(value)) / slope, -1.0), 1.0)
        noise *= exp(step if abs(step) > 5e-3 or len(seen) == 2 else 5e-3)
        noise = min(max(noise, NOISE_RANGE[0]), NOISE_RANGE[1])
    coarse, finer = cost(noise, coarser=8), cost(noise, coarser=4)
    fine = finer - (coarse - finer) * (4**2 - 1) / (8**2 - 4**2)
    if not (isfinite(fine) and fine > 0):
        return noise, slope
    # Where even the most noise costs far more than epsilon, the line leads out of the range, and out of the doubles.
    return noise * exp(min(max((log(epsilon) - log(fine)) / slope, -20.0), 20.0)), slope


def least_noise(
    cost: Callable[[float], float], epsilon: float, *, guess: float, slope: float = -1.0, low: float = NOISE_RANGE[0]
) -> float | None:
    """Return the least noise multiplier of five significant digits whose cost is at most `epsilon`; None if none fits.

    Exact at the edge where the cost falls with the noise: the result was tried and fits, and one less in the fifth
    digit was tried and does not (unless it is `low`). The guess and the slope only say where to start.

    Args:
        cost: noise multiplier → ε; may be `math.inf`.
        epsilon: the limit, above 0.
        guess: of the noise.
        slope: of d log cost / d log noise near it, below 0.
        low: the least noise.

    Returns:
        The noise, or None where none up to 100 000 fits.
    """
    least, high = (Decimal(repr(bound)) for bound in (low, NOISE_RANGE[1]))
    below, known_high, turn = least, False, 0
    seen: list[tuple[float, float]] = []
    while next_up(below) < high or not known_high:
        turn += 1
        noise = min(max(round_up(guess), next_up(below)), previous(high) if known_high else high)
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
        # The slope holds near the last point: far away, or where it misleads, halving is safer.
        trusted = abs(step) < 1 and turn % 4
        guess = float(noise) * exp(step) if trusted else sqrt(float(below) * float(high))
    return float(least) if below == least and cost(float(least)) <= epsilon else float(high)


def _ulp(value: Decimal) -> Decimal:
    return Decimal(1).scaleb(value.adjusted() - _DIGITS + 1)


def round_up(value: float) -> Decimal:
    """Return `value`, rounded up to five significant digits."""
    exact = Decimal(value)
    return exact.quantize(_ulp(exact), rounding=ROUND_UP)


def next_up(value: Decimal) -> Decimal:
    """Return one more in the fifth digit."""
    return value + _ulp(value)


def previous(value: Decimal) -> Decimal:
    """Return one less in the fifth digit; below a power of ten that digit is ten times finer."""
    below = value - _ulp(value)
    return below if below.adjusted() == value.adjusted() else value - _ulp(below)
