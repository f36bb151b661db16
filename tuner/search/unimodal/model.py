"""A Gaussian process of the score over the parameter and the fraction of the steps.

    score(trial, x, t) = mean(t) + s(t) g(x − d log t, log t) + effect of the trial + noise

`mean` is free at each rung; g has a Matérn 5/2 kernel in x and a squared exponential one in log t; s(t) = √t, for the
curve grows out of the common start; d ≥ 0 is the drift of the optimum to larger values while training goes on. A
trial's effect has a persistent, a decaying and a fresh part. Hyper-parameters are averaged over a grid by their
marginal likelihood times prior (Rasmussen & Williams 2006, chapters 2 and 5), in units of the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.search.unimodal.records import Seen

__all__ = ["HyperGrid", "Posterior", "fit"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HyperGrid:
    """Where the hyper-parameters are looked for, and how likely each is before anything is seen.

    Attributes:
        amplitudes: of g, in tolerances.
        lengths: of the kernel in x, in lengths of the axis.
        drifts: d, in lengths of the axis for each unit of log t.
        noises: standard deviation of a trial's whole effect, in tolerances; log-normal around 1.
        time_length: of the kernel in log t.
        rough_left: noise at place 0 is 1 + this, times what it is at the other end (DPLIS, Table 10).
    """

    amplitudes: tuple[float, ...] = (2.5, 5.0, 10.0, 20.0, 40.0)
    lengths: tuple[float, ...] = (0.15, 0.3, 0.6)
    drifts: tuple[float, ...] = (0.0, 0.1, 0.3)
    noises: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    time_length: float = 1.5
    rough_left: float = 0.8


_AMPLITUDE: Final = (np.log(8.0), 1.0)  # median and deviation of the logarithm
_LENGTH: Final = (np.log(0.35), 0.6)
_NOISE: Final = (0.0, 0.7)
_DRIFT: Final = 0.15  # exponential
_MEAN: Final = 30.0
"""Deviation of a rung's mean, in amplitudes: free, but for numbers that a computer can hold."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is believed of the curve at the end of training, up to a constant.

    Attributes:
        grid: places, shape (n,).
        weights: of the hyper-parameters that matter, shape (k,), sum 1.
        means: shape (k, n).
        roots: of the covariances (`roots[i] @ roots[i].T`), shape (k, n, n).
        noise: standard deviation of a trial's effect, in units of the score, averaged.
        drift: averaged, in lengths of the axis.
    """

    grid: Array
    weights: Array
    means: Array
    roots: Array
    noise: float
    drift: float

    def draws(self, count: int, random: np.random.Generator) -> Array:
        """Curves from the posterior, shape (count, n); the hyper-parameters in proportion to their weights."""
        shares = np.floor(self.weights * count + 0.5 * (np.arange(len(self.weights)) == 0)).astype(int)
        shares[0] += count - shares.sum()
        normal = random.standard_normal((count, self.grid.size))
        which = np.repeat(np.arange(len(shares)), np.maximum(shares, 0))[:count]
        curves: Array = self.means[which] + np.einsum("snm,sm->sn", self.roots[which], normal)
        return curves

    @property
    def mean(self) -> Array:
        """Averaged over the hyper-parameters, shape (n,)."""
        found: Array = self.weights @ self.means
        return found


def fit(seen: Seen, grid: Array, *, tolerance: float, hyper: HyperGrid | None = None) -> Posterior:
    """Condition the process on what was seen.

    Args:
        seen: at least one record.
        grid: places at which the curve is wanted.
        tolerance: how much better a score must be to matter; the unit of all priors.
        hyper: where the hyper-parameters are looked for.

    Raises:
        ValueError: nothing was seen.
    """
    if not seen.records:
        raise ValueError("a curve needs at least one record")
    hyper = hyper or HyperGrid()
    place, fraction, score, trial = seen.arrays
    log_t = np.log(fraction)
    y = score / tolerance
    same_rung = fraction[:, None] == fraction[None, :]
    y = y - np.array([y[row].mean() for row in same_rung])  # only for the sake of the digits: the means are free
    gap = np.abs(log_t[:, None] - log_t[None, :])
    in_time = np.exp(-0.5 * (gap / hyper.time_length) ** 2) * np.sqrt(np.outer(fraction, fraction))
    rough = 1.0 + hyper.rough_left * np.exp(-place / 0.45)
    effect = (trial[:, None] == trial[None, :]) * np.outer(rough, rough) * (1 + np.exp(-2 * gap)) / 3
    effect += np.diag(rough**2 / 3)
    to_end = np.exp(-0.5 * (log_t / hyper.time_length) ** 2) * np.sqrt(fraction)

    # With the noise as a share of the amplitude, the amplitude is a factor of the whole covariance: it needs no other
    # root.
    shapes = list(product(hyper.lengths, hyper.drifts))
    scales = np.array(list(product(hyper.amplitudes, hyper.noises)))
    shares, which = np.unique(np.round(scales[:, 1] / scales[:, 0], 12), return_inverse=True)
    noisy = (shares**2)[:, None, None] * effect + 1e-6 * np.eye(y.size)
    evidence = np.empty((len(shapes), len(scales)))
    solved: list[tuple[Array, Array]] = []
    for row, (length, drift) in enumerate(shapes):
        z = place - drift * log_t
        lower = np.linalg.cholesky(
            _matern(np.abs(z[:, None] - z[None, :]) / length) * in_time + _MEAN**2 * same_rung + noisy
        )
        half = np.linalg.solve(lower, np.broadcast_to(y[:, None], (len(shares), y.size, 1)))[..., 0]
        logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
        evidence[row] = -0.5 * (half**2).sum(1)[which] / scales[:, 0] ** 2 - logs[which] - y.size * np.log(scales[:, 0])
        evidence[row] += _log_prior(length, drift, scales)
        solved.append((lower, half))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    order = [flat for flat in np.argsort(-weights, axis=None)[:12] if weights.flat[flat] > 0.01]
    chosen = np.array([weights.flat[flat] for flat in order])
    means, roots = [], []
    apart = np.abs(grid[:, None] - grid[None, :])
    for flat in order:
        row, column = divmod(int(flat), len(scales))
        length, drift = shapes[row]
        lower, half = solved[row][0][which[column]], solved[row][1][which[column]]
        cross = _matern(np.abs((place - drift * log_t)[:, None] - grid[None, :]) / length) * to_end[:, None]
        back = np.linalg.solve(lower, cross)
        means.append(tolerance * (back.T @ half))
        covariance = _matern(apart / length) - back.T @ back + 1e-6 * np.eye(grid.size)
        roots.append(tolerance * scales[column, 0] * np.linalg.cholesky(covariance))
    noise = float((weights.sum(0) * scales[:, 1]).sum() * tolerance)
    drifted = float(sum(weights[row].sum() * drift for row, (_, drift) in enumerate(shapes)))
    return Posterior(grid, chosen / chosen.sum(), np.array(means), np.array(roots), noise, drifted)


def _matern(distance: Array) -> Array:
    scaled = np.sqrt(5.0) * distance
    found: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return found


def _log_prior(length: float, drift: float, scales: Array) -> Array:
    amplitude, noise = np.log(scales[:, 0]), np.log(scales[:, 1])
    found: Array = (
        -0.5 * ((np.log(length) - _LENGTH[0]) / _LENGTH[1]) ** 2
        - drift / _DRIFT
        - 0.5 * ((amplitude - _AMPLITUDE[0]) / _AMPLITUDE[1]) ** 2
        - 0.5 * ((noise - _NOISE[0]) / _NOISE[1]) ** 2
    )
    return found
