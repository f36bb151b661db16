"""Curves with one maximum: posterior draws, corrected by the assumption of one maximum as far as the scores support it.

A share of the curves is left as it is. This share is the posterior probability that there is more than one maximum. Its
prior is `Rules.doubt`. Scores that fall and rise again increase it: the Bayes factor compares how often curves of the
prior and of the posterior do so at the positions of the trials.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.axis import GRID, Array
from tuner.study.unimodal.inference.posterior import Posterior, fit
from tuner.study.unimodal.inference.records import Context, Record, thinned

__all__ = ["draw_curves", "fitted"]

_GOLDEN: Final = 0.6180339887498949


# Costly results are cached, because most decisions between two reports use the same records.
@lru_cache(maxsize=8)
def fitted(records: tuple[Record, ...], tolerance: float) -> Posterior:
    """Return the posterior of these records."""
    return fit(thinned(records), tolerance)


@lru_cache(maxsize=32)
def draw_curves(
    posterior: Posterior,
    contexts: tuple[Context, ...],
    draws: int,
    tried: tuple[int, ...],
    doubt: float,
    tolerance: float,
) -> Array:
    """Draw curves, shape (draws, contexts, points). Most curves of the first context have one maximum.

    Args:
        posterior: posterior of the curves.
        contexts: values of the other parameters.
        draws: number of curves.
        tried: points of the grid at which the first context has trials, ascending.
        doubt: prior probability that the curve has more than one maximum.
        tolerance: a fall or a rise of less is ignored.
    """
    grid = np.linspace(0.0, 1.0, GRID)
    curves = posterior.draws(grid, contexts, draws)
    if not tried or doubt == 1:
        return curves
    if doubt:
        after = _valleys(curves[:, 0, tried], tolerance)
        before = _valleys(posterior.prior_draws(grid[list(tried)], draws), tolerance)
        odds = doubt / (1 - doubt) * (1 - before) / (1 - after)
        doubt = odds / (1 + odds)
    # The draws are sorted by hyper-parameters. Multiples of the golden ratio select an even share of each.
    one_top = np.arange(1, len(curves) + 1) * _GOLDEN % 1.0 >= doubt
    curves[one_top, 0] = _with_one_top(curves[one_top, 0], np.array(tried))
    return curves


def _valleys(values: Array, tolerance: float) -> float:
    """Return how often values at ascending positions fall and then rise, both by more than the tolerance.

    The result is below 1, so that no curve rules out a single maximum.
    """
    left, right = np.maximum.accumulate(values, 1), np.maximum.accumulate(values[:, ::-1], 1)[:, ::-1]
    deep = (np.minimum(left, right) - values).max(1) > tolerance
    return float(min(deep.mean(), 1 - 0.5 / len(values)))


def _with_one_top(curves: Array, tried: NDArray[np.int64]) -> Array:
    """Lower each curve where a single maximum forbids what it shows, by the points at which there are trials.

    If a curve has one maximum, it is between the two neighbours of its best tried point. Beyond a neighbour, it is not
    higher than at the neighbour.

    Args:
        curves: shape (draws, points).
        tried: points at which there are trials, ascending.
    """
    points, rows = np.arange(curves.shape[1]), np.arange(len(curves))
    best = curves[:, tried].argmax(1)
    left = np.where(best > 0, tried[np.maximum(best - 1, 0)], -1)
    right = np.where(best < tried.size - 1, tried[np.minimum(best + 1, tried.size - 1)], points.size)
    most = np.full(curves.shape, np.inf)
    for side, beyond in ((left, points < left[:, None]), (right, points > right[:, None])):
        known = (side >= 0) & (side < points.size)
        height = np.where(known, curves[rows, np.where(known, side, 0)], np.inf)
        most = np.where(beyond, height[:, None], most)
    return np.asarray(np.minimum(curves, most))
