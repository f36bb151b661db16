"""The simulation behind the table of critical values of the bracket."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import Final

import numpy as np
from scipy import stats

from tuner.study.unimodal.inference.axis import Array
from tuner.study.unimodal.inference.bracket import LEAST, _blocks, _degrees, _means

_RUNS: Final = 4_000


@lru_cache(maxsize=64)
def critical_value(alpha: float, looks: int, *, known: bool = True) -> float:
    """A bound on the 1 − α quantile of the largest contrast over all looks of a constant curve, on the normal scale.

    Simulated (4 000 runs with one seed, places in random order), once for the same arguments.

    Args:
        alpha: 0 to 1.
        looks: scores in all; one look after each of them.
        known: whether contrasts are divided by the true deviation; else by the estimate at each look, and brought to
            the normal scale by Student's law.
    """
    random = np.random.default_rng(20_110)
    scores = random.standard_normal((_RUNS, looks))
    places = random.random((_RUNS, looks))
    largest = np.zeros(_RUNS)
    for values in range(2 if known else LEAST, looks + 1):
        order = np.argsort(places[:, :values], axis=1)
        seen = np.take_along_axis(scores[:, :values], order, axis=1)
        found = _largest_rise(seen)
        if not known:
            spread = np.sqrt(0.5 * np.mean(np.diff(seen, axis=1) ** 2, axis=1))
            found = stats.norm.isf(np.maximum(stats.t.sf(found / spread, _degrees(values)), 1e-300))
        largest = np.maximum(largest, found)
    # Three standard errors of the simulated quantile are added, so that the value is not too small by chance.
    sure = 1 - alpha + 3 * sqrt(alpha * (1 - alpha) / _RUNS)
    return float(np.quantile(largest, min(sure, 1.0)))


def _largest_rise(sorted_scores: Array) -> Array:
    """Over all pairs of blocks, of each row."""
    best = np.zeros(len(sorted_scores))
    count = sorted_scores.shape[1]
    for left, right, gap in _blocks(count):
        first, second = _means(sorted_scores, left), _means(sorted_scores, right)
        pairs = count - left - right + 1
        later = second[:, left : left + pairs]
        highest = np.maximum.accumulate(later[:, ::-1], axis=1)[:, ::-1]
        best = np.maximum(best, (highest - first[:, :pairs]).max(1) / gap)
    return best
