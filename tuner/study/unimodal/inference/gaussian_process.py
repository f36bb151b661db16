"""Gaussian process of the score as a function of the parameter x, the fraction t of the steps and other parameters z.

    score(trial, x, z, t) = mean(t) + s(t) [g(x − d log t, z, log t) + h(z, log t)] + effect of the trial + noise

- mean(t) is the mean score at the rung t. Each rung has its own mean.
- g is the curve. It has a Matérn 5/2 kernel in x and a squared exponential kernel in log t. Half of its variance is
  common to all z.
- s(t) = √t scales the curve. All trials start with similar scores, and the differences grow during training.
- d ≥ 0 is the drift. The optimum moves to larger values during training.
- h is the shift of the whole curve that depends on z.
- The effect of a trial has a part that persists, a part that decays during training, and a part that is new at each
  rung.

The posterior is averaged over a grid of hyper-parameters with weights proportional to marginal likelihood times prior
(Rasmussen & Williams 2006, chapters 2 and 5). The unit of the scores is the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tuner.study.unimodal.inference.axis import Array
from tuner.study.unimodal.inference.records import Context, Seen

__all__ = ["Draws", "HyperGrid", "Posterior", "fit", "matern"]


@dataclass(frozen=True, kw_only=True)
class HyperGrid:
    """Grid of hyper-parameters.

    Attributes:
        amplitudes: standard deviations of g, in tolerances.
        lengths: length scales of the kernel in x, as fractions of the axis.
        drifts: values of d, as fractions of the axis per unit of log t.
        noises: standard deviations of a trial's total effect, in tolerances. Their prior is log-normal around 1.
        levels: ratios of the standard deviation of h to that of g. They are used only if other parameters are searched.
        time_length: length scale of the kernel in log t.
        rough_left: the noise at position 0 is (1 + `rough_left`) times the noise far to the right (DPLIS, Table 10).
    """

    amplitudes: tuple[float, ...] = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
    lengths: tuple[float, ...] = (0.15, 0.3, 0.6)
    drifts: tuple[float, ...] = (0.0, 0.12, 0.35)
    noises: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    levels: tuple[float, ...] = (0.5, 2.0)
    time_length: float = 0.8
    rough_left: float = 0.8


_AMPLITUDE: Final = (np.log(8.0), 1.0)  # mean and standard deviation of the logarithm, as in the next two lines
_LENGTH: Final = (np.log(0.35), 0.6)
_NOISE: Final = (0.0, 0.7)
_DRIFT: Final = 0.3  # mean of the exponential prior
_MEAN: Final = 30.0
"""Prior standard deviation of a rung's mean, in amplitudes of g. It is so large that the prior has no influence."""

FAR: Final = 15.0
"""Maximum distance of a score from the best score of its rung, in tolerances.

A score that is further below the best score is raised to this limit.
"""

FAR_OF_RUNS: Final = 60.0
"""Limit that replaces `FAR` when single trials are compared. By chance alone, a trial can lead by more than `FAR`."""

FAR_AMONG: Final = 40.0
"""Limit that replaces `FAR` between trials whose other parameters differ, because these can shift the whole curve."""

_COMMON: Final = 0.5  # share of g's variance that is common to all contexts
_Z_CURVE, _Z_LEVEL = 1.0, 0.4  # length scales of the kernels of g and h in z, for numbers between 0 and 1


@dataclass(frozen=True, eq=False)
class Draws:
    """Posterior draws of the curve at the end of training, up to a constant.

    Attributes:
        values: curves, shape (draws, contexts, positions).
        amplitudes: standard deviation of g in each draw, in tolerances, shape (draws,).
        lengths: length scale of g's kernel in each draw, shape (draws,).
    """

    values: Array
    amplitudes: Array
    lengths: Array


@dataclass(frozen=True, eq=False)
class _Solved:
    """Point of the hyper-parameter grid, and the factorised covariance. `noise` is in units of `amplitude`."""

    weight: float
    amplitude: float
    noise: float
    length: float
    drift: float
    level: float
    lower: Array
    half: Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of the curve.

    Attributes:
        noise: posterior mean of the standard deviation of a trial's effect, in units of the score.
    """

    noise: float
    _seen: Seen
    _tolerance: float
    _hyper: HyperGrid
    _solved: tuple[_Solved, ...]

    def draws(self, grid: Array, contexts: Sequence[Context], count: int, random: np.random.Generator) -> Draws:
        """Draw `count` curves of several contexts jointly.

        The number of curves from each point of the hyper-parameter grid is proportional to the weight of the point.
        """
        weights = np.array([each.weight for each in self._solved])
        shares = np.floor(weights * count).astype(int)
        shares[0] += count - shares.sum()
        normal = random.standard_normal((count, grid.size * len(contexts)))
        values, begin = np.empty_like(normal), 0
        for solved, share in zip(self._solved, shares, strict=True):
            mean, root = self._curve(solved, grid, contexts)
            values[begin : begin + share] = mean + normal[begin : begin + share] @ root.T
            begin += share
        return Draws(
            values.reshape(count, len(contexts), grid.size),
            np.repeat([each.amplitude for each in self._solved], shares),
            np.repeat([each.length for each in self._solved], shares),
        )

    def mean(self, grid: Array, contexts: Sequence[Context]) -> Array:
        """Return the posterior mean of the curve of each context, shape (contexts, positions)."""
        found = np.zeros(grid.size * len(contexts))
        for each in self._solved:  # no covariance is computed, because its cost is cubic in the number of contexts
            whole = np.linalg.solve(each.lower.T, each.half)
            found += each.weight * self._tolerance * (self._cross(each, grid, contexts).T @ whole)
        return found.reshape(len(contexts), grid.size)

    def ahead(self, trial: int, place: float, context: Context) -> float:
        """Return the probability that the final score of a running trial will exceed every final score so far.

        The prediction includes the trial's own effect, estimated from its scores so far. It does not assume a unimodal
        curve. The probability is 1 if no trial has a final score, or if this trial has not reported a score.
        """
        at, fraction, score, number = self._seen.arrays
        ends, own = np.flatnonzero(fraction == 1), number == trial
        if not (ends.size and own.any()):
            return 1.0
        best, log_t = int(ends[score[ends].argmax()]), np.log(fraction)
        same_rung = fraction[:, None] == fraction[None, :]
        y = _centred(_not_far_below(score, self._tolerance, (same_rung, FAR_OF_RUNS)), same_rung)
        rough = _rough(self._hyper, np.array([place]))[0]
        effect = np.where(own, _rough(self._hyper, at) * rough * (1 + np.exp(2 * log_t)) / 3, 0.0)
        found = 0.0
        for each in self._solved:
            cross = self._cross(each, np.array([place]), (context,))[:, 0] + each.noise**2 * effect
            cross += _MEAN**2 * (fraction == 1)
            back = np.linalg.solve(each.lower, cross)
            half = np.linalg.solve(each.lower, y)
            prior = 1.0 + each.level**2 + (each.noise * rough) ** 2 + _MEAN**2
            spread = each.amplitude * np.sqrt(max(prior - float(back @ back), 1e-12))
            lead = float(back @ half) - float(y[best])
            found += each.weight * float(ndtr(lead / spread))
        return found

    def _cross(self, solved: _Solved, grid: Array, contexts: Sequence[Context]) -> Array:
        """Return the covariance between records and curves, shape (records, contexts · positions)."""
        place, fraction, _, _ = self._seen.arrays
        log_t = np.log(fraction)
        to_end = np.exp(-0.5 * (log_t / self._hyper.time_length) ** 2) * np.sqrt(fraction)
        known = _distances([r.context for r in self._seen.records], contexts)
        places, many = np.tile(grid, len(contexts)), np.repeat(np.arange(len(contexts)), grid.size)
        z = place - solved.drift * log_t
        cross = matern(np.abs(z[:, None] - places[None, :]) / solved.length) * _shared(known)[:, many]
        cross += solved.level**2 * _level(known)[:, many]
        found: Array = cross * to_end[:, None]
        return found

    def _curve(self, solved: _Solved, grid: Array, contexts: Sequence[Context]) -> tuple[Array, Array]:
        """Return the mean of the curves and the Cholesky factor of their covariance, in units of the score."""
        here = _distances(contexts, contexts)
        places, many = np.tile(grid, len(contexts)), np.repeat(np.arange(len(contexts)), grid.size)
        back = np.linalg.solve(solved.lower, self._cross(solved, grid, contexts))
        prior = matern(np.abs(places[:, None] - places[None, :]) / solved.length) * _shared(here)[many][:, many]
        prior += solved.level**2 * _level(here)[many][:, many]
        root = np.asarray(np.linalg.cholesky(prior - back.T @ back + 1e-6 * np.eye(places.size)), dtype=np.float64)
        return self._tolerance * (back.T @ solved.half), self._tolerance * solved.amplitude * root


def fit(seen: Seen, *, tolerance: float, hyper: HyperGrid | None = None) -> Posterior:
    """Return the posterior of the Gaussian process, given at least one record.

    Args:
        seen: records and trials.
        tolerance: unit of all priors on scores.
        hyper: grid of hyper-parameters, by default `HyperGrid()`.
    """
    if not seen.records:
        raise ValueError("A curve needs at least one record.")
    hyper = hyper or HyperGrid()
    place, fraction, score, trial = seen.arrays
    log_t = np.log(fraction)
    contexts = [record.context for record in seen.records]
    same_rung = fraction[:, None] == fraction[None, :]
    y = _without_cliffs(score, tolerance, same_rung, contexts)
    y = _centred(y, same_rung)
    gap = np.abs(log_t[:, None] - log_t[None, :])
    in_time = np.exp(-0.5 * (gap / hyper.time_length) ** 2) * np.sqrt(np.outer(fraction, fraction))
    rough = _rough(hyper, place)
    effect = (trial[:, None] == trial[None, :]) * np.outer(rough, rough) * (1 + np.exp(-2 * gap)) / 3
    effect += np.diag(rough**2 / 3)
    # The effect of a merged record is the mean effect of its trials. Later rungs may have fewer of these trials.
    count = np.array([record.count for record in seen.records], dtype=float)
    effect /= np.maximum(count[:, None], count[None, :])
    alone = len(set(contexts)) == 1
    distances = _distances(contexts, contexts)
    shared, level = in_time * _shared(distances), in_time * _level(distances)

    # The noise is given relative to the amplitude, so the amplitude scales the whole covariance. All amplitudes with
    # the same relative noise therefore share one factorisation.
    shapes = list(product(hyper.lengths, hyper.drifts, hyper.levels[:1] if alone else hyper.levels))
    scales = np.array(list(product(hyper.amplitudes, hyper.noises)))
    shares, which = np.unique(np.round(scales[:, 1] / scales[:, 0], 12), return_inverse=True)
    noisy = (shares**2)[:, None, None] * effect + _MEAN**2 * same_rung + 1e-6 * np.eye(y.size)
    evidence = np.empty((len(shapes), len(scales)))
    solved: list[tuple[Array, Array]] = []
    for row, (length, drift, height) in enumerate(shapes):
        z = place - drift * log_t
        curve = matern(np.abs(z[:, None] - z[None, :]) / length) * shared
        lower = np.linalg.cholesky((curve if alone else curve + height**2 * level) + noisy)
        half = np.linalg.solve(lower, np.broadcast_to(y[:, None], (len(shares), y.size, 1)))[..., 0]
        logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
        evidence[row] = -0.5 * (half**2).sum(1)[which] / scales[:, 0] ** 2 - logs[which] - y.size * np.log(scales[:, 0])
        evidence[row] += _log_prior(length, drift, scales)
        solved.append((lower, half))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    order = [int(flat) for flat in np.argsort(-weights, axis=None)[:12] if weights.flat[flat] > 0.01]
    kept = sum(float(weights.flat[flat]) for flat in order)
    found = []
    for flat in order:
        row, column = divmod(flat, len(scales))
        length, drift, height = shapes[row]
        lower, half = solved[row][0][which[column]], solved[row][1][which[column]]
        weight, amplitude = float(weights.flat[flat]) / kept, float(scales[column, 0])
        noise = float(scales[column, 1] / scales[column, 0])
        found.append(_Solved(weight, amplitude, noise, length, drift, 0.0 if alone else height, lower, half))
    noise = float((weights.sum(0) * scales[:, 1]).sum() * tolerance)
    return Posterior(noise, seen, tolerance, hyper, tuple(found))


def _without_cliffs(score: Array, tolerance: float, same_rung: NDArray[np.bool_], contexts: list[Context]) -> Array:
    """Return the scores in tolerances. Scores far below the best score of their rung are raised to a limit.

    Next to very low scores, for example of collapsed trials, a smooth curve would overshoot to a maximum that no trial
    reaches. With the limit, unimodal scores stay unimodal.
    """
    number = {context: place for place, context in enumerate(dict.fromkeys(contexts))}
    own = np.array([number[context] for context in contexts])
    return _not_far_below(score, tolerance, (same_rung, FAR_AMONG), (same_rung & (own[:, None] == own[None, :]), FAR))


def _not_far_below(score: Array, tolerance: float, *groups: tuple[NDArray[np.bool_], float]) -> Array:
    """Return the scores in tolerances. Scores far below the best score of their group are raised to a limit.

    The number that comes with each group is the maximum distance, in tolerances, from the best score of the group.
    """
    with np.errstate(over="ignore"):
        known: Array = (score - score.max()) / tolerance
        for group, far in groups:
            top = np.array([score[row].max() for row in group])
            known = np.maximum(known, np.maximum((top - score.max()) / tolerance, -1e9) - far)
    return known


def _centred(y: Array, same_rung: NDArray[np.bool_]) -> Array:
    """Return the scores minus the mean of their rung. This does not change the model, but reduces rounding errors."""
    found: Array = y - np.array([y[row].mean() for row in same_rung])
    return found


def _rough(hyper: HyperGrid, place: Array) -> Array:
    """Return the size of a trial's effect at a position, relative to the size far to the right."""
    return 1.0 + hyper.rough_left * np.exp(-place / 0.45)


def matern(distance: Array) -> Array:
    """Return the Matérn 5/2 correlation at these distances, which are in units of the length scale."""
    scaled = np.sqrt(5.0) * distance
    found: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return found


def _shared(distances: Array) -> Array:
    return _COMMON + (1 - _COMMON) * np.exp(-0.5 * distances / _Z_CURVE**2)


def _level(distances: Array) -> Array:
    return np.exp(-0.5 * distances / _Z_LEVEL**2)


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
    return found[np.ix_([place[row] for row in rows], [place[column] for column in columns])]


def _log_prior(length: float, drift: float, scales: Array) -> Array:
    amplitude, noise = np.log(scales[:, 0]), np.log(scales[:, 1])
    found: Array = (
        -0.5 * ((np.log(length) - _LENGTH[0]) / _LENGTH[1]) ** 2
        - drift / _DRIFT
        - 0.5 * ((amplitude - _AMPLITUDE[0]) / _AMPLITUDE[1]) ** 2
        - 0.5 * ((noise - _NOISE[0]) / _NOISE[1]) ** 2
    )
    return found
