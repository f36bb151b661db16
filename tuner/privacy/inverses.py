"""Where to look first and in which digits: helpers of the inverses, none of which makes a claim."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from math import erfc, exp, log, sqrt

__all__ = ["guess_gdp", "next_up", "previous", "round_up", "secant"]

_DIGITS = 5


def secant(seen: list[tuple[float, float]], target: float) -> float | None:
    """Where the line through the last two points reaches `target`; None where they do not make a line."""
    if len(seen) < 2 or seen[0][0] == seen[1][0] or seen[0][1] == seen[1][1]:
        return None
    (x0, y0), (x1, y1) = seen
    return x1 + (target - y1) * (x1 - x0) / (y1 - y0)


def guess_gdp(epsilon: float, delta: float) -> float:
    """μ of the Gaussian mechanism that is (ε, δ)-DP (Balle & Wang 2018, Theorem 8): a first guess, never a claim."""

    def delta_of(mu: float) -> float:
        tail = 0.5 * erfc((epsilon / mu + mu / 2) / sqrt(2))
        return 0.5 * erfc((epsilon / mu - mu / 2) / sqrt(2)) - (exp(epsilon + log(tail)) if tail > 0 else 0.0)

    low, high = 1e-9, 1e4
    for _ in range(60):
        middle = sqrt(low * high)
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def _ulp(value: Decimal) -> Decimal:
    return Decimal(1).scaleb(value.adjusted() - _DIGITS + 1)


def round_up(value: float) -> Decimal:
    """The least number of five significant digits that is not below `value`."""
    exact = Decimal(value)
    return exact.quantize(_ulp(exact), rounding=ROUND_UP)


def next_up(value: Decimal) -> Decimal:
    """One more in the fifth digit."""
    return value + _ulp(value)


def previous(value: Decimal) -> Decimal:
    """One less in the fifth digit; below a power of ten that digit is ten times finer."""
    below = value - _ulp(value)
    return below if below.adjusted() == value.adjusted() else value - _ulp(below)
