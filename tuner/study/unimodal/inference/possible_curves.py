"""Posterior draws of the curve. Nearly unimodal draws are selected and projected to unimodal curves."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.axis import Array
from tuner.study.unimodal.inference.gaussian_process import Posterior, fit, matern
from tuner.study.unimodal.inference.records import Context, Record, Seen, thinned

__all__ = ["drawn", "eligible_points", "fitted", "project"]

_TRIES: Final = 10
"""Number of curves drawn from the posterior for each curve that is returned, if nearly unimodal curves are selected."""

_PRIOR_DRAWS: Final = 4_000


# Costly results are cached with the records as keys, because most decisions between two reports use the same records.
@lru_cache(maxsize=8)
def fitted(records: tuple[Record, ...], tolerance: float, runs: frozenset[int]) -> Posterior:
    """Return the posterior of the curve, given the records. Records of the trials in `runs` are not merged."""
    return fit(Seen(thinned(records, keep=runs), ()), tolerance=tolerance)


@lru_cache(maxsize=32)
def drawn(
    posterior: Posterior, places: bytes, contexts: tuple[Context, ...], draws: int, share: float, tolerance: float
) -> tuple[Array, float]:
    """Draw curves from the posterior, and make a fraction of them unimodal.

    This fraction is the posterior probability that the curve is unimodal.

    Unimodal curves are obtained in two steps. First, nearly unimodal curves are selected. In the first context, they
    differ from a unimodal curve by about half the tolerance or less. Second, they are projected to unimodal curves.
    Without the selection, the projection would turn wiggles of a curve into maxima that are too high.

    Args:
        posterior: posterior of the curve.
        places: positions at which to compute the curves, as the bytes of an array (hashable for the cache).
        contexts: values of the other parameters. Each draw has one curve for each context.
        draws: number of draws in the result.
        share: prior probability that the curve is unimodal. With 0, no curve is made unimodal.
        tolerance: smallest difference between scores that matters.

    Returns:
        The curves, shape (draws, contexts, positions), and the posterior probability that the curve is unimodal.
    """
    grid = np.frombuffer(places)
    every = posterior.draws(grid, contexts, _TRIES * draws if share else draws, np.random.default_rng(0))
    keep, believed = 0, 0.0
    if share:
        weights = _unimodal_weight(every.values[:, 0], tolerance)
        # P(data | unimodal) / P(data) is P(unimodal | data) / P(unimodal), for every hyper-parameter.
        weights /= _unimodal_mass(every.amplitudes, every.lengths, grid)
        odds = share * float(weights.mean())
        believed = odds / (odds + 1 - share)
        keep = round(draws * believed)
    # Draws are ordered by hyper-parameters, so evenly spaced draws represent all hyper-parameters.
    free = every.values[((np.arange(draws - keep) + 0.5) * len(every.values) / max(draws - keep, 1)).astype(int)]
    if not keep:
        return free, believed
    edges = np.cumsum(weights) / weights.sum()
    kept = every.values[np.minimum(np.searchsorted(edges, (np.arange(keep) + 0.5) / keep), len(edges) - 1)]
    return np.concatenate([free, project(kept.reshape(-1, grid.size)).reshape(kept.shape)]), believed


def eligible_points(grid: Array, context: Context) -> NDArray[np.bool_]:
    """Return a mask of the grid positions that a trial of this context can have. At least one entry is True."""
    found: NDArray[np.bool_] = (grid >= context.low - 1e-9) & (grid <= context.high + 1e-9)
    if not found.any():
        found[np.abs(grid - (context.low + context.high) / 2).argmin()] = True
    return found


def project(draws: Array) -> Array:
    """Return, for each row, the unimodal sequence with the same mode that is nearest in the supremum norm.

    On each side of the mode, the result is the mean of two monotone sequences: the smallest sequence above the row and
    the greatest sequence below the row (Barlow et al. 1972, section 1.4).
    """
    places = np.arange(draws.shape[-1])
    modes = draws.argmax(-1)[:, None]
    left, right = places <= modes, places >= modes
    above = np.minimum(np.maximum.accumulate(draws, -1), np.maximum.accumulate(draws[:, ::-1], -1)[:, ::-1])
    to_mode = np.minimum.accumulate(np.where(left, draws, np.inf)[:, ::-1], -1)[:, ::-1]
    from_mode = np.minimum.accumulate(np.where(right, draws, np.inf), -1)
    below = np.where(left, to_mode, from_mode)
    return (above + below) / 2


def _unimodal_weight(curves: Array, tolerance: float) -> Array:
    """Return a weight for each curve, which decreases with the distance from the nearest unimodal curve."""
    wrong = np.abs(curves - project(curves)).max(1)
    found: Array = np.exp(-0.5 * (wrong / (0.5 * tolerance)) ** 2)
    return found


def _unimodal_mass(amplitudes: Array, lengths: Array, grid: Array) -> Array:
    """Return the mean of `_unimodal_weight` over curves from the prior, for each pair of amplitude and length.

    Amplitudes are in tolerances. Both arrays and the result have the shape (draws,).
    """
    pairs = list(zip(amplitudes.tolist(), lengths.tolist(), strict=True))
    return np.array([_mass(*pair, grid.size) for pair in pairs])


@lru_cache(maxsize=256)
def _mass(amplitude: float, length: float, points: int) -> float:
    grid = np.linspace(0.0, 1.0, points)
    covariance = matern(np.abs(grid[:, None] - grid[None, :]) / length) + 1e-6 * np.eye(points)
    normal = np.random.default_rng(0).standard_normal((_PRIOR_DRAWS, points))
    curves = amplitude * normal @ np.linalg.cholesky(covariance).T
    return max(float(_unimodal_weight(curves, 1.0).mean()), 1 / _PRIOR_DRAWS)
