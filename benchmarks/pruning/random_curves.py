"""Random curves that have nothing to do with the published tables.

`hills`, `two_tops` and `smooth` were used to set the rules of the unimodal search. `broken_lines` and `sums` were
looked at when `sure` and `risk` were set. `broken_hills` came last and changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.pruning.curves import EPOCHS, POINTS, RUNGS, Problem

Array = NDArray[np.float64]
Shape = Callable[[Array], Array]

_AXIS: Final = POINTS / POINTS[-1]


def random_problem(family: str, random: np.random.Generator, *, noise: float = 1.0) -> Problem:
    """Draw a curve of a family, 1 to 8 points high, and its noise of 0.1 to 0.4 points.

    At the fraction t of the steps the curve is √t as high, and its places are further left by up to 0.05 · log t.
    """
    shape = FAMILIES[family](random)
    height, drift = float(np.exp(random.uniform(0.0, np.log(8.0)))), float(random.uniform(0.0, 0.05))
    values = shape(_AXIS)
    least, size = float(values.min()), float(np.ptp(values))
    rows = []
    for epochs in RUNGS:
        t = epochs / EPOCHS
        known = (shape(np.clip(_AXIS - drift * np.log(t), 0.0, 1.0)) - least) / size
        rows.append(60.0 + 8.0 * np.log(t) + np.sqrt(t) * height * known)
    deviation = noise * float(np.exp(random.uniform(np.log(0.1), np.log(0.4))))
    return Problem(np.array(rows), np.full(POINTS.size, deviation))


def _hill(random: np.random.Generator) -> Shape:
    """Return one top anywhere, the ends included, with slopes of different widths and powers."""
    top = float(np.clip(random.uniform(-0.15, 1.15), 0.0, 1.0))
    left, right = random.uniform(0.2, 1.0, 2)
    power = float(random.uniform(1.2, 3.0))
    return lambda x: -(np.abs(x - top) ** power) / np.where(x < top, left, right) ** power


def _two_tops(random: np.random.Generator) -> Shape:
    """Return two bumps of different heights, 0.2 to 0.6 of the axis apart."""
    apart = float(random.uniform(0.2, 0.6))
    first = float(random.uniform(0.05, 0.95 - apart))
    left, right = random.uniform(0.06, 0.15, 2)
    more = float(random.choice([-1, 1]) * random.uniform(0.1, 0.5))

    def shape(x: Array) -> Array:
        low, high = (np.exp(-0.5 * ((x - at) / width) ** 2) for at, width in ((first, left), (first + apart, right)))
        return np.asarray(np.maximum(low, (1 + more) * high))

    return shape


def _smooth(random: np.random.Generator) -> Shape:
    """Return a draw of a Gaussian process with a squared exponential kernel."""
    length = float(random.uniform(0.15, 0.5))
    frequencies, phases = random.normal(0.0, 1 / length, 60), random.uniform(0.0, 2 * np.pi, 60)
    return lambda x: np.asarray(np.cos(np.multiply.outer(x, frequencies) + phases).sum(-1))


def _broken_line(random: np.random.Generator) -> Shape:
    """Return straight lines between three to six random values at random places."""
    count = int(random.integers(3, 7))
    places, values = np.sort(random.uniform(0.0, 1.0, count)), random.uniform(0.0, 1.0, count)
    places[0], places[-1] = 0.0, 1.0
    return lambda x: np.asarray(np.interp(x, places, values))


def _broken_hill(random: np.random.Generator) -> Shape:
    """Return straight lines as in `_broken_line`, whose values rise to one of them and then fall."""
    count = int(random.integers(3, 7))
    places, values = np.sort(random.uniform(0.0, 1.0, count)), np.sort(random.uniform(0.0, 1.0, count))
    places[0], places[-1] = 0.0, 1.0
    left = random.random(count - 1) < 0.5  # the largest value is the top
    known = np.concatenate([values[:-1][left], values[-1:], values[:-1][~left][::-1]])
    return lambda x: np.asarray(np.interp(x, places, known))


def _sum(random: np.random.Generator) -> Shape:
    """Return a rise that saturates, less a penalty that grows, and in half of the curves a bump anywhere."""
    rise, fall = float(random.uniform(0.05, 0.5)), float(random.uniform(0.0, 3.0))
    power = float(random.uniform(1.0, 4.0))
    at, width = float(random.uniform(0.0, 1.0)), float(random.uniform(0.08, 0.2))
    size = float(random.uniform(0.1, 0.6)) * (random.random() < 0.5)
    return lambda x: 1 - np.exp(-x / rise) - fall * x**power + size * np.exp(-0.5 * ((x - at) / width) ** 2)


FAMILIES: Final[Mapping[str, Callable[[np.random.Generator], Shape]]] = {
    "hills": _hill,
    "two_tops": _two_tops,
    "smooth": _smooth,
    "broken_lines": _broken_line,
    "broken_hills": _broken_hill,
    "sums": _sum,
}
"""Name of a family → function that draws the shape of a curve, at positions from 0 to 1."""

JUDGED: Final = ("broken_lines", "broken_hills", "sums")
"""Families that are judged; see the module's text."""
