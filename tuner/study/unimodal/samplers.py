"""Unimodal sampler of a whole search: several parameters at once.

Each parameter has a `UnimodalSampler` of its own, for which the other parameters are the context of a trial. Nothing
here keeps a state: every decision follows from the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.samplers import BaseSampler

from tuner.study.protocols import CurveModel, StudySampler
from tuner.study.unimodal.ranking import believed_best, ranking

if TYPE_CHECKING:
    from collections.abc import Callable

    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

    from tuner.study.unimodal.inference.beliefs import Beliefs
    from tuner.study.unimodal.options import Along
    from tuner.study.unimodal.sampler import UnimodalSampler

__all__ = ["UnimodalSamplers"]


class UnimodalSamplers(BaseSampler, StudySampler):
    """Chain of one `UnimodalSampler` per parameter; each wraps the previous one.

    Args:
        parameters: in the order in which they are asked for.
        base: proposes everything else.
        make: makes the sampler of a parameter over another sampler.

    Raises:
        ValueError: there is no parameter.
    """

    wants_left = True

    def __init__(
        self,
        parameters: Sequence[Along],
        base: BaseSampler,
        make: Callable[[Along, BaseSampler], UnimodalSampler],
    ) -> None:
        if not parameters:
            raise ValueError("`parameters` must name at least one parameter.")
        layers: list[UnimodalSampler] = []
        for along in parameters:
            layers.append(make(along, layers[-1] if layers else base))
        self._layers = tuple(layers)
        self._sure = max(layer.sure for layer in layers)

    @property
    def each(self) -> tuple[UnimodalSampler, ...]:
        """Sampler of every parameter."""
        return self._layers

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return the sampler of every parameter."""
        return self._layers

    def tell_left(self, left: float | None) -> None:
        """Pass the number of whole trials that are left on to every parameter's sampler."""
        for layer in self._layers:
            layer.tell_left(left)

    def waits(self, study: Study) -> bool:
        """Return whether no trial should start before a running one has reported more."""
        return any(layer.waits(study) for layer in self._layers)

    def is_over(self, study: Study) -> bool:
        """Return whether one complete trial is surely near the best, along all parameters together."""
        best = self.best(study)
        return best is not None and best[1] >= self._sure and all(layer.is_over(study) for layer in self._layers)

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials, the one believed to be the best first."""
        return ranking(self._beliefs(study))

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the number of the trial believed to be the best, and the least probability that it is near it."""
        return believed_best(self._beliefs(study))

    def _beliefs(self, study: Study) -> list[Beliefs]:
        return [found for layer in self._layers if (found := layer.beliefs(study)) is not None]

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the space of the base, without the parameters."""
        return self._layers[-1].infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values of the base; some samplers also give parameters that they were not asked for."""
        found = self._layers[-1].sample_relative(study, trial, search_space)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Propose each parameter with its own sampler."""
        return self._layers[-1].sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the others."""
        self._layers[-1].before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the others."""
        self._layers[-1].after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Change the seeds, as Optuna asks of workers in threads."""
        self._layers[-1].reseed_rng()
