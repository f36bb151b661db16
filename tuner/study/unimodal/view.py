"""Conversion of the trials of an Optuna study to records on the axis of one parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces.spaces import DIVIDES
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.records import Context, Record, Seen, Standing

__all__ = ["Told", "View", "axis_of", "last_step"]

_SPREAD: Final = 8
"""Number of contexts that are spread over the ranges of the other searched parameters."""

Told = tuple[Standing, tuple[Record, ...]]
"""State of a trial, and the records of its scores."""

_GOLDEN: Final = 0.6180339887498949

_STATES = {TrialState.RUNNING: "running", TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}


@dataclass(frozen=True)
class View:
    """Conversion of trials to positions on the axis of one parameter, with the other parameters as context.

    Attributes:
        parameter: name of the parameter.
        axis: axis of the product of the parameter and its scale (see `scale`).
        bounds: bounds of the parameter itself.
        others: distributions of the other searched parameters.
        scales: axes of the other parameters that multiply this parameter, or divide it.
    """

    parameter: str
    axis: ParameterAxis
    bounds: tuple[float, float]
    others: Mapping[str, BaseDistribution]
    scales: Mapping[str, ParameterAxis]

    @classmethod
    def of(
        cls,
        parameter: str,
        distribution: BaseDistribution | None,
        every: Mapping[str, BaseDistribution],
        scales: Sequence[str] = (),
    ) -> View | None:
        """Return the view of a study, or None if the parameter is not a number or has only one value.

        Args:
            parameter: name of the parameter.
            distribution: distribution of the parameter, or None if unknown.
            every: distributions of all searched parameters.
            scales: names of other parameters that multiply this parameter.
        """
        axis = None if distribution is None else axis_of(distribution)
        if axis is None:
            return None
        others = {name: found for name, found in every.items() if name != parameter and not found.single()}
        axes = {name: found for name in scales if name in others and (found := axis_of(others[name])) is not None}
        known = {name: found for name, found in axes.items() if found.low > 0}
        spread = math.prod(math.sqrt(found.high / found.low) for found in known.values())
        ends = [bound * scale for bound in (axis.low, axis.high) for scale in (spread, 1 / spread)]
        return cls(parameter, ParameterAxis(min(ends), max(ends), axis.warp), (axis.low, axis.high), others, known)

    def scale(self, trial: FrozenTrial) -> float:
        """Return the factor by which a trial's parameter is multiplied. It depends on the parameters in `scales`.

        The factor is 1 if each of these parameters equals the geometric mean of its bounds.
        """
        found = 1.0
        for name, axis in self.scales.items():
            middle = math.sqrt(axis.low * axis.high)
            found *= (float(trial.params.get(name, middle)) / middle) ** (-1 if name in DIVIDES else 1)
        return found

    def place(self, trial: FrozenTrial) -> float:
        """Return the position of a trial on the axis, where 0 and 1 are the ends of the axis."""
        return self.axis.place(trial.params[self.parameter] * self.scale(trial))

    def context(self, trial: FrozenTrial) -> Context:
        """Return the values of a trial's other parameters, and the positions that are possible with these values."""
        values: list[tuple[str, float | str]] = []
        for name in sorted(self.others):
            if name not in trial.params:
                continue
            axis, value = axis_of(self.others[name]), trial.params[name]
            values.append((name, str(value) if axis is None else round(axis.place(value), 9)))
        scale = self.scale(trial)
        low, high = (round(min(max(self.axis.place(bound * scale), 0.0), 1.0), 9) for bound in self.bounds)
        return Context(tuple(values), low, high)

    def seen(self, study: Study, last: int | None, ended: dict[tuple[int, str, int], Told]) -> Seen:
        """Return the records and trials of a study. If the study minimises, scores are negated.

        Args:
            study: any study.
            last: step at which trials end. If it is None, there are no records.
            ended: cache of the records of ended trials, by number, state and number of scores. It is extended here. A
                trial that was shown as ended while it was paused may go on, with more scores.
        """
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        records: list[Record] = []
        standings: list[Standing] = []
        for trial in study.get_trials(deepcopy=False):
            if trial.state not in _STATES or self.parameter not in trial.params:
                continue
            key = trial.number, trial.state.name, len(trial.intermediate_values)
            told = ended.get(key) or self._told(trial, last, sign)
            if trial.state.is_finished():
                ended[key] = told
            standings.append(told[0])
            records += told[1]
        return Seen.of(records, standings, self._spread)

    @cached_property
    def _spread(self) -> tuple[Context, ...]:
        """Contexts that are spread over the ranges of the other searched parameters, by a Halton-like sequence."""
        if not self.others:
            return ()
        found = []
        for row in range(1, _SPREAD + 1):
            values: list[tuple[str, float | str]] = []
            scale = 1.0
            for column, name in enumerate(sorted(self.others), start=1):
                share = (row * _GOLDEN**column) % 1.0
                distribution = self.others[name]
                axis = axis_of(distribution)
                if axis is not None:
                    values.append((name, share))
                    if name in self.scales:
                        ratio = axis.value(share) / math.sqrt(axis.low * axis.high)
                        scale *= ratio ** (-1 if name in DIVIDES else 1)
                elif isinstance(distribution, CategoricalDistribution):
                    values.append((name, str(distribution.choices[int(share * len(distribution.choices))])))
            low, high = (round(min(max(self.axis.place(bound * scale), 0.0), 1.0), 9) for bound in self.bounds)
            found.append(Context(tuple(values), low, high))
        return tuple(found)

    def _told(self, trial: FrozenTrial, last: int | None, sign: float) -> Told:
        """Return the state and the records of one trial. `sign` is -1 if the study minimises."""
        place, context, state = self.place(trial), self.context(trial), _STATES[trial.state]
        if last is None:
            return Standing(place, trial.number, state, context), ()
        scores = dict(trial.intermediate_values)
        if state == "complete" and trial.value is not None:
            scores[last] = trial.value
        records = tuple(
            Record(place, min(step / last, 1.0), sign * score, trial.number, context)
            for step, score in scores.items()
            if step > 0 and np.isfinite(score)
        )
        if state == "complete" and all(record.fraction < 1 for record in records):
            state = "pruned"  # a paused trial that is shown as complete: what it says ends before the end
        return Standing(place, trial.number, state, context), records


def axis_of(distribution: BaseDistribution) -> ParameterAxis | None:
    """Return the axis of a parameter, or None if the parameter is not a number or has only one value.

    The scale is log for a log distribution, log1p for other parameters that are never negative, and linear otherwise.
    """
    if not isinstance(distribution, FloatDistribution | IntDistribution) or not distribution.low < distribution.high:
        return None
    low, high = float(distribution.low), float(distribution.high)
    return ParameterAxis(low, high, "log" if distribution.log else "log1p" if low >= 0 else "linear")


def last_step(study: Study, given: int | None) -> int | None:
    """Return the step at which trials end, which is `given` or the largest step that a complete trial has reported."""
    if given is not None:
        return given
    steps = [
        max(trial.intermediate_values, default=1)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    ]
    return max(steps, default=None)
