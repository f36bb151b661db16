"""An Optuna sampler and pruner for studies whose score is unimodal in one parameter.

    sampler = UnimodalSampler("R", tolerance=0.002)
    pruner = UnimodalPruner("R", tolerance=0.002, last_step=2700)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)

Neither keeps a state of its own: everything follows from the study, so that a resumed one decides as one that was never
interrupted, in whatever storage it lies, and trials may finish in any order. Both share what is computed once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.study.unimodal.axis import Axis
from tuner.study.unimodal.beliefs import Beliefs, Rules, believe
from tuner.study.unimodal.records import Context, Record, Seen, Standing

__all__ = ["AUDIT", "UnimodalPruner", "UnimodalSampler", "View", "axis_of"]

AUDIT: Final = "unimodal:audit"
"""System attribute of a trial that was started where nothing was known."""

Told = tuple[Standing, tuple[Record, ...]]
"""Where a trial stands, and its records."""

_LAST: Final = 3.0
"""With fewer whole trials left none is an audit."""

_STATES = {TrialState.RUNNING: "running", TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}


class _Unimodal:
    """What the two share: from a study to beliefs."""

    def __init__(
        self, parameter: str, tolerance: float, last_step: int | None, scales: Sequence[str], rules: dict[str, Any]
    ) -> None:
        if not (isinstance(parameter, str) and parameter):
            raise ValueError(f"parameter must be the name of a searched parameter, got {parameter!r}")
        if not 0 < tolerance < math.inf:
            raise ValueError(f"tolerance must be above 0 and finite, in the score's own unit, got {tolerance!r}")
        if last_step is not None and not last_step > 0:
            raise ValueError(f"last_step must be above 0, got {last_step!r}")
        self._parameter, self._tolerance, self._last_step, self._rules = parameter, tolerance, last_step, rules
        self._scales = tuple(scales)
        # What ended trials said, for it cannot change: nothing is decided by it that does not follow from the study.
        self._ended: tuple[object, dict[int, Told]] = (None, {})
        Rules(axis=Axis(0.0, 1.0), tolerance=tolerance, **rules)  # an unknown rule is an error now, not at a trial

    @property
    def parameter(self) -> str:
        """Name of the parameter whose curve is believed."""
        return self._parameter

    @property
    def scales(self) -> tuple[str, ...]:
        """Names of the parameters that multiply it."""
        return self._scales

    def beliefs(self, study: Study, distribution: BaseDistribution | None = None) -> Beliefs | None:
        """What follows from the study as it stands; None before the parameter's bounds are known."""
        view = self._view(study, distribution)
        if view is None:
            return None
        last = _last_step(study, self._last_step)
        of = (id(study._storage), study.study_name, view, last)
        if self._ended[0] != of:
            self._ended = (of, {})
        seen = view.seen(study, last, self._ended[1])
        return believe(seen, Rules(axis=view.axis, tolerance=self._tolerance, **self._rules))

    def _view(self, study: Study, distribution: BaseDistribution | None = None) -> View | None:
        distributions = {
            name: found for trial in study.get_trials(deepcopy=False) for name, found in trial.distributions.items()
        }
        return View.of(self._parameter, distribution or distributions.get(self._parameter), distributions, self._scales)


class UnimodalSampler(_Unimodal, BaseSampler):
    """Proposes values of one parameter where the score may have its top; the rest comes from another sampler.

    The first values are `starts`, in this order; after them Thompson sampling: the mode of one curve drawn from what
    is believed, away from the trials that run.

    Args:
        parameter: name of a float or integer parameter.
        tolerance: how much better a score must be to matter, in its own unit.
        last_step: step at which trials end; by default the largest that a complete trial has reported.
        scales: parameters whose product with ours is what matters, as learning rate, noise multiplier and clipping
            norm for a smoothing radius: the product is modelled. They must be asked for before ours.
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
        scales: Sequence[str] = (),
        base: BaseSampler | None = None,
        seed: int = 0,
        **rules: Any,  # noqa: ANN401 - fields of Rules
    ) -> None:
        super().__init__(parameter, tolerance, last_step, scales, rules)
        self._base = base if base is not None else TPESampler(seed=seed)
        self._seed = seed
        self.left: float | None = None
        """Whole trials that the rest of the budget pays for, where a driver knows: the last are no audits."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """That of the other sampler, without our parameter."""
        space = self._base.infer_relative_search_space(study, trial)
        return {name: found for name, found in space.items() if name != self._parameter}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """From the other sampler; grouped TPE gives values of parameters that it was not asked for."""
        found = self._base.sample_relative(study, trial, search_space)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Our parameter by the rules; the others, and one that is no number, from the other sampler."""
        view = self._view(study, param_distribution) if param_name == self._parameter else None
        beliefs = self.beliefs(study, param_distribution) if view is not None else None
        if view is None or beliefs is None or not isinstance(param_distribution, FloatDistribution | IntDistribution):
            return self._base.sample_independent(study, trial, param_name, param_distribution)
        random = np.random.default_rng([self._seed, trial.number])
        context, ending = view.context(trial), self.left is not None and self.left < _LAST
        if beliefs.audits() and not ending:
            # As Optuna's own samplers do; the pruner must not refuse what was started to look.
            study._storage.set_trial_system_attr(trial._trial_id, AUDIT, value=True)
        place = beliefs.propose(random, context, audit=not ending)
        return _rounded(beliefs.rules.axis.value(place) / view.scale(trial), param_distribution)

    @property
    def sure(self) -> float:
        """Probability that ends a search."""
        return float(self._rules.get("sure", Rules.sure))

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
        scales: as the sampler's.
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
        scales: Sequence[str] = (),
        **rules: Any,  # noqa: ANN401 - fields of Rules
    ) -> None:
        super().__init__(parameter, tolerance, last_step, scales, rules)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial cannot be near the best; asked before any report, whether it need not start at all."""
        if self._parameter not in trial.params:
            return False
        distribution = trial.distributions[self._parameter]
        view, beliefs = self._view(study, distribution), self.beliefs(study, distribution)
        last = _last_step(study, self._last_step)
        if view is None or beliefs is None or last is None or trial.number in beliefs.first:
            return False
        step = max(trial.intermediate_values, default=0)
        if step >= last or (step == 0 and AUDIT in trial.system_attrs):
            return False
        place, context = view.place(trial), view.context(trial)
        if beliefs.excluded(place, step / last, context):
            return True
        return step > 0 and beliefs.beaten(trial.number, place, step / last, context)

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Why `prune` has just said that the trial need not go on, in words that hold scores and parameters alone."""
        distribution = trial.distributions[self._parameter]
        view, beliefs = self._view(study, distribution), self.beliefs(study, distribution)
        last = _last_step(study, self._last_step)
        if view is None or beliefs is None or last is None:
            return ""
        step, value = max(trial.intermediate_values, default=0), f"{trial.params[self._parameter]:.4g}"
        when = f"after {100 * step / last:.0f} % of its steps" if step else "before its first step"
        place, context = view.place(trial), view.context(trial)
        if not beliefs.excluded(place, step / last, context):
            ahead = beliefs.ahead(trial.number, place, context)
            return f"this run ends above the best one with probability {_told(ahead)}, {when}"
        if beliefs.rules.strict:
            return f"{self._parameter} {value} is outside the bracket of the best at level 5 %, {when}"
        near = _told(beliefs.near(place, context))
        return f"{self._parameter} {value} is near the best with probability {near}, {when}"


@dataclass(frozen=True)
class View:
    """How the trials of a study are seen: one parameter, on an axis, in the context of the others.

    Attributes:
        parameter: ours.
        axis: of the parameter, times the scale.
        bounds: of the parameter itself.
        others: distributions of the other searched parameters.
        scales: of these, those that multiply ours; each counts from the middle of its own range.
    """

    parameter: str
    axis: Axis
    bounds: tuple[float, float]
    others: Mapping[str, BaseDistribution]
    scales: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        parameter: str,
        distribution: BaseDistribution | None,
        every: Mapping[str, BaseDistribution],
        scales: Sequence[str] = (),
    ) -> View | None:
        """None where the parameter is no number, or holds one value."""
        axis = None if distribution is None else axis_of(distribution)
        if axis is None:
            return None
        others = {name: found for name, found in every.items() if name != parameter and not found.single()}
        known = tuple(name for name in scales if (found := _range(others.get(name))) is not None and found[0] > 0)
        spread = math.prod(math.sqrt(high / low) for low, high in (_range(others[name]) or (1, 1) for name in known))
        ends = [bound * scale for bound in (axis.low, axis.high) for scale in (spread, 1 / spread)]
        return cls(parameter, Axis(min(ends), max(ends), axis.warp), (axis.low, axis.high), others, known)

    def scale(self, trial: FrozenTrial) -> float:
        """What the other parameters multiply ours by; 1 in the middle of their ranges."""
        found = 1.0
        for name in self.scales:
            low, high = _range(self.others[name]) or (1.0, 1.0)
            found *= float(trial.params.get(name, math.sqrt(low * high))) / math.sqrt(low * high)
        return found

    def place(self, trial: FrozenTrial) -> float:
        """Of a trial on the axis."""
        return self.axis.place(trial.params[self.parameter] * self.scale(trial))

    def context(self, trial: FrozenTrial) -> Context:
        """What else it trains with."""
        values: list[tuple[str, float | str]] = []
        for name in sorted(self.others):
            if name not in trial.params:
                continue
            axis, value = axis_of(self.others[name]), trial.params[name]
            values.append((name, str(value) if axis is None else round(axis.place(value), 9)))
        scale = self.scale(trial)
        low, high = (round(min(max(self.axis.place(bound * scale), 0.0), 1.0), 9) for bound in self.bounds)
        return Context(tuple(values), low, high)

    def seen(self, study: Study, last: int | None, ended: dict[int, Told] | None = None) -> Seen:
        """The records of a study; scores are turned so that larger is better.

        Args:
            study: any.
            last: step at which trials end; None where it is not known: there are no records then.
            ended: of trials that ended, by their numbers, what was seen before; it is added to.
        """
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        ended = {} if ended is None else ended
        records: list[Record] = []
        standings: list[Standing] = []
        for trial in study.get_trials(deepcopy=False):
            if trial.state not in _STATES or self.parameter not in trial.params:
                continue
            told = ended.get(trial.number) or self._told(trial, last, sign)
            if trial.state.is_finished():
                ended[trial.number] = told
            standings.append(told[0])
            records += told[1]
        return Seen.of(records, standings)

    def _told(self, trial: FrozenTrial, last: int | None, sign: float) -> Told:
        """Where one trial stands and what it said."""
        place, context, state = self.place(trial), self.context(trial), _STATES[trial.state]
        scores = dict(trial.intermediate_values)
        if state == "complete" and last is not None and trial.value is not None:
            scores[last] = trial.value
        records = tuple(
            Record(place, min(step / last, 1.0), sign * score, trial.number, context)
            for step, score in (scores.items() if last is not None else ())
            if last is not None and step > 0 and np.isfinite(score)
        )
        return Standing(place, trial.number, state, context, AUDIT in trial.system_attrs), records


def _told(probability: float) -> str:
    return "below 0.01" if probability < 0.01 else f"{probability:.2f}"


def axis_of(distribution: BaseDistribution) -> Axis | None:
    """The axis of a parameter: logarithmic where its distribution is, log(1 + x) from 0 on, else linear."""
    if not isinstance(distribution, FloatDistribution | IntDistribution) or not distribution.low < distribution.high:
        return None
    low, high = float(distribution.low), float(distribution.high)
    return Axis(low, high, "log" if distribution.log else "log1p" if low >= 0 else "linear")


def _range(distribution: BaseDistribution | None) -> tuple[float, float] | None:
    return (
        (float(distribution.low), float(distribution.high))
        if isinstance(distribution, FloatDistribution | IntDistribution)
        else None
    )


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
