"""Samplers with a fixed prior: exactly it, or within a bounded ratio of it; secret where a search is sealed.

In a sealed search nothing may tell which of its runs won, for that would tell something of how many there were. A seed
would: whoever knows it can count the candidates up to the winner's. So each value is drawn anew from the operating
system, and every run's public seed too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import exp, isfinite, log
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace

from tuner.study.ratio import Ratio

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["BoundedSampler", "PriorSampler"]

_BANDWIDTH = 0.2
"""Of the kernel, where each numeric parameter goes from 0 to 1 and two words are 1 apart."""


class PriorSampler(BaseSampler):
    """Every value independently from its own domain: evenly, or evenly in the logarithm.

    Args:
        generator: where the randomness comes from; `random.SystemRandom` in a sealed search.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing is sampled jointly."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing is sampled jointly."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """One value."""
        return _drawn(param_distribution, self._generator)


class BoundedSampler(PriorSampler):
    """DP-HyPO's adaptive sampler (Wang et al. 2023): its density stays between c and C times the prior's.

    A candidate is a draw from the prior with probability c, and otherwise the one of N draws whose score a kernel
    regression over the finished trials puts first. Only parameters that every finished trial has are scored; the
    others are drawn from the prior, so the bounds hold for whole candidates.

    Args:
        ratio: c and N.
        generator: where the randomness comes from; `random.SystemRandom` in a sealed search.
    """

    draws_whole = True
    """A candidate that was stored in part is never filled up: its rest would be of another draw."""

    def __init__(self, ratio: Ratio, generator: random.Random) -> None:
        super().__init__(generator)
        self.ratio = ratio

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that every finished trial has."""
        shared = IntersectionSearchSpace().calculate(study)
        return {name: domain for name, domain in shared.items() if not domain.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A draw from the prior, or the best of several."""
        if self._generator.random() < self.ratio.explore:
            return {}  # each value is then drawn from its own domain
        draws = [
            {name: _drawn(domain, self._generator) for name, domain in search_space.items()}
            for _ in range(self.ratio.draws)
        ]
        finished = _finished(study, search_space)
        return max(draws, key=lambda draw: _score(draw, finished, search_space)) if finished else draws[0]


def _drawn(domain: BaseDistribution, generator: random.Random) -> Any:  # noqa: ANN401 - a value of any parameter
    match domain:
        case CategoricalDistribution(choices=choices):
            return choices[generator.randrange(len(choices))]
        case IntDistribution(low=low, high=high, log=True):
            # As Optuna does: evenly in the logarithm, each whole number standing for what rounds to it.
            value = round(exp(generator.uniform(log(low - 0.5), log(high + 0.5))))
            return min(max(value, low), high)
        case IntDistribution(low=low, high=high, step=step):
            return low + step * generator.randrange((high - low) // step + 1)
        case FloatDistribution(low=low, high=high, log=True):
            return min(max(exp(generator.uniform(log(low), log(high))), low), high)
        case FloatDistribution(low=low, high=high, step=None):
            return min(max(generator.uniform(low, high), low), high)
        case FloatDistribution(low=low, high=high, step=float(step)):
            return low + step * generator.randrange(round((high - low) / step) + 1)
        case _:
            raise TypeError(f"a domain of Optuna must be known, got {domain!r}")


def _finished(study: Study, space: Mapping[str, BaseDistribution]) -> list[tuple[dict[str, Any], float]]:
    """Parameters and score of every finished trial, a greater score being better."""
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
    """The mean score of the finished trials, nearer ones weighing more (Nadaraya 1964, Watson 1964)."""
    squares = [
        sum(_apart(domain, at[name], there[name]) ** 2 for name, domain in space.items()) for there, _ in finished
    ]
    nearest = min(squares)  # taken out of every weight, so that they do not all vanish
    weights = [exp((nearest - square) / (2 * _BANDWIDTH**2)) for square in squares]
    return sum(weight * score for weight, (_, score) in zip(weights, finished, strict=True)) / sum(weights)


def _apart(domain: BaseDistribution, one: Any, other: Any) -> float:  # noqa: ANN401 - values of any parameter
    if isinstance(domain, CategoricalDistribution):
        return 0.0 if one == other else 1.0
    if not isinstance(domain, FloatDistribution | IntDistribution):
        raise TypeError(f"a domain of Optuna must be known, got {domain!r}")
    if domain.log:
        return abs(log(one) - log(other)) / (log(domain.high) - log(domain.low))
    return abs(float(one) - float(other)) / (domain.high - domain.low)
