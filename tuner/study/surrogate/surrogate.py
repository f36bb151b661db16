"""Surrogate: what all trials of a search say about the final setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt
from typing import Final, TypeAlias

import numpy as np

from tuner.study.gaussian_process import Array, Solved, integrate, solve, spread_out
from tuner.study.suggest import Space
from tuner.study.surrogate.axes import Axes, Number
from tuner.study.surrogate.model import Model, Points, Stack
from tuner.study.surrogate.observations import PRIVATE, PUBLIC, Observation, Prior, Proposal, Proxy

__all__ = ["Noise", "Surrogate"]

Noise: TypeAlias = float | Callable[[Mapping[str, object]], float]
"""Noise-to-signal ratio, or a function of the parameters if the batch size or the noise is searched."""

_MOST: Final = 160
"""Maximum number of observations that are used. A trial's last score is kept before its earlier ones."""
_CANDIDATES: Final = 256
_LEADERS: Final = 64
_WIDER: Final = 1.5
"""The first trials cover the prior, whose spreads are widened by this factor."""
_LINE: Final = 41  # places along an axis, and curves at each hyper-parameter point, for the top on a proxy
_CURVES: Final = 4
_CAUTION: Final = 0.5
"""Deduction for risk, in standard deviations of the difference from the safest choice."""


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Gaussian process of the score over parameters, noise and fraction of training.

    The same observations and seed give the same surrogate. Predictions are for private records. Public observations
    are a prior of the private ones (`taught`).

    Attributes:
        axes: searched parameters.
    """

    axes: Axes
    _observations: tuple[Observation, ...]
    _centre: float
    _unit: float
    _model: Model
    _seen: Points
    _stack: Stack
    _weights: Array
    _solved: Solved | None
    _seed: int

    @classmethod
    def fit(
        cls, space: Space | Axes, observations: Sequence[Observation], prior: Prior | None = None, *, seed: int = 0
    ) -> Surrogate:
        """Fit the surrogate to observations.

        Args:
            space: search space.
            observations: scores of trials. None are needed: predictions are then those of the prior.
            prior: prior over the best parameters; by default, the centre of the space.
            seed: seed of the quasi-random points.

        Raises:
            ValueError: an observation has a noise or a fraction that is not positive, or a number that is not finite.
        """
        axes = space if isinstance(space, Axes) else Axes.of(space)
        _check(observations)
        prior = prior or Prior()
        public = [each for each in observations if each.source == PUBLIC]
        if public:
            prior = cls.taught(axes, public, prior, seed=seed)
        used = _chosen([each for each in observations if each.source == PRIVATE])
        own = [log(each.noise) for each in used]
        reference = prior.noise or (exp(sum(own) / len(own)) if own else 1.0)
        model = Model(axes, prior, reference)
        scores = _compressed(used)
        centre = float(scores.mean()) if used else 0.0
        errors = np.array([each.error for each in used])
        unit = _unit_of(scores, errors)
        y, noise = (scores - centre) / unit, (errors / unit) ** 2
        seen = model.points([(each.parameters, each.noise, each.fraction) for each in used])
        trials = np.array([each.trial or f"#{i}" for i, each in enumerate(used)])
        together = (trials[:, None] == trials[None, :]).astype(np.float64)

        def solved(normal: Array) -> tuple[Stack, Solved]:
            stack = model.at(normal)
            covariance = stack.covariance(seen, seen)
            covariance += stack.effect**2 * (0.6 * together + 0.5 * np.eye(len(used))) + np.diag(noise + 1e-4)
            return stack, solve(covariance, y - stack.mean(seen))

        if not used:
            points = integrate(lambda normal: np.zeros(len(normal)), model.dimension, seed=seed)
            weights = np.full(len(points), 1.0 / len(points))
            return cls(axes, (), centre, unit, model, seen, model.at(points), weights, None, seed)
        points = integrate(lambda normal: solved(normal)[1].evidence, model.dimension, seed=seed)
        stack, ready = solved(points)
        weights = np.full(len(points), 1.0 / len(points))
        return cls(axes, tuple(used), centre, unit, model, seen, stack, weights, ready, seed)

    @classmethod
    def taught(cls, axes: Axes, public: Sequence[Observation], prior: Prior, *, seed: int = 0) -> Prior:
        """Return the prior after the scores of a public proxy, of which its best configuration is a part."""
        known = cls.fit(axes, [replace(each, source=PRIVATE) for each in public], prior, seed=seed)
        best = known.best(known._model.reference, prior.fraction).parameters
        return replace(
            prior,
            noise=known._model.reference,
            proxy=Proxy(best, {axis.name: known._top(axis, best) for axis in axes.numbers}),
        )

    def _top(self, axis: Number, best: Mapping[str, object]) -> tuple[float, float]:
        """Return mean and standard deviation of the best coordinate of a parameter, the others as in `best`.

        They are those of the best places of random curves of the posterior (Thompson 1933).
        """
        low, high = axis.bounds
        line = np.linspace(low, high, _LINE)
        noise, fraction = self._model.reference, self._model.prior.fraction
        _, means, covariance = self.joint([({**best, axis.name: axis.value(at)}, noise, fraction) for at in line])
        scale = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / _LINE
        lower = np.linalg.cholesky(covariance + 1e-6 * scale * np.eye(_LINE))
        random = np.random.default_rng([self._seed, len(self._observations)])
        curves = means[:, None, :] + random.standard_normal((len(means), _CURVES, _LINE)) @ np.swapaxes(lower, 1, 2)
        tops = line[np.argmax(curves, axis=2)]
        return float(tops.mean()), float(tops.std())

    def predict(self, parameters: Mapping[str, object], noise: float, fraction: float = 1.0) -> tuple[float, float]:
        """Return the mean and the standard deviation of the score of a configuration, without a score's own error.

        Scores far below the best ones are compressed before the fit, so predictions of poor scores are too high.
        """
        weights, means, covariance = self.joint([(parameters, noise, fraction)])
        mean = float(weights @ means[:, 0])
        return mean, sqrt(float(weights @ (np.maximum(covariance[:, 0, 0], 0.0) + (means[:, 0] - mean) ** 2)))

    def means(self, places: Sequence[Mapping[str, object]], noise: Noise, fraction: float) -> Array:
        """Return means of the scores of several configurations, shape (m,)."""
        points = self._points(places, noise, fraction)
        means, _ = self._conditioned(points, np.zeros((self._weights.size, len(places))))
        return self._centre + self._unit * (self._weights @ means)

    def best(self, noise: Noise, fraction: float = 1.0) -> Proposal:
        """Return the configuration to train at a setting, such as that of the final run.

        It has the greatest expected score after a deduction for the risk: `_CAUTION` standard deviations of its score's
        difference from that of the safest choice. Gains far from all trials are extrapolated, and scores have a ceiling
        that the model does not know.
        """
        ranked = self.candidates(noise, fraction)
        leaders = [*ranked[:_LEADERS], *ranked[_LEADERS :: max(len(ranked) // _LEADERS, 1)]]
        ratio = noise if callable(noise) else lambda _parameters: noise
        weights, means, covariance = self.joint([(each, ratio(each), fraction) for each in leaders])
        mean, spread = weights @ means, np.diagonal(covariance, axis1=1, axis2=2)
        safe = int(np.argmax(mean - np.sqrt(np.maximum(weights @ (spread + (means - mean) ** 2), 0.0))))
        apart = spread + spread[:, safe : safe + 1] - 2 * covariance[:, :, safe]
        lead = means - means[:, safe : safe + 1]
        risk = np.sqrt(np.maximum(weights @ (apart + (lead - weights @ lead) ** 2), 0.0))
        found = leaders[int(np.argmax(mean - _CAUTION * risk))]
        return Proposal(found, *self.predict(found, noise(found) if callable(noise) else noise, fraction))

    def candidates(self, noise: Noise, fraction: float) -> list[dict[str, object]]:
        """Return distinct configurations of the space, from the greatest expected score to the smallest.

        They fill the space, and are dense where expected scores are great.
        """
        known = [self.axes.at(list(self.axes.shares(each.parameters))) for each in self._observations]
        pool = self._distinct([self.first(), self.median(), *self.axes.fill(_CANDIDATES, self._seed), *known])
        means = self.means(pool, noise, fraction)
        for turn, reach in enumerate((0.12, 0.05, 0.02)):
            leaders = [pool[i] for i in np.argsort(-means, kind="stable")[:8]]
            more = self._distinct([*pool, *self.axes.around(leaders, 16, reach, self._seed + turn)])
            means = np.concatenate([means, self.means(more[len(pool) :], noise, fraction)])
            pool = more
        return [pool[i] for i in np.argsort(-means, kind="stable")]

    def starts(self, count: int) -> list[dict[str, object]]:
        """Return first trials: the proxy's best or the prior's median, then points that fill the prior, widened.

        All but the first ignore a proxy, so that one that is far off is found out.
        """
        found = [self.first()]
        for shares in spread_out(max(count - 1, 1), self.axes.size, self._seed):
            many = len(self.axes.numbers)
            for place, at in enumerate(self._model.drawn(shares[:many], _WIDER)):
                low, high = self.axes.numbers[place].bounds
                shares[place] = min(max((at - low) / (high - low), 0.0), 1.0)
            found.append(dict(self.axes.at(list(shares))))
        return found[:count]

    def first(self) -> dict[str, object]:
        """Return the proxy's best configuration, or the prior's median."""
        proxy = self._model.prior.proxy
        return self.median() if proxy is None else dict(proxy.best)

    def median(self) -> dict[str, object]:
        """Return the configuration at the prior's medians, with the first option of every choice."""
        found: dict[str, object] = {choice.name: choice.options[0] for choice in self.axes.choices}
        for axis, top in zip(self.axes.numbers, self._model.tops, strict=True):
            found[axis.name] = axis.value(float(top))
        return dict(self.axes.at(list(self.axes.shares(found))))

    def joint(self, places: Sequence[tuple[Mapping[str, object], float, float]]) -> tuple[Array, Array, Array]:
        """Return the weights of the hyper-parameters, and means and covariances of scores at each.

        A place is (parameters, noise, fraction).

        The shapes are (B,), (B, m) and (B, m, m).
        """
        points = self._model.points(places)
        means, covariance = self._conditioned(points, self._stack.covariance(points, points))
        return self._weights, self._centre + self._unit * means, self._unit**2 * covariance

    @property
    def effect(self) -> float:
        """Standard deviation of the effect of a trial, in units of the score."""
        return self._unit * sqrt(float(self._weights @ self._stack.effect[:, 0, 0] ** 2))

    @property
    def slope(self) -> tuple[float, float]:
        """Mean and standard deviation of p, where the best learning rate is proportional to noise^(−p)."""
        found = self._stack.slope
        mean = float(self._weights @ found)
        return mean, sqrt(float(self._weights @ (found - mean) ** 2))

    def _points(self, places: Sequence[Mapping[str, object]], noise: Noise, fraction: float) -> Points:
        ratio = noise if callable(noise) else lambda _parameters: noise
        return self._model.points([(place, ratio(place), fraction) for place in places])

    def _conditioned(self, points: Points, prior: Array) -> tuple[Array, Array]:
        mean = self._stack.mean(points)
        if self._solved is None:
            return mean, prior
        found, spread = self._solved.condition(self._stack.covariance(self._seen, points), prior)
        return mean + found, spread

    def _distinct(self, places: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """Return the places with searched parameters only, each once."""
        found: dict[tuple[object, ...], dict[str, object]] = {}
        for place in places:
            kept = self.axes.kept(place)
            found.setdefault(tuple(kept.items()), kept)
        return list(found.values())


def _check(observations: Sequence[Observation]) -> None:
    for each in observations:
        values = (each.noise, each.fraction, each.score, each.error)
        if not (all(map(isfinite, values)) and each.noise > 0 and each.fraction > 0 and each.error >= 0):
            raise ValueError(f"noise and fraction must be positive, and all numbers finite (got {each}).")
        if each.source not in (PRIVATE, PUBLIC):
            raise ValueError(f"`source` must be {PRIVATE} or {PUBLIC} (got {each.source!r}).")


def _chosen(observations: Sequence[Observation]) -> list[Observation]:
    """Return at most `_MOST` observations. The last score of a trial is kept before earlier ones."""
    ends: dict[str, float] = {}
    for each in observations:
        ends[each.trial] = max(ends.get(each.trial, 0.0), each.fraction)
    is_last = [not each.trial or each.fraction == ends[each.trial] for each in observations]
    order = sorted(range(len(observations)), key=lambda i: (not is_last[i], -observations[i].fraction, i))
    return [observations[i] for i in sorted(order[:_MOST])]


def _compressed(observations: Sequence[Observation]) -> Array:
    """Return the scores, with those far below the best of their setting moved towards it.

    How bad a failed run is says little about where the best runs are, and no parabola has a cliff. The gap g to the
    best score of the same noise and fraction becomes s · log(1 + g/s), where s is the median gap, or three
    standard errors if these are greater.
    """
    settings: dict[tuple[int, int], list[int]] = {}
    for place, each in enumerate(observations):
        key = (round(log(each.noise) / 0.2), round(log(each.fraction) / 0.1))
        settings.setdefault(key, []).append(place)
    scores = np.array([each.score for each in observations], dtype=np.float64)
    tops = np.zeros_like(scores)
    for places in settings.values():
        tops[places] = scores[places].max()
    gaps = tops - scores
    typical = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1.0
    soft = max(typical, 3.0 * float(np.median([each.error for each in observations] or [0.0])), 1e-12)
    found: Array = tops - soft * np.log1p(gaps / soft)
    return found


def _unit_of(scores: Array, errors: Array) -> float:
    """Return the unit of the scores: their standard deviation, at least three standard errors of a score."""
    if scores.size == 0:
        return 1.0
    spread = float(scores.std()) if scores.size > 1 else 0.0
    return max(spread, 3.0 * float(np.median(errors)), 1e-3 * float(np.abs(scores).max()), 1e-12)
