"""Adaptive sampler whose density stays within fixed factors of the prior's density, as a sealed search requires."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import exp, isfinite, log
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.study.samplers.make import SamplerRequest
from tuner.study.samplers.prior import PriorSampler, draw
from tuner.study.samplers.ratio import Ratio, ratio_of

__all__ = ["BoundedSampler", "build"]

_BANDWIDTH = 0.2
"""Bandwidth of the kernel. Numeric parameters are scaled to [0, 1], and different categories have distance 1."""


def build(request: SamplerRequest) -> BoundedSampler:
    """Create the bounded sampler."""
    generator = random.SystemRandom() if request.secret else random.Random(request.next_seed)
    return BoundedSampler(ratio_of(request.options), generator)


class BoundedSampler(PriorSampler):
    """Adaptive sampler of DP-HyPO (Wang et al. 2023). Its density is between c and C times the density of the prior.

    With probability c, a candidate is drawn from the prior. Otherwise N candidates are drawn from the prior, and a
    kernel regression over the finished trials selects the best candidate. A parameter that is missing in at least
    one finished trial is always drawn from the prior. The bounds therefore hold for the joint density of all
    parameters.

    Args:
        ratio: the probability c and the number of draws N, which together determine C.
        generator: source of randomness. In a sealed search, `generator_of` takes its place.
    """

    def __init__(self, ratio: Ratio, generator: random.Random) -> None:
        super().__init__(generator)
        self.ratio = ratio

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that every COMPLETE trial has, except parameters with only one value."""
        shared = IntersectionSearchSpace().calculate(study)
        return {name: domain for name, domain in shared.items() if not domain.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of the selected candidate, or no values if every parameter must be drawn from the prior."""
        if self._generator.random() < self.ratio.explore:
            return {}  # Optuna then calls `sample_independent` for each parameter, which draws from the prior
        draws = [
            {name: draw(domain, self._generator) for name, domain in search_space.items()}
            for _ in range(self.ratio.draws)
        ]
        finished = _finished(study, search_space)
        return max(draws, key=lambda each: _score(each, finished, search_space)) if finished else draws[0]


def _finished(study: Study, space: Mapping[str, BaseDistribution]) -> list[tuple[dict[str, Any], float]]:
    """Return the parameters and the score of every COMPLETE trial. If the study minimises, scores are negated."""
    sign = 1.0 if study.direction == optuna.study.StudyDirection.MAXIMIZE else -1.0
    trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return [
        ({name: trial.params[name] for name in space}, sign * trial.value)
        for trial in trials
        if trial.value is not None and isfinite(trial.value)
    ]


def _score(
    at: Mapping[str, Any], finished: Sequence[tuple[dict[str, Any], float]], space: Mapping[str, BaseDistribution]
) -> float:
    """Return the kernel-weighted mean score near the parameters `at` (Nadaraya 1964, Watson 1964)."""
    squares = [
        sum(_distance(domain, at[name], other[name]) ** 2 for name, domain in space.items()) for other, _ in finished
    ]
    smallest = min(squares)  # subtracted from every square, so that not all weights round to 0
    weights = [exp((smallest - square) / (2 * _BANDWIDTH**2)) for square in squares]
    return sum(weight * score for weight, (_, score) in zip(weights, finished, strict=True)) / sum(weights)


def _distance(domain: BaseDistribution, one: Any, other: Any) -> float:  # noqa: ANN401 - values of any parameter
    if isinstance(domain, CategoricalDistribution):
        return 0.0 if one == other else 1.0
    if not isinstance(domain, FloatDistribution | IntDistribution):
        raise TypeError(f"The sampler does not support the domain {domain!r}.")
    if domain.log:
        return abs(log(one) - log(other)) / (log(domain.high) - log(domain.low))
    return abs(float(one) - float(other)) / (domain.high - domain.low)
