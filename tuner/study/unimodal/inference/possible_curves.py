"""Possible curves, given the records: the posterior, and draws from it that are mostly unimodal."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.gaussian_process import Posterior, fit
from tuner.study.unimodal.inference.records import Context, Record, Seen
from tuner.study.unimodal.inference.regression import project
from tuner.study.unimodal.inference.shape import unimodal_mass
from tuner.study.unimodal.inference.thinning import thinned

__all__ = ["drawn", "eligible_points", "fitted"]

Array = NDArray[np.float64]

_TRIES: Final = 10
"""Curves drawn for each one that is kept, when nearly unimodal ones are selected."""


# A trial that starts or stops changes no score, so costly results are cached by the records.
@lru_cache(maxsize=8)
def fitted(records: tuple[Record, ...], tolerance: float, runs: frozenset[int]) -> Posterior:
    """Return the posterior of the curve, given the records; those of `runs` are not merged."""
    return fit(Seen(thinned(records, keep=runs), ()), tolerance=tolerance)


@lru_cache(maxsize=32)
def drawn(
    posterior: Posterior, places: bytes, contexts: tuple[Context, ...], draws: int, share: float, tolerance: float
) -> tuple[Array, float]:
    """Draw curves of which a share is conditioned on being unimodal, shape (draws, contexts, points).

    The condition is a weight: of many curves, those that are unimodal in the first context to within half the tolerance
    are kept and then projected. Projecting all curves instead would keep the height of wiggles and learn nothing from
    the shape.

    Returns:
        The curves, and the share: the posterior probability of the shape, which a visible second peak lowers.
    """
    grid = np.frombuffer(places)
    every = posterior.draws(grid, contexts, _TRIES * draws if share else draws, np.random.default_rng(0))
    keep, believed = 0, 0.0
    if share:
        wrong = np.abs(every.values[:, 0] - project(every.values[:, 0])).max(1)
        weights = np.exp(-0.5 * (wrong / (0.5 * tolerance)) ** 2)
        # P(data | unimodal) / P(data) is P(unimodal | data) / P(unimodal), for every hyper-parameter.
        weights /= unimodal_mass(every.amplitudes, every.lengths, grid)
        odds = share * float(weights.mean())
        believed = odds / (odds + 1 - share)
        keep = round(draws * believed)
    # Draws are ordered by hyper-parameter: take an even share of each.
    free = every.values[((np.arange(draws - keep) + 0.5) * len(every.values) / max(draws - keep, 1)).astype(int)]
    if not keep:
        return free, believed
    edges = np.cumsum(weights) / weights.sum()
    kept = every.values[np.minimum(np.searchsorted(edges, (np.arange(keep) + 0.5) / keep), len(edges) - 1)]
    return np.concatenate([free, project(kept.reshape(-1, grid.size)).reshape(kept.shape)]), believed


def eligible_points(grid: Array, context: Context) -> NDArray[np.bool_]:
    """Return a mask of the points that a trial of this context can take; at least one."""
    found: NDArray[np.bool_] = (grid >= context.low - 1e-9) & (grid <= context.high + 1e-9)
    if not found.any():
        found[np.abs(grid - (context.low + context.high) / 2).argmin()] = True
    return found
