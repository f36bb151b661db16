"""Bounds of ε of one noisy record, by integrating its two densities. This shares no formula with the first accountant.

The features of two records are N(0, 1) and N(μ, 1) along the line through them, and the same elsewhere. The line is cut
into cells of width h. On a cell, the label multiplies the ratio of the two densities by a constant, and both densities
are replaced by their masses on the cell. A mass is a difference of values of the error function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import erfc, exp, isfinite, log, log1p, sqrt
from typing import Any, TypeAlias

import numpy as np

from tuner.privacy.verify.accountant.one_step import TooLargeError

__all__ = ["release_epsilon"]

Curve: TypeAlias = Callable[[float], float]

_CELLS = 60_000
_TAIL = 9.0
"""Distance from both means at which the noise is cut off, in standard deviations. Less than 1.2e-19 is cut off."""
_ROUNDS = 80
_MOST = 30_000_000
"""Largest number of terms that are summed at a time. So many terms need about two gigabytes of memory."""
_FINE = 1e-6
"""Relative precision of ε by clones. Rounding of the logarithms of factorials changes ε by less."""
_LEAST = -50.0
"""Numbers of clones whose log probability is below this are left out. Together they have less than 1e-17."""
_GRID = tuple(float(each) for each in np.exp(np.linspace(log(5e-4), log(80.0), 240)))


def release_epsilon(body: Mapping[str, Any], delta: float) -> tuple[float, float]:
    """Return a lower and an upper bound of ε at `delta` for a release with the filter `body`, given as plain JSON.

    Merging a cell to its masses is post-processing, so the divergence of the masses is a lower bound. Splitting each
    cell's mass to the largest ratio in it gives an upper one.

    Raises:
        ValueError: a value is NaN or out of range.
    """
    lower, upper = _curves(body)
    return _inverse(lower, delta), _inverse(upper, delta)


def _curves(body: Mapping[str, Any]) -> tuple[Curve, Curve]:
    """Return the two functions that give a lower and an upper bound of δ at ε for one row."""
    clip, noise, label, classes = (float(body[name]) for name in ("clip", "noise", "label_epsilon", "classes"))
    if not (all(map(isfinite, (clip, noise, label, classes))) and min(clip, noise, label) > 0 and classes >= 2):
        raise ValueError(f"a release needs positive, finite numbers and two classes or more (got {dict(body)!r})")
    shift = 2 * clip / noise
    edges = np.linspace(-_TAIL, shift + _TAIL, _CELLS + 1)
    one, other = _masses(edges, shift), _masses(edges, 0.0)
    # On a line that starts at the other record's mean, the ratio of the densities is e^(μt − μ²/2), which rises.
    highest = shift * edges[1:] - shift**2 / 2
    reports = _reports(label, int(classes))

    def lower(epsilon: float) -> float:
        return sum(
            share * float(np.maximum(one - np.exp(np.minimum(epsilon - loss, 700.0)) * other, 0.0).sum())
            for share, loss in reports
        )

    def upper(epsilon: float) -> float:
        cut = 1e-18
        return cut + sum(
            share * float((one * np.maximum(-np.expm1(np.minimum(epsilon - loss - highest, 0.0)), 0.0)).sum())
            for share, loss in reports
        )

    return lower, upper


def shuffled_release_epsilon(body: Mapping[str, Any], delta: float) -> tuple[float, float]:
    """Return bounds of the proved ε of a release whose rows are in a secret order: by clones, or by a row alone.

    Clones are counted by summing their probabilities from logarithms of factorials. ε is looked for on a grid of its
    own, from small to large, because the proved δ falls and rises again.

    Raises:
        TooLargeError: there are too many clones for this accountant.
        ValueError: a value is NaN or out of range.
    """
    clone, rows = float(body["clone_epsilon"]), int(body["rows"])
    if not (isfinite(clone) and clone > 0 and rows >= 1):
        raise ValueError(f"clones need a positive ε and a number of rows (got {clone!r} and {rows!r})")
    local_low, local_high = release_epsilon(body, delta)
    low_curve, high_curve = _curves(body)
    counted = _clones(rows - 1, clone)
    found = []
    for at_clone, local in ((low_curve(clone), local_low), (high_curve(clone), local_high)):
        lost = (rows - 1) * exp(-clone) * at_clone

        def total(epsilon: float, lost: float = lost) -> float:
            return counted.delta(epsilon) + (1 + exp(min(epsilon, 700.0))) * lost

        first = next((each for each in _GRID if each < local and total(each) <= delta), None)
        if first is None:
            found.append(local)
            continue
        low, high = 0.0, first
        while high - low > _FINE * high:
            middle = (low + high) / 2
            low, high = (middle, high) if total(middle) > delta else (low, middle)
        found.append(min(high, local))
    return min(found) * (1 - 2 * _FINE), max(found)


class _Clones:
    """Numbers of rows that are like the one or the other value of a record."""

    def __init__(self, others: int, clone: float) -> None:
        table = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, others + 2)))])
        counts = np.arange(others + 1)
        logs = table[others] - table[counts] - table[others - counts]
        logs = logs - counts * clone + (others - counts) * log1p(-exp(-clone))
        self._table, self._counts = table, np.flatnonzero(logs > _LEAST)
        self._chances = np.exp(logs[self._counts])
        self._known: dict[float, float] = {}

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence of k - 1 against k of Bin(N, 1/2), averaged over the number N of clones.

        k is the number of the N + 1 rows that are like the first value. Only the last k add to it.
        """
        if epsilon not in self._known:
            n, table = self._counts[:, None], self._table
            width = 40 + int(5 * sqrt(float(n.max()) + 1))
            if width * len(n) > _MOST:
                raise TooLargeError(f"the sum over the number of clones has too many terms ({width * len(n)})")
            factor = 1 / (1 + exp(-min(epsilon, 700.0)))
            k = np.maximum((n + 1) * factor - 1, 0).astype(np.int64) + np.arange(width)[None, :]
            half = table[n] - n * log(2)
            one = np.exp(half - _inverse_choose(table, n, k - 1))
            other = np.exp(half - _inverse_choose(table, n, k))
            told = np.maximum(one - exp(min(epsilon, 700.0)) * other, 0.0).sum(1)
            self._known[epsilon] = float((self._chances * told).sum())
        return self._known[epsilon]


def _inverse_choose(table: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return log(k!·(n - k)!), infinite outside 0 <= k <= n."""
    inside = np.clip(k, 0, n)
    logs: np.ndarray = np.where((k >= 0) & (k <= n), table[inside] + table[n - inside], np.inf)
    return logs


@lru_cache(maxsize=8)
def _clones(others: int, clone: float) -> _Clones:
    return _Clones(others, clone)


def _reports(label: float, classes: int) -> list[tuple[float, float]]:
    """Return (probability, log-ratio) of each kind of reported label, for two records with different labels."""
    lowest = 1 / (exp(label) + classes - 1) if label < 700 else 0.0
    kept = 1 - (classes - 1) * lowest
    return [(kept, label), (lowest, -label), ((classes - 2) * lowest, 0.0)]


def _masses(edges: np.ndarray, mean: float) -> np.ndarray:
    """Return the mass of N(mean, 1) in each cell; each tail is computed from its own side, so that none cancels."""
    scaled = (edges - mean) / sqrt(2)
    above = np.array([erfc(value) / 2 for value in scaled])
    below = np.array([erfc(-value) / 2 for value in scaled])
    masses: np.ndarray = np.where(scaled[1:] <= 0, below[1:] - below[:-1], above[:-1] - above[1:])
    return masses


def _inverse(delta_at: Curve, delta: float) -> float:
    """Return the ε at which a falling function passes `delta`; 0 if it is below everywhere."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > 1e4:
            raise OverflowError("no finite ε was found")
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high
