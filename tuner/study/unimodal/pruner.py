"""Optuna pruner for a score that is unimodal in one parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.pruners import BasePruner

from tuner.study.protocols import StudyPruner
from tuner.study.unimodal.along import AlongParameter
from tuner.study.unimodal.view import AUDIT, last_step

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["UnimodalPruner"]


class UnimodalPruner(AlongParameter, BasePruner, StudyPruner):
    """Pruner that stops trials that are not near the best, by the curve that all trials together suggest.

    Args:
        parameter: name of a float or integer parameter; a trial without it is never pruned.
        tolerance: how much better a score must be to matter, in its own unit.
        last_step: step at which trials end; by default the largest that a complete trial has reported, and nothing is
            pruned before there is one.
        scales: parameters that multiply it, as for the sampler.
        rules: see `inference.beliefs.Rules`.

    Raises:
        ValueError: a value is out of range.
        TypeError: a rule is unknown.
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
        """Return whether the trial cannot be near the best; before its first report, whether not to start it."""
        if self._parameter not in trial.params:
            return False
        distribution = trial.distributions[self._parameter]
        view, beliefs = self.view(study, distribution), self.beliefs(study, distribution)
        last = last_step(study, self._last_step)
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
        """Return why `prune` has just stopped the trial, from scores and parameters alone."""
        distribution = trial.distributions[self._parameter]
        view, beliefs = self.view(study, distribution), self.beliefs(study, distribution)
        last = last_step(study, self._last_step)
        if view is None or beliefs is None or last is None:
            return ""
        step, value = max(trial.intermediate_values, default=0), f"{trial.params[self._parameter]:.4g}"
        when = f"after {100 * step / last:.0f} % of its steps" if step else "before its first step"
        place, context = view.place(trial), view.context(trial)
        if not beliefs.excluded(place, step / last, context):
            ahead = beliefs.ahead(trial.number, place, context)
            return f"this run ends above the best one with probability {_shown(ahead)}, {when}"
        if beliefs.rules.strict:
            return f"{self._parameter} {value} is outside the bracket of the best at level 5 %, {when}"
        near = _shown(beliefs.near(place, context))
        return f"{self._parameter} {value} is near the best with probability {near}, {when}"


def _shown(probability: float) -> str:
    return "below 0.01" if probability < 0.01 else f"{probability:.2f}"
