"""Bounds of ε of one noisy record, by integrating its two densities. This shares no formula with the first accountant.

The features of two records are N(0, 1) and N(μ, 1) along the line through them, and the same elsewhere. The line is cut
into cells of width h. On a cell, the label multiplies the ratio of the two densities by a constant, and both densities
are replaced by their masses on the cell. A mass is a difference of values of the error function.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import erfc, exp, isfinite, sqrt
from typing import Any

import numpy as np

__all__ = ["release_epsilon"]

_CELLS = 60_000
_TAIL = 9.0
"""Standard deviations of the noise beyond both means that are cut off. A Gaussian has less than 1.2e-19 beyond."""
_ROUNDS = 80


def release_epsilon(body: Mapping[str, Any], delta: float) -> tuple[float, float]:
    """Return a lower and an upper bound of ε at `delta` for a release with the filter `body`, given as plain JSON.

    Merging a cell to its masses is post-processing, so the divergence of the masses is a lower bound. Splitting each
    cell's mass to the largest ratio in it gives an upper one.

    Raises:
        ValueError: a value is NaN or out of range.
    """
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

    return _inverse(lower, delta), _inverse(upper, delta)


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


def _inverse(delta_at: Any, delta: float) -> float:  # noqa: ANN401 - a falling function of ε
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
