"""Base of the samplers that choose each value by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna.samplers import BaseSampler

from tuner.study.protocols import StudySampler

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["IndependentSampler"]


class IndependentSampler(BaseSampler, StudySampler):
    """Sampler without joint proposals; subclasses implement `sample_independent`."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return no parameter: nothing is sampled jointly."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no value: nothing is sampled jointly."""
        return {}
