"""Posterior of the curve of the score along one parameter, by a Gaussian process.

    score(trial, x, z, t) = mean(t) + √t [g(x, z, log t) + h(z, log t)] + effect of the trial + noise

- x is the position on the parameter's axis, z the other searched parameters, t the fraction of the steps.
- mean(t) is the mean score at the rung t. Each rung has its own mean, so only differences within a rung count.
- g is the curve: a Matérn 5/2 kernel in x, a squared exponential kernel in z and in log t. Half of its variance is
  common to all z.
- h is the level that depends on z alone.
- The effect of a trial has a part that persists, a part that decays during training, and a part that is new at each
  rung, each a third of the variance.

Length scale, amplitude and noise are averaged over a grid, weighted by marginal likelihood times prior (Rasmussen &
Williams 2006, chapters 2 and 5). The unit of scores is the tolerance, the smallest difference that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.axis import Array
from tuner.study.unimodal.inference.records import Context, Record

__all__ = ["FAR", "Posterior", "fit"]

LENGTHS: Final = (0.15, 0.3, 0.6)
"""Length scales of g in x, as fractions of the axis."""

RATIOS: Final = (0.02, 0.06, 0.15, 0.35, 0.8)
"""Standard deviations of a trial's effect, in amplitudes of g."""

AMPLITUDES: Final = np.geomspace(1.5, 100.0, 13)
"""Standard deviations of g, in tolerances. They scale the whole covariance, so they share one factorisation."""

_LENGTH: Final = (np.log(0.35), 0.6)  # mean and standard deviation of the logarithm, as in the next two lines
_AMPLITUDE: Final = (np.log(8.0), 1.0)
_NOISE: Final = (0.0, 0.7)
_TIME: Final = 0.8  # length scale in log t
_MEAN: Final = 30.0  # prior standard deviation of a rung's mean, in amplitudes: without influence
_COMMON: Final = 0.5  # share of g's variance that is common to all z
_Z_CURVE, _Z_LEVEL, _LEVEL = 1.0, 0.4, 1.0  # length scales of g and h in z, and the size of h in amplitudes of g

FAR: Final = 15.0
"""Scores this many tolerances below the best of their rung and context are raised to this distance.

Next to very low scores, for example of collapsed trials, a smooth curve would overshoot to a maximum that no trial
reaches. Unimodal scores stay unimodal.
"""

_FAR_AMONG: Final = 40.0
"""The same limit for scores of different contexts. A context can shift the whole curve."""

_MOST: Final = 4
"""Number of grid points that are kept. They are the most probable ones."""


@dataclass(frozen=True, eq=False)
class _Point:
    """Point of the grid: weight, length scale, likely amplitudes, factor of the covariance, inverse times scores."""

    weight: float
    length: float
    amplitudes: Array
    lower: Array
    solved: Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of the curve at the end of training, up to a constant.

    Attributes:
        noise: posterior mean of the standard deviation of a trial's effect, in units of the score.
    """

    noise: float
    _records: tuple[Record, ...]
    _tolerance: float
    _points: tuple[_Point, ...]

    def mean(self, grid: Array, contexts: Sequence[Context]) -> Array:
        """Return the mean curve of each context in units of the score, shape (contexts, positions)."""
        crosses = self._crosses(grid, contexts)
        found = sum(point.weight * (point.solved @ cross) for point, cross in zip(self._points, crosses, strict=True))
        return np.asarray(self._tolerance * found).reshape(len(contexts), grid.size)

    def draws(self, grid: Array, contexts: Sequence[Context], count: int) -> Array:
        """Draw about `count` curves, jointly over the contexts, shape (draws, contexts, positions).

        The same posterior always gives the same curves.
        """
        normal, places = _normal(count, len(contexts) * grid.size), np.tile(grid, len(contexts))
        found: list[Array] = []
        between = np.abs(places[:, None] - places[None, :])
        shared, level = _kernels(contexts, contexts, grid.size, grid.size)
        first = 0
        for point, cross in zip(self._points, self._crosses(grid, contexts), strict=True):
            number = round(point.weight * count)
            if not number:
                continue
            back = np.linalg.solve(point.lower, cross)
            prior = _matern(between / point.length) * shared + _LEVEL**2 * level
            root = np.linalg.cholesky(prior - back.T @ back + 2e-6 * np.eye(places.size))
            size = point.amplitudes[((np.arange(number) + 0.5) * point.amplitudes.size / number).astype(int)]
            own = normal[np.arange(first, first + number) % count]
            found.append(point.solved @ cross + size[:, None] * (own @ root.T))
            first += number
        return np.asarray(self._tolerance * np.concatenate(found)).reshape(-1, len(contexts), grid.size)

    def prior_draws(self, places: Array, count: int) -> Array:
        """Draw about `count` curves of one context from the prior, with the posterior's length scales and amplitudes.

        The shape is (draws, places).
        """
        found = []
        for point in self._points:
            number = round(point.weight * count)
            kernel = _matern(np.abs(places[:, None] - places[None, :]) / point.length) + 2e-6 * np.eye(places.size)
            size = point.amplitudes[((np.arange(number) + 0.5) * point.amplitudes.size / max(number, 1)).astype(int)]
            found.append(size[:, None] * (_normal(count, places.size)[:number] @ np.linalg.cholesky(kernel).T))
        return np.asarray(self._tolerance * np.concatenate(found))

    def _crosses(self, grid: Array, contexts: Sequence[Context]) -> list[Array]:
        """Return, for each point, the covariance between records and curves in squared amplitudes.

        The shape of each is (records, curve points).
        """
        place, fraction, _, _ = _arrays(self._records)
        shared, level = _kernels([record.context for record in self._records], contexts, 1, grid.size)
        between = np.abs(place[:, None] - np.tile(grid, len(contexts))[None, :])
        to_end = (np.exp(-0.5 * (np.log(fraction) / _TIME) ** 2) * np.sqrt(fraction))[:, None]
        return [
            np.asarray((_matern(between / point.length) * shared + _LEVEL**2 * level) * to_end)
            for point in self._points
        ]


def fit(records: Sequence[Record], tolerance: float) -> Posterior:
    """Return the posterior, given at least one record. `tolerance` is the unit of all priors on scores."""
    if not records:
        raise ValueError("A curve needs at least one record.")
    records = tuple(records)
    place, fraction, score, trial = _arrays(records)
    contexts = [record.context for record in records]
    same_rung = fraction[:, None] == fraction[None, :]
    shared, level = _kernels(contexts, contexts, 1, 1)
    y = _not_far_below(score, tolerance, same_rung, contexts)
    y = y - same_rung @ y / same_rung.sum(1)  # changes no curve, but reduces rounding errors
    log_t = np.log(fraction)
    gap = np.abs(log_t[:, None] - log_t[None, :])
    in_time = np.exp(-0.5 * (gap / _TIME) ** 2) * np.sqrt(np.outer(fraction, fraction))
    effect = (trial[:, None] == trial[None, :]) * (1 + np.exp(-2 * gap)) / 3 + np.eye(y.size) / 3
    count = np.array([record.count for record in records], dtype=float)
    effect /= np.maximum(count[:, None], count[None, :])  # a merged record has the mean effect of its trials
    distance = np.abs(place[:, None] - place[None, :])
    rest = (_LEVEL**2 * level) * in_time + _MEAN**2 * same_rung + 1e-6 * np.eye(y.size)
    shapes = list(product(LENGTHS, RATIOS))
    curves = np.stack([_matern(distance / length) for length in LENGTHS]) * (shared * in_time) + rest
    whole = (curves[:, None] + np.square(RATIOS)[None, :, None, None] * effect).reshape(-1, y.size, y.size)
    # With the scores as one more row, the factor's last row is the vector of whitened scores.
    bordered = np.empty((len(shapes), y.size + 1, y.size + 1))
    bordered[:, :-1, :-1], bordered[:, -1, :-1], bordered[:, :-1, -1], bordered[:, -1, -1] = whole, y, y, 1e15
    factor = np.linalg.cholesky(bordered)
    lower, half = factor[:, :-1, :-1], factor[:, -1, :-1]
    logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
    length, ratio = np.array(shapes).T
    evidence = (
        -0.5 * np.square(half).sum(1)[:, None] / AMPLITUDES**2
        - logs[:, None]
        - y.size * np.log(AMPLITUDES)
        - 0.5 * ((np.log(length)[:, None] - _LENGTH[0]) / _LENGTH[1]) ** 2
        - 0.5 * ((np.log(AMPLITUDES) - _AMPLITUDE[0]) / _AMPLITUDE[1]) ** 2
        - 0.5 * ((np.log(ratio[:, None] * AMPLITUDES) - _NOISE[0]) / _NOISE[1]) ** 2
    )
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    each = weights.sum(1)
    kept = [int(row) for row in np.argsort(-each, kind="stable")[:_MOST] if each[row] > 0.03]
    points = []
    for row in kept:
        # The amplitudes of the draws are the quantiles of their posterior.
        edges = np.cumsum(weights[row]) / each[row]
        steps = np.minimum(np.searchsorted(edges, (np.arange(32) + 0.5) / 32), AMPLITUDES.size - 1)
        share = float(each[row] / each[kept].sum())
        solved = np.linalg.solve(lower[row].T, half[row])
        points.append(_Point(share, shapes[row][0], AMPLITUDES[steps], lower[row], solved))
    noise = float((weights * np.outer(ratio, AMPLITUDES)).sum() * tolerance)
    return Posterior(noise, records, tolerance, tuple(points))


def _matern(distance: Array) -> Array:
    """Return the Matérn 5/2 correlation at these distances, which are in units of the length scale."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))


@lru_cache(maxsize=8)
def _normal(rows: int, columns: int) -> Array:
    return np.random.default_rng(0).standard_normal((rows, columns))


def _arrays(records: Sequence[Record]) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    rows = np.array([(r.place, r.fraction, r.score, r.trial) for r in records], dtype=float)
    return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.int64)


def _kernels(rows: Sequence[Context], columns: Sequence[Context], tall: int, wide: int) -> tuple[Array, Array]:
    """Return the kernels of g and h in z. Each row counts `tall` times, and each column `wide` times."""
    if len(set(rows) | set(columns)) == 1:
        one = np.ones((1, 1))
        return one, 0.0 * one
    distances = np.repeat(np.repeat(_distances(rows, columns), tall, 0), wide, 1)
    return _COMMON + (1 - _COMMON) * np.exp(-0.5 * distances / _Z_CURVE**2), np.exp(-0.5 * distances / _Z_LEVEL**2)


def _distances(rows: Sequence[Context], columns: Sequence[Context]) -> Array:
    """Return the squared distances between contexts.

    A text that differs between two contexts adds 1, and so does a value that only one of them has.
    """
    known = list(dict.fromkeys((*rows, *columns)))
    found, values = np.zeros((len(known), len(known))), [dict(context.values) for context in known]
    for name in sorted({name for each in values for name in each}):
        own = [each.get(name, "") for each in values]
        numbers = np.array([value if isinstance(value, float) else np.nan for value in own])
        words = np.array([str(value) for value in own], dtype=object)
        apart = (numbers[:, None] - numbers[None, :]) ** 2
        found += np.where(np.isnan(apart), words[:, None] != words[None, :], apart)
    place = {context: number for number, context in enumerate(known)}
    return np.asarray(found[np.ix_([place[row] for row in rows], [place[column] for column in columns])])


def _not_far_below(score: Array, tolerance: float, same_rung: NDArray[np.bool_], contexts: Sequence[Context]) -> Array:
    """Return the scores in tolerances. Scores far below the best of their rung are raised to `FAR`."""
    number = {context: place for place, context in enumerate(dict.fromkeys(contexts))}
    own = np.array([number[context] for context in contexts])
    with np.errstate(over="ignore"):
        known: Array = (score - score.max()) / tolerance
        for group, far in ((same_rung, _FAR_AMONG), (same_rung & (own[:, None] == own[None, :]), FAR)):
            top = np.where(group, score[None, :], -np.inf).max(1)
            known = np.maximum(known, np.maximum((top - score.max()) / tolerance, -1e9) - far)
    return known
