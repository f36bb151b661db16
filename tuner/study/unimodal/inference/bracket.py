"""Bracket of the mode: an interval that contains the mode of any unimodal curve with high probability.

The mode is the position of the maximum of the curve, at the best value of the parameter.

Let A and B be two blocks of neighbouring trials, with B to the right of A. If the mode of a unimodal curve is at the
left edge of A or further left, the curve does not rise from A to B. A significant rise therefore shows that the mode is
to the right of A's left edge. A significant fall shows that the mode is to the left of B's right edge.

The bracket is computed again after every complete trial (an interim analysis). The critical value is valid for all
pairs of blocks and all interim analyses together. It is the (1 − α)-quantile of the largest rise on the least
favourable curve. This curve is constant, and its left end counts as the mode, so every significant rise excludes the
mode. With any other mode, fewer pairs of blocks could exclude the mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2, sqrt
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tuner.study.unimodal.inference.axis import Array
from tuner.study.unimodal.inference.records import ALONE, Record

__all__ = ["LOOKS", "ModeBracket", "bracket", "bracket_of", "deviation_of_neighbours", "threshold"]

_BLOCK: Final = 3
"""Maximum number of neighbouring trials in a block."""

LOOKS: Final = 40
"""The critical value is computed for at least this number of interim analyses (one per complete trial)."""

LEAST: Final = 5
"""Minimum number of scores for an estimate of the standard deviation. With fewer scores, no value is excluded."""

_MADE: Final[Mapping[tuple[float, int], tuple[float, float]]] = {
    (0.01, 10): (3.816, 2.847),
    (0.01, 20): (4.263, 3.595),
    (0.01, 40): (4.579, 4.167),
    (0.01, 80): (5.042, 4.747),
    (0.05, 10): (3.287, 2.501),
    (0.05, 20): (3.673, 3.172),
    (0.05, 40): (4.079, 3.739),
    (0.05, 80): (4.488, 4.262),
}
"""Simulated critical values by (α, number of interim analyses).

The first value of each pair is for a known standard deviation, and the second value is for an estimated one. A unit
test of this package repeats the simulation to check them.
"""


@dataclass(frozen=True)
class ModeBracket:
    """Open interval of positions. With probability 1 − α, the intervals of all interim analyses contain the mode."""

    low: float = -inf
    high: float = inf

    @property
    def empty(self) -> bool:
        """Whether the interval is empty. The curve is then not unimodal, at significance level α."""
        return self.low >= self.high

    def holds(self, place: float) -> bool:
        """Return whether the mode may be at this position."""
        return self.low < place < self.high


def bracket_of(records: Sequence[Record]) -> ModeBracket:
    """Return the bracket of the mode from the scores of one rung, with error probability 1 % over all analyses.

    Only the records that belong to the most frequent context are used.
    """
    # Trials at the same position are ordered by number. Sorting by score would make neighbours too similar.
    rows = sorted(records, key=lambda row: (row.place, row.trial))
    every = [row.context for row in rows]
    often = max(sorted(set(every)), key=every.count, default=ALONE)
    known = [(row.place, row.score) for row in rows if row.context == often]
    if len(known) < LEAST:
        return ModeBracket()
    places, scores = zip(*known, strict=True)
    factor = threshold(0.01, max(LOOKS, len(places)), values=len(places))
    return bracket(places, scores, step=factor * deviation_of_neighbours(places, scores))


def bracket(places: ArrayLike, scores: ArrayLike, *, step: float) -> ModeBracket:
    """Return the bracket of the mode from the scores of one rung.

    Args:
        places: positions of the trials, shape (n,), in any order.
        scores: scores of the trials, shape (n,).
        step: `threshold` times the standard deviation of one score. The difference between the means of two blocks with
            a and b scores is significant if it exceeds step · √(1/a + 1/b).
    """
    order = np.argsort(np.asarray(places, dtype=float), kind="stable")
    at, known = np.asarray(places, dtype=float)[order], np.asarray(scores, dtype=float)[order]
    low, high = -inf, inf
    rounding = 1e-12 * float(np.abs(known).max(initial=0.0))  # possible difference between means of equal scores
    for left, right, gap in _blocks(known.size):
        rises = _means(known, right)[None, :] - _means(known, left)[:, None]
        apart = np.arange(known.size - right + 1)[None, :] >= np.arange(known.size - left + 1)[:, None] + left
        sure = apart & (np.abs(rises) > step * gap + rounding)
        # A difference between blocks at the same position has no direction.
        sure &= at[right - 1 :][None, :] > at[: known.size - left + 1][:, None]
        rising, falling = np.argwhere(sure & (rises > 0)), np.argwhere(sure & (rises < 0))
        if rising.size:
            low = max(low, float(at[rising[:, 0].max()]))
        if falling.size:
            high = min(high, float(at[falling[:, 1].min() + right - 1]))
    return ModeBracket(low, high)


def threshold(alpha: float, looks: int, *, values: int, known: bool = False) -> float:
    """Return the critical value, in standard deviations, for a difference between two blocks.

    The result is infinite if there are too few scores.

    Args:
        alpha: probability of any error in all interim analyses together.
        looks: maximum number of scores in the whole search. Each score leads to one interim analysis.
        values: number of scores now.
        known: whether the standard deviation is known. Otherwise `deviation_of_neighbours` estimates it.
    """
    made = min((most for level, most in _MADE if level == alpha and most >= looks), default=None)
    normal = _bonferroni(alpha, looks) if made is None else _MADE[alpha, made][0 if known else 1]
    if known:
        return normal
    if values < LEAST:
        return inf
    from scipy.special import ndtr, stdtrit

    return -float(stdtrit(_degrees(values), ndtr(-normal)))


def _bonferroni(alpha: float, looks: int) -> float:
    """Return an upper bound on the critical value, for cases that were not simulated.

    A new score adds at most _BLOCK (_BLOCK + 1) / 2 blocks of neighbours. In n interim analyses there are thus at most
    m = 6 n blocks and m²/2 pairs of blocks. The difference between the means of each pair has a normal distribution.
    The number of analyses n is `looks`, rounded up to a power of two.
    """
    blocks = _BLOCK * (_BLOCK + 1) / 2 * 2 ** ceil(log2(looks))
    from scipy.special import ndtri

    return -float(ndtri(alpha / (blocks**2 / 2)))


def deviation_of_neighbours(places: ArrayLike, scores: ArrayLike) -> float:
    """Estimate the standard deviation of a score from differences of neighbouring scores (von Neumann 1941).

    Slopes of the curve increase the estimate.
    """
    order = np.argsort(np.asarray(places, dtype=float), kind="stable")
    with np.errstate(over="ignore"):
        steps = np.diff(np.asarray(scores, dtype=float)[order])
        return sqrt(0.5 * float(np.mean(steps**2))) if steps.size else inf


def _degrees(values: int) -> float:
    """Return the degrees of freedom 2(n − 1)² / (3n − 4) of `deviation_of_neighbours` for n scores.

    The formula follows from matching the first two moments of the estimated variance.
    """
    return 2 * (values - 1) ** 2 / (3 * values - 4)


def _blocks(count: int) -> list[tuple[int, int, float]]:
    sizes = range(1, min(_BLOCK, count - 1) + 1)
    return [(a, b, sqrt(1 / a + 1 / b)) for a in sizes for b in sizes if a + b <= count]


def _means(values: Array, size: int) -> Array:
    sums = np.cumsum(np.insert(values, 0, 0.0, axis=-1), axis=-1)
    return (sums[..., size:] - sums[..., :-size]) / size
