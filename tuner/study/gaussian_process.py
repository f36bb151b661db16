"""Gaussian process regression, and integration over its hyper-parameters. This module knows nothing about searches.

All functions work on a stack of B hyper-parameter points at once (Rasmussen & Williams 2006, chapters 2 and 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Solved", "integrate", "matern", "solve", "spread_out", "squared_exponential"]

Array: TypeAlias = NDArray[np.float64]

_JITTER = 1e-8
"""Relative addition to the diagonal of a covariance. Without it, rounding can make the covariance indefinite."""

_MOVES = 10
"""Number of Metropolis steps after each increase of the exponent of the likelihood."""

_ACCEPTED = 0.25
"""Target share of accepted steps. The length of the steps is adapted to reach this share."""


def matern(distance: Array) -> Array:
    """Return the Matérn 5/2 correlation at a distance in length scales."""
    scaled = np.sqrt(5.0) * distance
    found: Array = (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    return found


def squared_exponential(distance: Array) -> Array:
    """Return the squared exponential correlation at a distance in length scales."""
    found: Array = np.exp(-0.5 * distance**2)
    return found


@dataclass(frozen=True, eq=False)
class Solved:
    """Factorised covariances of n observations, and what follows from them.

    Attributes:
        evidence: log marginal likelihood without its constant, shape (B,).
        lower: Cholesky factors L of the covariances, shape (B, n, n).
        half: L⁻¹ times the observations minus their prior mean, shape (B, n).
    """

    evidence: Array
    lower: Array
    half: Array

    def condition(self, cross: Array, prior: Array) -> tuple[Array, Array]:
        """Return the posterior mean and covariance of m values, as differences from their prior mean.

        Args:
            cross: covariance of observations and values, shape (B, n, m).
            prior: covariance of the values, shape (B, m, m), or their variances, shape (B, m).

        Returns:
            Means, shape (B, m), and covariances or variances, in the shape of `prior`.
        """
        back = np.linalg.solve(self.lower, cross)
        mean: Array = np.einsum("bnm,bn->bm", back, self.half)
        if prior.ndim == 2:
            return mean, np.maximum(prior - (back**2).sum(axis=1), 0.0)
        covariance: Array = prior - np.swapaxes(back, 1, 2) @ back
        return mean, covariance


def solve(covariance: Array, residual: Array) -> Solved:
    """Factorise covariances of observations.

    Args:
        covariance: covariances including noise, shape (B, n, n).
        residual: observations minus their prior mean, shape (B, n).
    """
    size = covariance.shape[-1]
    scale = np.trace(covariance, axis1=1, axis2=2) / size
    lower = np.asarray(
        np.linalg.cholesky(covariance + (_JITTER * scale)[:, None, None] * np.eye(size)), dtype=np.float64
    )
    half = np.asarray(np.linalg.solve(lower, residual[:, :, None])[:, :, 0], dtype=np.float64)
    logarithm = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return Solved(-0.5 * (half**2).sum(axis=1) - logarithm, lower, half)


def spread_out(count: int, dimension: int, seed: int) -> Array:
    """Return scrambled Sobol points in the open unit cube, shape (count, dimension)."""
    from scipy.stats import qmc  # it takes half a second, which the checks of a file need not wait for

    if dimension == 0:
        return np.empty((count, 0))
    power = max(int(np.ceil(np.log2(max(count, 1)))), 0)
    points: Array = qmc.Sobol(dimension, seed=np.random.default_rng(seed)).random_base2(power)[:count]
    inside: Array = np.clip(points, 1e-6, 1.0 - 1e-6)
    return inside


def integrate(log_likelihood: Callable[[Array], Array], dimension: int, *, seed: int, count: int = 48) -> Array:
    """Return equally weighted points that represent the posterior of hyper-parameters with a standard normal prior.

    Sequential Monte Carlo (Del Moral, Doucet & Jasra 2006): points of the prior are led to the posterior through powers
    of the likelihood, each chosen so that half of the points keep their weight, with `_MOVES` Metropolis steps at
    each. The result depends on the likelihood and the seed alone.

    Args:
        log_likelihood: function of points of shape (B, dimension), with values of shape (B,).
        dimension: number of hyper-parameters.
        seed: seed of the points.
        count: number of points.

    Returns:
        Points, shape (count, dimension).
    """
    random = np.random.default_rng(seed)
    from scipy.special import ndtri

    points: Array = ndtri(spread_out(count, dimension, seed))
    likelihood = log_likelihood(points)
    power, reach = 0.0, 1.0
    while power < 1.0:
        step = _next_power(likelihood, 1.0 - power)
        power += step
        weights = np.exp(step * (likelihood - likelihood.max()))
        edges = (np.arange(count) + random.random()) / count
        kept = np.searchsorted(np.cumsum(weights) / weights.sum(), edges).clip(0, count - 1)
        points, likelihood = points[kept], likelihood[kept]
        root = np.linalg.cholesky(np.cov(points.T) + 0.02 * np.eye(dimension)) * 2.0 / np.sqrt(dimension)
        for _ in range(_MOVES):
            moved = points + reach * random.standard_normal(points.shape) @ root.T
            new = log_likelihood(moved)
            gain = power * (new - likelihood) - 0.5 * ((moved**2).sum(axis=1) - (points**2).sum(axis=1))
            accepted = np.log(random.random(count)) < gain
            points = np.where(accepted[:, None], moved, points)
            likelihood = np.where(accepted, new, likelihood)
            reach = reach * (1.2 if accepted.mean() > _ACCEPTED else 0.8)
    return points


def _next_power(likelihood: Array, most: float) -> float:
    """Return how far the likelihood's power may rise, at most `most`, until the weights are worth half the points."""

    def worth(step: float) -> float:
        weights = np.exp(step * (likelihood - likelihood.max()))
        return float(weights.sum() ** 2 / (weights**2).sum())

    if worth(most) >= likelihood.size / 2:
        return most
    low, high = 0.0, most
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle) >= likelihood.size / 2 else (low, middle)
    return max(low, 1e-3)
