"""Covariance of scores over parameters, noise and fraction of training, for a stack of hyper-parameters.

    score = level(noise, fraction) + amplitude · [ hill(z) + rest(z, noise, fraction) + choices ]
            + effect of the trial + error

z are the parameters as distances from the prior's medians, in units of their ranges. The learning rate's z also holds

    log rate + κ · log clip + p · log noise + q · log fraction,

so the optimum moves with noise and with training, and the whole shape moves along: what noisy, short trials taught
holds for the final run at a moved rate. p, q and κ are hyper-parameters with priors, and are integrated over. Where
the observations do not determine them, predictions are averages over what they may be.

The hill is a parabola with a random top, and the rest is a Gaussian process for what a parabola cannot follow.

With a public proxy the prior of the top has two parts: either the proxy's best configuration is near, or the proxy says
nothing and the prior without it holds. Which of the two is one more hyper-parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Final

import numpy as np

from tuner.study.gaussian_process import Array, matern, squared_exponential
from tuner.study.surrogate.axes import Axes, Number
from tuner.study.surrogate.observations import Prior

__all__ = ["CLIP", "RATE", "Model", "Points"]

RATE: Final = "learning_rate"
"""Parameter whose best value depends on the noise, the length of training and the source of the records."""
CLIP: Final = "max_grad_norm"
"""Parameter that acts as a factor of the learning rate, to the extent that gradients are clipped."""

_COUPLING: Final = (0.85, 0.15)  # mean and standard deviation of κ, which is 1 where all gradients are clipped
_FRACTION_SLOPE: Final = (0.4, 0.4)  # mean and standard deviation of q
_GROWTH: Final = (0.2, 0.2)  # mean and standard deviation of the exponent of the amplitude's growth
_NEAR: Final = 0.3  # probability that a proxy's best configuration is near
_OFFSET: Final = 0.5  # standard deviation of the best log rate's difference from that of a near proxy
_OTHER_OFFSET: Final = 0.25  # the same of other parameters, in units of their axes
_SIDES: Final = (0.8, 1.25)  # hill above and below the best rate: with a budget of steps, too low a rate is worse
_LEVEL: Final = 3.0  # standard deviation of the level, in standard deviations of the scores
_OFF: Final = ("laplacian_sigma", "smoothing_radius", "weight_decay")  # no gain over the lower bound was measured
_OTHER: Final = 0.35  # hill of a parameter other than the learning rate, relative to the learning rate's


@dataclass(frozen=True, eq=False)
class Points:
    """n places at which scores are observed or predicted.

    Attributes:
        numbers: coordinates of the numeric parameters, NaN for one that a trial does not have, shape (n, numbers).
        choices: indices of options, −1 for a choice that a trial does not have, shape (n, choices).
        noise: log noise-to-signal ratio minus the reference, shape (n,).
        fraction: log fraction of training, shape (n,).
    """

    numbers: Array
    choices: Array
    noise: Array
    fraction: Array


@dataclass(frozen=True, eq=False)
class _Hyper:
    """Hyper-parameters, each of shape (B, 1) or (B, 1, 1)."""

    slope: Array
    fraction_slope: Array
    coupling: Array
    near: Array
    length: Array
    others: Array
    rest: Array
    effect: Array
    hill: Array
    growth: Array
    rate_top: Array
    clip_top: Array


class Model:
    """Covariance of scores.

    Args:
        axes: axes of the search space.
        prior: prior over the best parameters.
        reference: noise-to-signal ratio for which the prior holds.

    Attributes:
        tops: prior medians, as coordinates.
        spreads: prior standard deviations of the best values, in units of the axes.
        near_tops, near_spreads: the same if the public proxy is near.
    """

    def __init__(self, axes: Axes, prior: Prior, reference: float) -> None:
        self.axes, self.prior, self.reference = axes, prior, reference
        names = [axis.name for axis in axes.numbers]
        self._rate = next((i for i, axis in enumerate(axes.numbers) if axis.name == RATE and axis.log), None)
        clipped = self._rate is not None and any(axis.name == CLIP and axis.log for axis in axes.numbers)
        self._clip = names.index(CLIP) if clipped else None
        tops = [_top(axis, prior) for axis in axes.numbers]
        self.tops = np.array([top for top, _ in tops])
        self._units = np.array([axis.unit for axis in axes.numbers])
        self.spreads = np.array([spread for _, spread in tops]) / self._units
        proxy = {} if prior.proxy is None else prior.proxy.tops
        near = [proxy.get(axis.name, tops[i]) for i, axis in enumerate(axes.numbers)]
        self.near_tops = np.array([top for top, _ in near])
        offsets = np.where(np.arange(len(names)) == self._rate, _OFFSET / self._units, _OTHER_OFFSET)
        self.near_spreads = np.hypot(np.array([spread for _, spread in near]) / self._units, offsets)
        self._near = _NEAR if proxy else 0.0
        self._hills = np.array([1.0 if i == self._rate else _OTHER for i in range(len(names))])
        self._free = np.array([0.2 if i in (self._rate, self._clip) else 1.0 for i in range(len(names))])

    def drawn(self, shares: Array, wider: float) -> Array:
        """Return the coordinates at shares of the prior, whose spreads are widened, within the ranges.

        The rate is drawn around the best one for the clip: the prior knows their product better than either.
        """
        from scipy.special import ndtr, ndtri

        found, moved = shares.copy(), 0.0
        for place in sorted(range(len(shares)), key=lambda place: place == self._rate):
            axis, width = self.axes.numbers[place], wider * self.spreads[place] * self._units[place]
            low, high = axis.bounds
            centre = self.tops[place] if place != self._rate else min(max(self.tops[place] - moved, low), high)
            edges = ndtr((np.array([low, high]) - centre) / width)
            found[place] = centre + width * ndtri(edges[0] + shares[place] * (edges[1] - edges[0]))
            if place == self._clip:
                moved = _COUPLING[0] * (found[place] - centre)
        return found

    dimension: Final = 12
    """Number of hyper-parameters."""

    def points(self, places: Sequence[tuple[Mapping[str, object], float, float]]) -> Points:
        """Return the points of (parameters, noise, fraction)."""
        return Points(
            np.array(
                [[axis.coordinate(each[0].get(axis.name)) for axis in self.axes.numbers] for each in places]
            ).reshape(len(places), len(self.axes.numbers)),
            np.array(
                [[float(axis.index(each[0].get(axis.name))) for axis in self.axes.choices] for each in places]
            ).reshape(len(places), len(self.axes.choices)),
            np.array([log(each[1] / self.reference) for each in places]),
            np.array([log(each[2]) for each in places]),
        )

    def at(self, normal: Array) -> Stack:
        """Return the covariances at standard normal hyper-parameters, shape (B, `dimension`)."""
        from scipy.special import ndtr

        column = [normal[:, place : place + 1] for place in range(self.dimension)]
        mean, deviation = self.prior.slope
        return Stack(
            self,
            _Hyper(
                slope=mean + deviation * column[0],
                fraction_slope=_FRACTION_SLOPE[0] + _FRACTION_SLOPE[1] * column[1],
                coupling=np.clip(_COUPLING[0] + _COUPLING[1] * column[2], 0.0, 1.2),
                near=ndtr(column[3]) < self._near,
                length=np.exp(np.log(0.8) + 0.4 * column[4])[:, :, None],
                others=np.exp(np.log(1.5) + 0.5 * column[5])[:, :, None],
                rest=np.exp(np.log(0.2) + 0.6 * column[6])[:, :, None],
                effect=np.exp(np.log(0.3) + 1.0 * column[7])[:, :, None],
                hill=np.exp(0.5 * column[8])[:, :, None],
                growth=_GROWTH[0] + _GROWTH[1] * column[9],
                rate_top=column[10],
                clip_top=column[11],
            ),
        )


@dataclass(frozen=True, eq=False)
class Stack:
    """Covariances of a model at B hyper-parameter points."""

    _model: Model
    _hyper: _Hyper

    @cached_property
    def effect(self) -> Array:
        """Standard deviation of the effect of a trial, shape (B, 1, 1)."""
        return self._hyper.effect

    @property
    def slope(self) -> Array:
        """Exponents p of the noise in the best learning rate, shape (B,)."""
        found: Array = self._hyper.slope[:, 0]
        return found

    def mean(self, points: Points) -> Array:
        """Return the prior means, shape (B, n)."""
        z = self._places(points)
        squares = z**2
        if self._model._rate is not None:
            squares[:, :, self._model._rate] *= np.where(z[:, :, self._model._rate] > 0, *_SIDES)
        hill = self._hyper.hill[:, :, 0] * (self._model._hills * squares).sum(axis=2)
        found: Array = -hill * self._amplitude(points)
        return found

    def covariance(self, one: Points, other: Points) -> Array:
        """Return the covariances of scores without the effect of trials and without errors, shape (B, n, m)."""
        hyper, model = self._hyper, self._model
        z, y = self._places(one), self._places(other)
        hills = hyper.hill[:, :, 0:1] * model._hills
        tops, widths = 2 * hills * self._spreads[:, None, :] * model._free, 0.6 * hills
        hill = _products(np.dstack([z * tops, z**2 * widths]), np.dstack([y * tops, y**2 * widths]))
        near = matern(self._distance(z, y))
        noise = one.noise[:, None] - other.noise[None, :]
        training = one.fraction[:, None] - other.fraction[None, :]
        alike = squared_exponential(noise) * squared_exponential(training / 0.8)
        equal = one.choices[:, None, :] == other.choices[None, :, :]
        held = equal & (one.choices[:, None, :] >= 0)
        rest = hyper.rest**2 * near * (0.6 + 0.4 * alike) * np.where(equal, 1.0, 0.6).prod(axis=2)
        shape = hill + rest + held.sum(axis=2) * 0.5**2
        if model._rate is not None and held.size:
            shape = (
                shape
                + held.sum(axis=2) * (0.7 * hyper.hill) ** 2 * z[:, :, None, model._rate] * y[:, None, :, model._rate]
            )
        found = shape * self._amplitude(one)[:, :, None] * self._amplitude(other)[:, None, :]
        total: Array = found + self._level(one, other)
        return total

    def _level(self, one: Points, other: Points) -> Array:
        noise = one.noise[:, None] - other.noise[None, :]
        training = one.fraction[:, None] - other.fraction[None, :]
        lines = one.noise[:, None] * other.noise[None, :] + one.fraction[:, None] * other.fraction[None, :]
        curves = squared_exponential(noise) + squared_exponential(training / 0.8)
        found: Array = lines + 0.25 * curves + _LEVEL**2
        return found

    def _amplitude(self, points: Points) -> Array:
        """Return how much the parameters matter, shape (B, n). It falls with noise, as scores fall towards chance."""
        found: Array = np.exp(-self._hyper.growth * (points.noise - 0.5 * points.fraction))
        return found

    def _places(self, points: Points) -> Array:
        """Return z, shape (B, n, numbers). An absent parameter is at 0."""
        model, hyper = self._model, self._hyper
        tops = np.where(hyper.near, model.near_tops, model.tops)[:, None, :]
        found = np.where(np.isfinite(points.numbers), points.numbers - tops, 0.0)
        if model._rate is not None:
            shift = hyper.slope * points.noise + hyper.fraction_slope * (points.fraction - log(model.prior.fraction))
            if model._clip is not None:
                shift = shift + hyper.coupling * found[:, :, model._clip]
            found[:, :, model._rate] += shift
        scaled: Array = found / model._units
        for place, top in ((model._rate, hyper.rate_top), (model._clip, hyper.clip_top)):
            if place is not None:
                scaled[:, :, place] -= self._spreads[:, place, None] * top
        return scaled

    @cached_property
    def _spreads(self) -> Array:
        """Prior standard deviations of the best values, in units of the axes, shape (B, numbers)."""
        found: Array = np.where(self._hyper.near, self._model.near_spreads, self._model.spreads)
        return found

    def _distance(self, z: Array, y: Array) -> Array:
        """Return distances in length scales. Parameters other than the learning rate have longer ones."""
        hyper, rate = self._hyper, self._model._rate
        # Only the learning rate's place depends on the hyper-parameters, but for a constant that cancels out.
        free = [place for place in range(z.shape[2]) if place != rate]
        squares = ((z[:1, :, None, free] - y[:1, None, :, free]) ** 2).sum(axis=3)
        found = squares / hyper.others**2
        if rate is not None:
            found = found + (z[:, :, None, rate] - y[:, None, :, rate]) ** 2
        scaled: Array = np.sqrt(found) / hyper.length
        return scaled


def _products(one: Array, other: Array) -> Array:
    """Return the scalar products of all pairs, shape (B, n, m)."""
    found: Array = one @ np.swapaxes(other, 1, 2)
    return found


def _top(axis: Number, prior: Prior) -> tuple[float, float]:
    """Return the coordinate of the prior's median, moved into the range, and its standard deviation.

    A parameter without a recommendation has the centre of its range; one of `_OFF` has the lower bound.
    """
    low, high = axis.bounds
    centre, half = (low + high) / 2, (high - low) / 2
    known = prior.recommended.get(axis.name)
    if known is None or not known.value > 0:
        return low if axis.name in _OFF else centre, half / 1.5
    at = log(known.value) if axis.log else known.value
    spread = known.spread if axis.log else known.spread * known.value
    return min(max(at, low), high), max(spread, 0.05)
