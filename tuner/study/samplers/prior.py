"""Base classes of samplers that draw each parameter independently."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp, log
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.study import views
from tuner.study.protocols import StudySampler

__all__ = ["IndependentSampler", "PriorSampler", "draw"]


class IndependentSampler(BaseSampler, StudySampler):
    """Base class of samplers that draw each parameter independently. Subclasses implement `sample_independent`."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return no parameter, because none is drawn jointly."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no value, because no parameter is drawn jointly."""
        return {}


class PriorSampler(IndependentSampler):
    """Sampler that draws each value from the prior of its domain, which is uniform or log-uniform.

    Attributes:
        generator_of: function that returns the source of randomness of the n-th run, from 0; None for one source.
    """

    draws_whole = True  # a run whose source begins anew must draw all its values from it

    def __init__(self, generator: random.Random) -> None:
        self.generator_of: Callable[[int], random.Random] | None = None
        self._generator = generator

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Begin the source of randomness of the trial's run, if each run has its own."""
        if self.generator_of is not None:
            self._generator = self.generator_of(views.place_of(study, trial.number))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Draw a value of one parameter from its prior."""
        return draw(param_distribution, self._generator)


def draw(domain: BaseDistribution, generator: random.Random) -> Any:  # noqa: ANN401 - a value of any parameter
    """Draw a value from the prior of a domain."""
    match domain:
        case CategoricalDistribution(choices=choices):
            return choices[generator.randrange(len(choices))]
        case IntDistribution(low=low, high=high, log=True):
            # As in Optuna, the value is uniform in the logarithm and then rounded to a whole number.
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
            raise TypeError(f"The sampler does not support the domain {domain!r}.")
