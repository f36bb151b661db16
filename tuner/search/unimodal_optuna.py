"""An Optuna sampler and pruner for studies whose score is unimodal in one parameter.

    sampler = UnimodalSampler("R", tolerance=0.002)
    pruner = UnimodalPruner("R", tolerance=0.002, last_step=2700)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)

Neither keeps a state of its own: everything follows from the study, so that a resumed one decides as one that was never
interrupted, in whatever storage it lies, and trials may finish in any order. Both share what is computed once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.unimodal.axis import Axis
from tuner.search.unimodal.beliefs import Beliefs, Rules, believe
from tuner.search.unimodal.records import Record, Seen, Standing

__all__ = ["UnimodalPruner", "UnimodalSampler", "axis_of", "seen_in"]

_STATES = {TrialState.RUNNING: "running", TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}


class _Unimodal:
    """What the two share: from a study to beliefs."""

    def __init__(self, parameter: str, tolerance: float, last_step: int | None, rules: dict[str, Any]) -> None:
        if not (isinstance(parameter, str) and parameter):
            raise ValueError(f"parameter must be the name of a searched parameter, got {parameter!r}")
        if not tolerance > 0:
            raise ValueError(f"tolerance must be above 0, in the score's own unit, got {tolerance!r}")
        if last_step is not None and not last_step > 0:
            raise ValueError(f"last_step must be above 0, got {last_step!r}")
        self._parameter, self._tolerance, self._last_step, self._rules = parameter, tolerance, last_step, rules
        Rules(
            axis=Axis(0.0, 1.0), tolerance=tolerance, **rules
        )  # an unknown rule is an error now, not at the first trial

    def beliefs(self, study: Study, distribution: BaseDistribution | None = None) -> Beliefs | None:
        """What follows from the study as it stands; None before the parameter's bounds are known."""
        trials = study.get_trials(deepcopy=False)
        if distribution is None:
            known = (trial.distributions.get(self._parameter) for trial in trials)
            distribution = next((found for found in known if found is not None), None)
        axis = None if distribution is None else axis_of(distribution)
        if axis is None:
            return None
        seen = seen_in(study, self._parameter, axis, last_step=self._last_step)
        return believe(seen, Rules(axis=axis, tolerance=self._tolerance, **self._rules))


class UnimodalSampler(_Unimodal, BaseSampler):
    """Proposes values of one parameter where the score may have its top; the rest comes from another sampler.

    The first values are `starts`, in this order; after them Thompson sampling: the mode of one curve drawn from what
    is believed, away from the trials that run.

    Args:
        parameter: name of a float or integer parameter.
        tolerance: how much better a score must be to matter, in its own unit.
        last_step: step at which trials end; by default the largest that a complete trial has reported.
        base: proposes everything else; TPE by default.
        seed: of the draws; the same study and seed give the same proposals.
        rules: see `beliefs.Rules`.

    Raises:
        ValueError: a value is out of range.
        TypeError: an unknown rule.
    """

    def __init__(
        self,
        parameter: str,
        *,
        tolerance: float,
        last_step: int | None = None,
        base: BaseSampler | None = None,
        seed: int = 0,
        **rules: Any,  # noqa: ANN401 - fields of Rules
    ) -> None:
        super().__init__(parameter, tolerance, last_step, rules)
        self._base = base if base is not None else TPESampler(seed=seed)
        self._seed = seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """That of the other sampler, without our parameter."""
        space = self._base.infer_relative_search_space(study, trial)
        return {name: found for name, found in space.items() if name != self._parameter}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """From the other sampler."""
        return self._base.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Our parameter by the rules; the others, and one that is no number, from the other sampler."""
        beliefs = None
        if param_name == self._parameter and isinstance(param_distribution, FloatDistribution | IntDistribution):
            beliefs = self.beliefs(study, param_distribution)
        if beliefs is None or not isinstance(param_distribution, FloatDistribution | IntDistribution):
            return self._base.sample_independent(study, trial, param_name, param_distribution)
        place = beliefs.propose(np.random.default_rng([self._seed, trial.number]))
        return _rounded(beliefs.rules.axis.value(place), param_distribution)

    def waits(self, study: Study) -> bool:
        """Whether no trial should start before a running one has said more; a driver that can wait asks."""
        beliefs = self.beliefs(study)
        return beliefs is not None and beliefs.waits()

    def best_trial(self, study: Study) -> int | None:
        """Number of the complete trial that is believed to be the best: by the curve, not by its luck."""
        beliefs = self.beliefs(study)
        return None if beliefs is None else beliefs.best()

    def is_over(self, study: Study) -> bool:
        """Whether the best complete trial is so surely near the best that the rest of the budget is better kept."""
        beliefs = self.beliefs(study)
        return beliefs is not None and beliefs.surely_found()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the other sampler."""
        self._base.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the other sampler."""
        self._base.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """As Optuna asks of workers in threads; proposals depend on the trial's number and need none."""
        self._base.reseed_rng()
        self._seed = random.Random(f"{self._seed}/again").getrandbits(32)


class UnimodalPruner(_Unimodal, BasePruner):
    """Stops trials that are not near the best, with what all trials together say about the curve.

    Args:
        parameter: name of a float or integer parameter; a trial without it is never pruned.
        tolerance: how much better a score must be to matter, in its own unit.
        last_step: step at which trials end; by default the largest that a complete trial has reported, and nothing is
            pruned before there is one.
        rules: see `beliefs.Rules`.

    Raises:
        ValueError: a value is out of range.
        TypeError: an unknown rule.
    """

    def __init__(
        self,
        parameter: str,
        *,
        tolerance: float,
        last_step: int | None = None,
        **rules: Any,  # noqa: ANN401 - fields of Rules
    ) -> None:
        super().__init__(parameter, tolerance, last_step, rules)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial cannot be near the best; asked before any report, whether it need not start at all."""
        if self._parameter not in trial.params:
            return False
        beliefs = self.beliefs(study, trial.distributions[self._parameter])
        last = _last_step(study, self._last_step)
        if beliefs is None or last is None or trial.number in beliefs.first:
            return False
        step = max(trial.intermediate_values, default=0)
        if step >= last:
            return False
        return beliefs.excluded(beliefs.rules.axis.place(trial.params[self._parameter]), step / last)


def axis_of(distribution: BaseDistribution) -> Axis | None:
    """The axis of a parameter: logarithmic where its distribution is, log(1 + x) from 0 on, else linear."""
    if not isinstance(distribution, FloatDistribution | IntDistribution) or not distribution.low < distribution.high:
        return None
    low, high = float(distribution.low), float(distribution.high)
    return Axis(low, high, "log" if distribution.log else "log1p" if low >= 0 else "linear")


def seen_in(study: Study, parameter: str, axis: Axis, *, last_step: int | None) -> Seen:
    """The records of a study; scores are turned so that larger is better."""
    last = _last_step(study, last_step)
    sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
    records, standings = [], []
    for trial in study.get_trials(deepcopy=False):
        state = _STATES.get(trial.state)
        if state is None or parameter not in trial.params:
            continue
        place = axis.place(trial.params[parameter])
        standings.append(Standing(place, trial.number, state))
        scores = dict(trial.intermediate_values)
        if state == "complete" and last is not None and trial.value is not None:
            scores[last] = trial.value
        if last is not None:
            records += [
                Record(place, min(step / last, 1.0), sign * score, trial.number)
                for step, score in scores.items()
                if step > 0 and np.isfinite(score)
            ]
    return Seen.of(records, standings)


def _last_step(study: Study, given: int | None) -> int | None:
    if given is not None:
        return given
    steps = [
        max(trial.intermediate_values, default=1)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    ]
    return max(steps, default=None)


def _rounded(value: float, distribution: FloatDistribution | IntDistribution) -> float | int:
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        value = low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return round(value) if isinstance(distribution, IntDistribution) else float(value)
