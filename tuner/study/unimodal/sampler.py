"""Optuna samplers for scores with one top: `UnimodalSampler` for one parameter, `UnimodalSamplers` for several.

    sampler = UnimodalSampler("R", tolerance=0.002)
    pruner = UnimodalPruner("R", tolerance=0.002, last_step=2700)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)

Neither keeps a state: every decision follows from the study. A resumed study decides like an uninterrupted one, in any
storage, and trials may finish in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.study.protocols import CurveModel, StudySampler
from tuner.study.unimodal.along import AlongParameter, believed_best, ranking
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.options import Along
from tuner.study.unimodal.view import AUDIT

__all__ = ["UnimodalSampler", "UnimodalSamplers"]

_LAST: Final = 3.0
"""With fewer whole trials left, no trial is an audit."""


class _CurveSampler(BaseSampler, StudySampler):
    """Sampler that answers the driver by its curve models, and passes Optuna's calls on to another sampler."""

    wants_left = True
    _base: BaseSampler

    def waits(self, study: Study) -> bool:
        """Return whether to start no trial before a running one has reported more."""
        return any(believed.waits() for believed in self._beliefs(study))

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials in the order of the curves, best first."""
        return ranking(self._beliefs(study))

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the likely best trial, and a lower bound on the probability that it is near the best."""
        return believed_best(self._beliefs(study))

    def _beliefs(self, study: Study) -> list[Beliefs]:
        return [found for model in self.curve_models() if (found := model.beliefs(study)) is not None]

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._base.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the requested values of the other sampler. Grouped TPE also returns other parameters."""
        found = self._base.sample_relative(study, trial, search_space)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        return self._base.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._base.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._base.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self._base.reseed_rng()


class UnimodalSampler(AlongParameter, _CurveSampler):
    """Sampler that proposes values of one parameter near its likely top. Another sampler proposes the rest.

    The first values are `starts`, in this order. After them it uses Thompson sampling: the mode of one curve drawn from
    the posterior, away from running trials.

    Args:
        parameter: see `AlongParameter`, like `tolerance`.
        base: sampler of all other parameters; TPE by default.
        seed: seed of the draws; the same study and seed give the same proposals.
        along: further arguments of `AlongParameter`. Parameters in `scales`, such as learning rate, noise multiplier
            and clipping norm for a smoothing radius, must come first in the search space. The model is of the product.
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
        self._left: float | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the space of the other sampler, without the parameter."""
        space = super().infer_relative_search_space(study, trial)
        return {name: found for name, found in space.items() if name != self.parameter}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Propose the parameter by the rules, and every other parameter with the other sampler."""
        view = self.view(study, param_distribution) if param_name == self.parameter else None
        beliefs = self.beliefs(study, param_distribution) if view is not None else None
        if view is None or beliefs is None or not isinstance(param_distribution, FloatDistribution | IntDistribution):
            return super().sample_independent(study, trial, param_name, param_distribution)
        random = np.random.default_rng([self._seed, trial.number])
        context, ending = view.context(trial), self._left is not None and self._left < _LAST
        if beliefs.audits() and not ending:
            # Optuna's own samplers store attributes this way. The pruner excludes no trial with this one.
            study._storage.set_trial_system_attr(trial._trial_id, AUDIT, value=True)
        place = beliefs.propose(random, context, audit=not ending)
        return _rounded(beliefs.rules.axis.value(place) / view.scale(trial), param_distribution)

    @property
    def sure(self) -> float:
        """Probability of being near the best with which a trial ends the search."""
        return float(self._rules.get("sure", Rules.sure))

    def tell_left(self, left: float | None) -> None:
        """Learn how many whole trials are left. The last ones are no audits."""
        self._left = left

    def best_trial(self, study: Study) -> int | None:
        """Return the number of the complete trial that is the best by the curve; its own score may be luck."""
        beliefs = self.beliefs(study)
        return None if beliefs is None else beliefs.best()

    def is_over(self, study: Study) -> bool:
        """Return whether the search can end, because the best complete trial is surely near the best."""
        beliefs = self.beliefs(study)
        return beliefs is not None and beliefs.surely_found()

    def reseed_rng(self) -> None:
        """Change the seeds, as Optuna asks of workers in threads."""
        super().reseed_rng()
        self._seed = random.Random(f"{self._seed}/again").getrandbits(32)


class UnimodalSamplers(_CurveSampler):
    """Chain of one `UnimodalSampler` per parameter; each wraps the previous one.

    Args:
        parameters: in the order in which the search space asks for them.
        base: sampler of all other parameters.
        make: creates the sampler of a parameter, given the sampler to wrap.
    """

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
        self.each, self._base = tuple(layers), layers[-1]
        self._sure = max(layer.sure for layer in layers)

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return the sampler of every parameter."""
        return self.each

    def tell_left(self, left: float | None) -> None:
        """Tell every parameter's sampler how many whole trials are left."""
        for layer in self.each:
            layer.tell_left(left)

    def is_over(self, study: Study) -> bool:
        """Return whether one complete trial is surely near the best, along all parameters together."""
        best = self.best(study)
        return best is not None and best[1] >= self._sure and all(layer.is_over(study) for layer in self.each)


def _rounded(value: float, distribution: FloatDistribution | IntDistribution) -> float | int:
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        value = low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return round(value) if isinstance(distribution, IntDistribution) else float(value)
