"""Noise of the input perturbation paper (Kang et al., Theorem 1), for study. It guarantees nothing."""

from __future__ import annotations

from math import log, sqrt

__all__ = ["published_noise"]


def published_noise(
    *,
    records: int,
    steps: int,
    epsilon: float,
    delta: float,
    gradient_norm: float,
    strong_convexity: float,
    constant: float,
) -> float:
    """Return s with s² = c·G²·T·log(1/δ)/(n(n − 1)·√Δ·ε²), the standard deviation of the noise on each feature.

    The paper leaves the constant c open. Its theorem is false for every c, because s·√n tends to 0 as n grows, while
    the sum of n gradients moves by a constant if one record changes.
    """
    variance = constant * gradient_norm**2 * steps * log(1 / delta)
    return sqrt(variance / (max(records * (records - 1), 1) * sqrt(strong_convexity) * epsilon**2))
