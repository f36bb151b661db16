"""Optuna pruners for scores with one maximum: `UnimodalPruner` for one parameter, `UnimodalPruners` for several."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.study.protocols import CurveModel, StudyPruner
from tuner.study.unimodal.along import AlongParameter
from tuner.study.unimodal.inference.beliefs import Beliefs
from tuner.study.unimodal.inference.records import Context
from tuner.study.unimodal.view import last_step

__all__ = ["UnimodalPruner", "UnimodalPruners"]


class UnimodalPruner(AlongParameter, BasePruner, StudyPruner):
    """Pruner that estimates the curve of the score from all trials, and stops trials far from the curve's maximum.

    A trial without the parameter is never pruned. See `AlongParameter` for the arguments.
    """

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether to stop the trial. A trial that is stopped before its first report never starts."""
        if self.parameter not in trial.params:
            return False
        judged = self._judged(study, trial)
        if judged is None:
            return False
        beliefs, place, context, done = judged
        if done >= 1:
            return False
        return beliefs.at_chance(trial.number) or beliefs.excluded(place, done, context)

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Return why `prune` has just stopped the trial. The reason depends on scores and parameters only."""
        judged = self._judged(study, trial)
        if judged is None:
            return ""
        beliefs, place, context, done = judged
        if beliefs.posterior is None:
            return ""
        value = f"{trial.params[self.parameter]:.4g}"
        when = f"after {100 * done:.0f} % of its steps" if done else "before its first step"
        if beliefs.at_chance(trial.number):
            return f"at {self.parameter} = {value}, the score hardly rises, but that of another trial rises ({when})"
        if beliefs.rules.strict:
            return f"{self.parameter} = {value} is outside the range of the best value (significance level 5 %), {when}"
        near = _shown(beliefs.near(place, context))
        return f"{self.parameter} = {value} is near the best only with probability {near}, {when}"

    def _judged(self, study: Study, trial: FrozenTrial) -> tuple[Beliefs, float, Context, float] | None:
        """Return the conclusions from the study, and the trial's position, context and fraction of steps taken.

        Return None if the parameter's bounds or the last step are unknown.
        """
        known, last = self.known(study, trial.distributions[self.parameter]), last_step(study, self._last_step)
        if known is None or last is None:
            return None
        view, beliefs = known
        step = max(trial.intermediate_values, default=0)
        return beliefs, view.place(trial), view.context(trial), step / last


class UnimodalPruners(BasePruner, StudyPruner):
    """Pruner for several parameters. It stops a trial if the pruner of at least one parameter does.

    If the scores along a parameter have more than one maximum, `fallback` replaces the pruner of that parameter.
    `called` is the name of the fallback in messages.
    """

    def __init__(self, pruners: Sequence[UnimodalPruner], fallback: BasePruner, *, called: str) -> None:
        self.each, self._fallback, self._called = tuple(pruners), fallback, called

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return the pruners of all parameters. Each pruner is a curve model."""
        return self.each

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether to stop the trial. A trial that is stopped before its first report never starts."""
        unimodal = self._unimodal(study)
        if any(pruner.prune(study, trial) for pruner in unimodal):
            return True
        # The fallback is called only once, because some pruners count their calls.
        return len(unimodal) < len(self.each) and self._fallback.prune(study, trial)

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Return why `prune` has just stopped the trial. The reason depends on scores and parameters only."""
        for pruner in self._unimodal(study):
            if pruner.prune(study, trial):
                return pruner.why(study, trial)
        return f"the score has more than one maximum, and the pruner {self._called} stopped the trial"

    def _unimodal(self, study: Study) -> list[UnimodalPruner]:
        """Return the pruners of all parameters along which the scores do not contradict a single maximum."""
        every = [(pruner, pruner.beliefs(study)) for pruner in self.each]
        return [pruner for pruner, believed in every if believed is None or believed.unimodal]


def _shown(probability: float) -> str:
    return "below 0.01" if probability < 0.01 else f"{probability:.2f}"
