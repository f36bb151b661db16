"""Sampler that models the score over parameters, noise and training, and proposes what helps the final run most."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.errors import InputError
from tuner.study.samplers.make import SamplerRequest
from tuner.study.samplers.prior import IndependentSampler, draw
from tuner.study.surrogate.axes import Axes
from tuner.study.surrogate.setting import SearchSetting
from tuner.study.surrogate.stored import observations, parameters_of, surrogate_of, with_reference
from tuner.study.surrogate.surrogate import Surrogate

__all__ = ["SurrogateSampler", "build"]

_STARTS: Final = 3
"""Default number of first trials that do not follow the scores. One more is added for each two searched parameters.

If the released run is not a trial and no proxy is known, no trial follows the scores. Scores of such noisy trials are
misleading: trials that are spread over the space lost 0.4 points less."""


def build(request: SamplerRequest) -> SurrogateSampler:
    """Create the surrogate sampler."""
    if request.space is None:
        raise InputError(
            "sampler-space-missing", "The sampler 'surrogate' needs a search space. Pass the argument `space`."
        )
    axes = Axes.of(request.space)
    starts = request.options.get("starts")
    if starts is not None and (not isinstance(starts, int) or isinstance(starts, bool) or starts < 1):
        raise InputError(
            "option-invalid", f"`starts` of the sampler 'surrogate' must be a positive whole number (got {starts!r})."
        )
    return SurrogateSampler(axes, request.setting, starts=starts, seed=request.seed)


class SurrogateSampler(IndependentSampler):
    """Sampler by a `Surrogate` of all scores of the study, including those of pruned and running trials.

    A proposal follows from the stored study, the seed and the trial's number alone, so a resumed search goes on as one
    that was not interrupted. The first trials are the prior's median, or the best known from a public proxy, and points
    that fill the space.

    Args:
        axes: searched parameters.
        setting: facts about the search, or None in a study without noise whose trials all end at the same step.
        starts: number of first trials that do not follow the scores, or None for the default.
        seed: public seed of the search.
    """

    draws_whole = True

    def __init__(self, axes: Axes, setting: SearchSetting | None, *, starts: int | None, seed: int) -> None:
        self._axes, self._given, self._starts, self._seed = axes, setting, starts, seed
        self._proposed: tuple[int, dict[str, object]] = (-1, {})

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Return the value of one parameter in the trial's proposal."""
        if self._proposed[0] != trial.number:
            self._proposed = trial.number, self._propose(study, trial.number)
        value = self._proposed[1].get(param_name)
        if value is None:  # given values of other parameters led to a branch that the proposal does not have
            return draw(param_distribution, random.Random(f"{self._seed}/{trial.number}/{param_name}"))
        return _inside(value, param_distribution)

    def surrogate(self, study: Study) -> Surrogate:
        """Return the surrogate of the study's scores so far."""
        return surrogate_of(study, self._axes, self._setting(study), seed=self._seed)

    def _propose(self, study: Study, number: int) -> dict[str, object]:
        setting, seed = self._setting(study), self._seed * 1009 + number
        others = [each for each in study.get_trials(deepcopy=False) if each.number != number and each.params]
        seen = observations(study, setting)
        spread = (
            self._starts is None and setting.final_noise is not None and not (setting.prior and setting.prior.proxy)
        )
        starts = self._starts or _STARTS + self._axes.size // 2
        if len(others) < starts or spread or not seen:
            known = Surrogate.fit(self._axes, (), setting.prior, seed=self._seed)
            return known.starts(max(len(others) + 1, starts))[len(others)]
        from tuner.study.surrogate.acquisition import choose_next  # it needs scipy

        scored = {each.trial for each in seen}
        surrogate = Surrogate.fit(self._axes, seen, setting.prior, seed=self._seed)
        return choose_next(
            surrogate,
            setting,
            [parameters_of(each) for each in others if f"{each.number}" in scored],
            [parameters_of(each) for each in others if f"{each.number}" not in scored][-16:],
            seed,
        )

    def _setting(self, study: Study) -> SearchSetting:
        if self._given is not None:
            self._given = with_reference(self._given, self._axes)  # learns from a proxy once
            return self._given
        steps = (max(each.intermediate_values, default=1) for each in study.get_trials(deepcopy=False))
        return SearchSetting(last_step=max(steps, default=1))


def _inside(value: Any, distribution: BaseDistribution) -> Any:  # noqa: ANN401 - a value of any parameter
    """Return the value as the distribution writes it."""
    match distribution:
        case CategoricalDistribution(choices=choices):
            same: Iterator[Any] = (each for each in choices if each == value and type(each) is type(value))
            return next(same, choices[0])
        case IntDistribution(low=low, high=high, step=step):
            return min(max(low + step * round((value - low) / step), low), high)
        case FloatDistribution(low=low, high=high, step=None):
            return min(max(float(value), low), high)
        case FloatDistribution(low=low, high=high, step=float(step)):
            return min(max(low + step * round((value - low) / step), low), high)
        case _:
            raise TypeError(f"The sampler does not support the domain {distribution!r}.")
