"""Optuna sampler for a score that is unimodal in one parameter.

    sampler = UnimodalSampler("R", tolerance=0.002)
    pruner = UnimodalPruner("R", tolerance=0.002, last_step=2700)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)

Neither keeps a state of its own: every decision follows from the study. A resumed study decides like one that was never
interrupted, in any storage, and trials may finish in any order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler

from tuner.study.protocols import StudySampler
from tuner.study.unimodal.along import AlongParameter
from tuner.study.unimodal.inference.beliefs import Rules
from tuner.study.unimodal.ranking import believed_best
from tuner.study.unimodal.view import AUDIT

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

__all__ = ["UnimodalSampler"]

_LAST: Final = 3.0
"""With fewer whole trials left none is an audit."""


class UnimodalSampler(AlongParameter, BaseSampler, StudySampler):
    """Sampler that proposes values of one parameter near the likely top; the rest comes from another sampler.

    The first values are `starts`, in this order. After them it uses Thompson sampling: the mode of one curve drawn from
    the posterior, away from the trials that run.

    Args:
        parameter: name of a float or integer parameter.
        tolerance: how much better a score must be to matter, in its own unit.
        last_step: step at which trials end; by default the largest that a complete trial has reported.
        scales: parameters that multiply it, such as learning rate, noise multiplier and clipping norm for a smoothing
            radius: the product is modelled. They must be asked for first.
        base: proposes everything else; TPE by default.
        seed: of the draws; the same study and seed give the same proposals.
        rules: see `inference.beliefs.Rules`.

    Raises:
        ValueError: a value is out of range.
        TypeError: a rule is unknown.
    """

    wants_left = True

    def __init__(
        self,
        parameter: str,
        *,
        tolerance: float,
        last_step: int | None = None,
        scales: Sequence[str] = (),
        base: BaseSampler | None = None,
        seed: int = 0,
        **rules: Any,  # noqa: ANN401 - fields of Rules
    ) -> None:
        super().__init__(parameter, tolerance, last_step, scales, rules)
        self._base = base if base is not None else TPESampler(seed=seed)
        self._seed = seed
        self._left: float | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the space of the other sampler, without the parameter."""
        space = self._base.infer_relative_search_space(study, trial)
        return {name: found for name, found in space.items() if name != self._parameter}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values of the other sampler; grouped TPE also gives parameters that it was not asked for."""
        found = self._base.sample_relative(study, trial, search_space)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Propose the parameter by the rules, and every other parameter with the other sampler."""
        view = self.view(study, param_distribution) if param_name == self._parameter else None
        beliefs = self.beliefs(study, param_distribution) if view is not None else None
        if view is None or beliefs is None or not isinstance(param_distribution, FloatDistribution | IntDistribution):
            return self._base.sample_independent(study, trial, param_name, param_distribution)
        random = np.random.default_rng([self._seed, trial.number])
        context, ending = view.context(trial), self._left is not None and self._left < _LAST
        if beliefs.audits() and not ending:
            # As Optuna's own samplers do. The pruner must not refuse an audit.
            study._storage.set_trial_system_attr(trial._trial_id, AUDIT, value=True)
        place = beliefs.propose(random, context, audit=not ending)
        return _rounded(beliefs.rules.axis.value(place) / view.scale(trial), param_distribution)

    @property
    def sure(self) -> float:
        """Probability that ends a search."""
        return float(self._rules.get("sure", Rules.sure))

    def tell_left(self, left: float | None) -> None:
        """Learn how many whole trials are left: the last ones are no audits."""
        self._left = left

    def waits(self, study: Study) -> bool:
        """Return whether no trial should start before a running one has reported more."""
        beliefs = self.beliefs(study)
        return beliefs is not None and beliefs.waits()

    def best_trial(self, study: Study) -> int | None:
        """Return the number of the complete trial believed to be the best: by the curve, not by its luck."""
        beliefs = self.beliefs(study)
        return None if beliefs is None else beliefs.best()

    def is_over(self, study: Study) -> bool:
        """Return whether the best complete trial is surely near the best, so that the search can end."""
        beliefs = self.beliefs(study)
        return beliefs is not None and beliefs.surely_found()

    def best(self, study: Study) -> tuple[int, float] | None:
        """Return the number of the trial believed to be the best, and the probability that it is near the best."""
        beliefs = self.beliefs(study)
        return None if beliefs is None else believed_best([beliefs])

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Return the numbers of the complete trials, the one believed to be the best first."""
        beliefs = self.beliefs(study)
        return () if beliefs is None else beliefs.ranked()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the other sampler."""
        self._base.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the other sampler."""
        self._base.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Change the seed, as Optuna asks of workers in threads."""
        self._base.reseed_rng()
        self._seed = random.Random(f"{self._seed}/again").getrandbits(32)


def _rounded(value: float, distribution: FloatDistribution | IntDistribution) -> float | int:
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        value = low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return round(value) if isinstance(distribution, IntDistribution) else float(value)
