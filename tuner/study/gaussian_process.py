"""Gaussian process regression, and integration over its hyper-parameters. This module knows nothing about searches.

All functions work on a stack of B hyper-parameter points at once (Rasmussen & Williams 2006, chapters 2 and 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

__all__ = ["Array", "Solved", "integrate", "matern", "solve", "spread_out", "squared_exponential"]

Array: TypeAlias = NDArray[np.float64]

_JITTER = 1e-8
"""Relative addition to a covariance's diagonal, without which rounding can make it indefinite."""

_TAIL = 0.15
"""Share of every proposal that is drawn from the prior, so that no importance weight is unbounded."""


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
    if dimension == 0:
        return np.empty((count, 0))
    power = max(int(np.ceil(np.log2(max(count, 1)))), 0)
    points: Array = qmc.Sobol(dimension, seed=np.random.default_rng(seed)).random_base2(power)[:count]
    inside: Array = np.clip(points, 1e-6, 1.0 - 1e-6)
    return inside


def integrate(
    log_likelihood: Callable[[Array], Array],
    dimension: int,
    *,
    seed: int,
    rounds: int = 3,
    count: int = 96,
    keep: int = 32,
) -> tuple[Array, Array]:
    """Return weighted points that represent the posterior of hyper-parameters whose prior is standard normal.

    Adaptive importance sampling: the first round draws from the prior, and each later round from a Gaussian fitted to
    the points before it. A point's weight is posterior over the mixture of all proposals (Cappé et al. 2004). The
    result depends on the likelihood and the seed alone.

    Args:
        log_likelihood: function of points of shape (B, dimension), with values of shape (B,).
        dimension: number of hyper-parameters.
        seed: seed of the quasi-random points.
        rounds: number of rounds.
        count: number of points in a round.
        keep: number of points that are returned; those with the largest weights.

    Returns:
        Points, shape (keep, dimension), and weights that sum to 1, shape (keep,), from the largest to the smallest.
    """
    means, roots = [np.zeros(dimension)], [np.eye(dimension)]
    points, target = np.empty((0, dimension)), np.empty(0)
    for number in range(rounds):
        normal = ndtri(spread_out(count, dimension, seed + number))
        new = means[-1] + normal @ roots[-1].T
        if number:  # some points of every round keep the prior's width
            share = int(_TAIL * count)
            new[:share] = normal[:share]
        points = np.concatenate([points, new])
        target = np.concatenate([target, log_likelihood(new) - 0.5 * (new**2).sum(axis=1)])
        weights = _weights(points, target, means, roots)
        centre = weights @ points
        spread = (points - centre).T @ ((points - centre) * weights[:, None])
        means.append(centre)
        roots.append(np.asarray(np.linalg.cholesky(spread + 0.05 * np.eye(dimension)), dtype=np.float64))
    order = np.argsort(-weights, kind="stable")[:keep]
    return points[order], weights[order] / weights[order].sum()


def _weights(points: Array, target: Array, means: list[Array], roots: list[Array]) -> Array:
    """Return normalised importance weights, tempered until no point has more than a third of the weight."""
    prior = -0.5 * (points**2).sum(axis=1)
    parts = [prior]
    for mean, root in zip(means[1:], roots[1:], strict=True):
        inside = np.linalg.solve(root, (points - mean).T)
        own = -0.5 * (inside**2).sum(axis=0) - np.log(np.diagonal(root)).sum()
        parts.append(np.logaddexp(np.log(1 - _TAIL) + own, np.log(_TAIL) + prior))
    logarithm = target - logsumexp(np.stack(parts), axis=0)
    logarithm = logarithm - logarithm.max()
    for power in (1.0, 0.7, 0.5, 0.35, 0.25):
        found = np.exp(power * logarithm)
        found = found / found.sum()
        if found.max() < 1 / 3:
            break
    return np.asarray(found, dtype=np.float64)
