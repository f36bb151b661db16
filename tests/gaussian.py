"""The Gaussian mechanism in closed form."""

from __future__ import annotations

from math import erfc, exp, sqrt


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of a Gaussian mechanism with sensitivity / noise `mu`, at any real ε (Balle & Wang 2018, Theorem 8)."""
    near, far = (0.5 * erfc((epsilon / mu + sign * mu / 2) / sqrt(2)) for sign in (-1, 1))
    return near - exp(epsilon) * far
