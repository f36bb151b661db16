"""Optuna samplers for scores with one maximum: `UnimodalSampler` for one parameter, `UnimodalSamplers` for several.

    sampler = UnimodalSampler("R", tolerance=0.002)
    pruner = UnimodalPruner("R", tolerance=0.002, last_step=2700)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)

The samplers and pruners have no state, because every decision follows from the stored study. A resumed study therefore
makes the same decisions as an uninterrupted one. Trials may finish in any order.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.study.protocols import CurveModel, StudySampler
from tuner.study.unimodal.along import AlongParameter, believed_best, ranking
from tuner.study.unimodal.inference.beliefs import Beliefs

__all__ = ["UnimodalSampler", "UnimodalSamplers"]


class _CurveSampler(BaseSampler, StudySampler):
    """Base class that uses curve models to decide how the search continues. Optuna's calls are passed on to `_base`."""

    _base: BaseSampler
    _warned = False

    def waits(self, study: Study) -> bool:
        """Return whether the next trial must wait for further reports of running trials."""
        return any(believed.waits() for believed in self._beliefs(study))

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials, best first, ordered by the curves."""
        return ranking(self._beliefs(study))

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the number of the probably best trial.

        Also return a lower bound on the probability that this trial is near the optimum.
        """
        return believed_best(self._beliefs(study))

    def _beliefs(self, study: Study) -> list[Beliefs]:
        return [found for model in self.curve_models() if (found := model.beliefs(study)) is not None]

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._base.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values that `_base` draws for `search_space`. Other values of `_base` are dropped."""
        found = self._base.sample_relative(study, trial, search_space)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        return self._base.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Warn once if more trials run than the rules allow. Our driver waits, but plain Optuna cannot."""
        running = len(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
        most = min(
            (model.rules.at_once for model in self.curve_models() if isinstance(model, AlongParameter)), default=1
        )
        if running > most and not self._warned:
            self._warned = True
            warnings.warn(
                f"{running} trials run at a time, but `at_once` is {most}. Optuna does not wait for reports, so later "
                "trials start with fewer scores than the sampler assumes. Run fewer trials at a time, or raise "
                "`at_once`.",
                stacklevel=2,
            )
        self._base.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._base.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self._base.reseed_rng()


class UnimodalSampler(AlongParameter, _CurveSampler):
    """Sampler that proposes values of one parameter near the probable maximum. `base` proposes all other parameters.

    The first trials use the values in `starts`, in this order. Later values are chosen by `Beliefs.propose`.

    Args:
        parameter: see `AlongParameter`.
        tolerance: see `AlongParameter`.
        base: sampler of all other parameters, by default TPE.
        seed: seed of the random draws. The same study and seed give the same proposals.
        along: further arguments of `AlongParameter`. The parameter is multiplied by the parameters in `scales`. For a
            smoothing radius, these are for example learning rate, noise multiplier and clipping norm. The search space
            must sample the parameters in `scales` before the parameter itself.
    """

    def __init__(
        self,
        parameter: str,
        *,
        tolerance: float,
        base: BaseSampler | None = None,
        seed: int = 0,
        **along: Any,  # noqa: ANN401 - arguments of AlongParameter
    ) -> None:
        super().__init__(parameter, tolerance=tolerance, **along)
        self._base = base if base is not None else TPESampler(seed=seed)
        self._seed = seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that `base` proposes jointly, except the unimodal parameter."""
        space = super().infer_relative_search_space(study, trial)
        return {name: found for name, found in space.items() if name != self.parameter}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Return a value of one parameter. The curve model proposes the unimodal parameter, and `base` all others."""
        known = self.known(study, param_distribution) if param_name == self.parameter else None
        if known is None or not isinstance(param_distribution, FloatDistribution | IntDistribution):
            return super().sample_independent(study, trial, param_name, param_distribution)
        view, beliefs = known
        random = np.random.default_rng([self._seed, trial.number])
        place = beliefs.propose(random, view.context(trial))
        return _rounded(beliefs.rules.axis.value(place) / view.scale(trial), param_distribution)

    def best_trial(self, study: Study) -> int | None:
        """Return the number of the best complete trial according to the curve.

        Another trial may have a better score.
        """
        beliefs = self.beliefs(study)
        return None if beliefs is None else beliefs.best()

    def is_over(self, study: Study) -> bool:
        """Return whether the search may end because a complete trial is near the optimum with high probability."""
        beliefs = self.beliefs(study)
        return beliefs is not None and beliefs.surely_found()

    def reseed_rng(self) -> None:
        """Change the seeds, as Optuna requires for parallel workers."""
        super().reseed_rng()
        self._seed = random.Random(f"{self._seed}/again").getrandbits(32)


class UnimodalSamplers(_CurveSampler):
    """Sampler for several unimodal parameters.

    Args:
        layers: one sampler for each parameter. There must be at least one sampler. The `base` of each sampler is the
            previous sampler, and the `base` of the first sampler proposes all other parameters.
    """

    def __init__(self, layers: Sequence[UnimodalSampler]) -> None:
        self.each, self._base = tuple(layers), layers[-1]
        self._sure = max(layer.rules.sure for layer in layers)

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return the samplers of all parameters. Each sampler is a curve model."""
        return self.each

    def is_over(self, study: Study) -> bool:
        """Return whether one complete trial is near the optimum along all parameters with high probability."""
        best = self.best(study)
        return best is not None and best[1] >= self._sure and all(layer.is_over(study) for layer in self.each)


def _rounded(value: float, distribution: FloatDistribution | IntDistribution) -> float | int:
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        value = low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return round(value) if isinstance(distribution, IntDistribution) else float(value)
