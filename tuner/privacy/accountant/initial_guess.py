"""Calculation of the least noise multiplier, and of initial guesses for it. A bad guess only costs time."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_UP, Context, Decimal
from math import erfc, exp, inf, isfinite, log, log1p, sqrt
from typing import TypeAlias

from tuner.errors import BudgetRefusedError

__all__ = [
    "FIVE_DIGITS",
    "NOISE_RANGE",
    "found_noise",
    "guess_gdp",
    "guess_noise",
    "guess_on_coarse_grid",
    "least_noise",
    "secant",
]

NOISE_RANGE = (0.05, 1e5)
"""Smallest and largest noise multiplier that `least_noise` tries."""

FIVE_DIGITS = Context(prec=5, rounding=ROUND_UP)
"""Decimal context that rounds numbers up to five significant digits."""

_CoarseCost: TypeAlias = Callable[..., float]
"""Function from a noise multiplier to ε, which may be `math.inf`.

Its argument `coarser` multiplies the spacing of the grid of privacy losses.
"""


def secant(seen: list[tuple[float, float]], target: float) -> float | None:
    """Return the x at which the line through the two (x, y) pairs `seen` has y = `target`; None if x is not unique."""
    if len(seen) < 2 or seen[0][0] == seen[1][0] or seen[0][1] == seen[1][1]:
        return None
    (x0, y0), (x1, y1) = seen
    return x1 + (target - y1) * (x1 - x0) / (y1 - y0)


def guess_gdp(epsilon: float, delta: float) -> float:
    """Return an approximation of the largest μ at which μ-GDP implies (ε, δ)-DP (Balle & Wang 2018, Theorem 8)."""

    def delta_of(mu: float) -> float:
        tail = 0.5 * erfc((epsilon / mu + mu / 2) / sqrt(2))
        return 0.5 * erfc((epsilon / mu - mu / 2) / sqrt(2)) - (exp(epsilon + log(tail)) if tail > 0 else 0.0)

    low, high = 1e-9, 1e4
    for _ in range(60):
        middle = sqrt(low * high)
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def guess_noise(spread: float, mu: float) -> float:
    """Return a guess of the noise multiplier with which all steps together are `mu`-GDP (Bu et al. 2020).

    `spread` is √Σ(sample_rate²) over all steps.
    """
    return min(max(1 / sqrt(log1p((mu / spread) ** 2)), NOISE_RANGE[0] * 2), NOISE_RANGE[1] / 2)


def guess_on_coarse_grid(cost: _CoarseCost, epsilon: float, noise: float) -> tuple[float, float]:
    """Return guesses of the noise multiplier whose ε is `epsilon`, and of the slope d log ε / d log noise there.

    `cost` computes ε on a grid of privacy losses. A grid eight times as coarse takes an eighth of the time. The error
    of ε is quadratic in the spacing of the grid. So ε on two coarse grids (`coarser` 8 and 4) predicts ε on the fine
    grid.
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
        # Change the noise by at least half a percent. A smaller change would measure rounding and not the slope.
        step = min(max((log(epsilon) - log(value)) / slope, -1.0), 1.0)
        noise *= exp(step if abs(step) > 5e-3 or len(seen) == 2 else 5e-3)
        noise = min(max(noise, NOISE_RANGE[0]), NOISE_RANGE[1])
    coarse, finer = cost(noise, coarser=8), cost(noise, coarser=4)
    fine = finer - (coarse - finer) * (4**2 - 1) / (8**2 - 4**2)
    if not (isfinite(fine) and fine > 0):
        return noise, slope
    # Without the limits, exp would overflow if even the largest noise costs far more than epsilon.
    return noise * exp(min(max((log(epsilon) - log(fine)) / slope, -20.0), 20.0)), slope


def least_noise(
    cost: Callable[[float], float], epsilon: float, *, guess: float, slope: float = -1.0, low: float = NOISE_RANGE[0]
) -> float | None:
    """Return the least noise multiplier, to five significant digits, at which `cost` is at most `epsilon`.

    The cost must decrease as the noise grows. The cost of the result is computed, not extrapolated. Unless the result
    is `low`, the cost at the next smaller five-digit number is computed too, and is above `epsilon`. `guess` and
    `slope` change only the running time. The result is None if even the largest noise costs more than `epsilon`.

    Args:
        cost: function from the noise multiplier to ε, which may be `math.inf`.
        epsilon: largest allowed cost, above 0.
        guess: first noise to try.
        slope: estimate of d log cost / d log noise, below 0.
        low: smallest noise to try. The largest is 100 000.
    """
    least, high = (Decimal(repr(bound)) for bound in (low, NOISE_RANGE[1]))
    below, known_high, turn = least, False, 0
    seen: list[tuple[float, float]] = []
    while FIVE_DIGITS.next_plus(below) < high or not known_high:
        turn += 1
        largest = FIVE_DIGITS.next_minus(high) if known_high else high
        noise = min(max(FIVE_DIGITS.create_decimal_from_float(guess), FIVE_DIGITS.next_plus(below)), largest)
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
        # The slope is reliable only near the last noise tried. Elsewhere, and every fourth turn, halve the range.
        trusted = abs(step) < 1 and turn % 4
        guess = float(noise) * exp(step) if trusted else sqrt(float(below) * float(high))
    return float(least) if below == least and cost(float(least)) <= epsilon else float(high)


def found_noise(noise: float | None, what: str, *, epsilon: float, delta: float) -> float:
    """Return `noise`; if it is None, raise `BudgetRefusedError`. In the message, `what` describes the steps or runs."""
    if noise is None:
        raise BudgetRefusedError(
            "no-noise-fits",
            f"No noise multiplier up to {NOISE_RANGE[1]:.0f} makes {what} fit ε = {epsilon!r} at δ = {delta!r}. Raise "
            "epsilon, or plan fewer trials or epochs.",
        )
    return noise
