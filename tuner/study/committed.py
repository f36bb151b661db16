"""Committed run: the one run that follows a search of short, noisy trials, and whose model is released."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from search_spaces import Categorical, LogUniform, Uniform
from search_spaces.domains import is_number
from tuner.study import views
from tuner.study.best import best_trial
from tuner.study.types import Stop, StopReason

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from search_spaces import Scalar, SearchSpace
    from tuner.study.types import TrialShape, TrialView

__all__ = ["Commitment", "Committed", "choose_commit", "commit_proposed", "completed", "with_rate_below"]


@dataclass(frozen=True, kw_only=True)
class Commitment:
    """Configuration of the committed run.

    Attributes:
        parameters: the flat parameters, including fixed parameters.
        source: id of the best trial of the search. With `start: best_trial`, the run starts from its weights.
    """

    parameters: dict[str, object]
    source: str


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What the driver must know about the committed run.

    Attributes:
        shape: steps, mechanism and rungs of the run.
        choose: function that returns the run's configuration for the ended trials of the search, or None if no trial
            ended with a score.
    """

    shape: TrialShape
    choose: Callable[[Sequence[TrialView]], Commitment | None]

    @staticmethod
    def over(run: FrozenTrial) -> Stop:
        """Return the end of a sweep whose stored committed run has ended."""
        if run.state.name == "COMPLETE":
            return Stop(StopReason.DONE)
        return Stop(StopReason.DONE, f"the committed run failed: {run.user_attrs.get(views.REASON, '')}")

    @staticmethod
    def stored(study: Study) -> FrozenTrial | None:
        """Return the stored committed run of a study, or None if the run was not chosen yet."""
        return next((trial for trial in study.get_trials(deepcopy=False) if views.COMMITTED in trial.user_attrs), None)

    def create(self, study: Study, chosen: Commitment) -> FrozenTrial:
        """Store the committed run in the study, as a trial that has not started, and return it.

        One record holds the run's configuration, so a process that dies leaves either no run or a whole one. Optuna's
        samplers ignore the trial, because it has no parameters that they have drawn.
        """
        import optuna

        attributes = {views.COMMITTED: chosen.source, views.PARAMETERS: chosen.parameters}
        running = optuna.trial.TrialState.RUNNING
        study.add_trial(optuna.trial.create_trial(state=running, user_attrs=attributes))
        return next(trial for trial in study.get_trials(deepcopy=False) if views.COMMITTED in trial.user_attrs)


def choose_commit(
    trials: Sequence[TrialView], space: SearchSpace, *, mode: str, search: TrialShape, committed: TrialShape
) -> Commitment | None:
    """Return the configuration of the committed run, or None if no trial of the search ended with a score.

    The best trial's parameters are taken, and its learning rate is multiplied by the square root of the ratio of the
    trials' noise to the committed run's noise, within the rate's domain. This rule is a default: the best rate falls as
    noise rises, but the slope differs from task to task.

    The choice depends on released scores and public values only, so it costs nothing.

    Args:
        trials: the trials of the search.
        space: the search space, which has the domain of each parameter.
        mode: ``"max"`` or ``"min"``.
        search: shape of a trial of the search.
        committed: shape of the committed run.
    """
    best = best_trial((trial for trial in trials if not trial.committed), mode=mode)
    if best is None:
        return None
    parameters, domain = dict(best.parameters), dict(space.parameters).get("learning_rate")
    rate = parameters.get("learning_rate")
    if isinstance(domain, Uniform | LogUniform) and isinstance(rate, int | float):
        ratio = (search.noise_multiplier or 1.0) / (committed.noise_multiplier or 1.0)
        parameters["learning_rate"] = min(max(rate * sqrt(ratio), domain.low), domain.high)
    return Commitment(parameters=parameters, source=best.id)


def commit_proposed(
    trials: Sequence[TrialView], space: SearchSpace, *, mode: str, proposed: Mapping[str, object]
) -> Commitment | None:
    """Return the configuration that a surrogate proposes, completed by the fixed parameters of the space.

    The result is None if no trial of the search ended with a score. The other arguments are as in `choose_commit`.
    """
    best = best_trial((trial for trial in trials if not trial.committed), mode=mode)
    return None if best is None else Commitment(parameters=completed(space, proposed), source=best.id)


def with_rate_below(most: float, found: Commitment, space: SearchSpace) -> Commitment:
    """Return the configuration with a searched learning rate of at most `most`, within the rate's domain.

    The committed run has less noise than the trials, and takes more steps. The scores of the trials do not show that a
    network collapses at a rate that is too large for this.
    """
    domain, rate = dict(space.parameters).get("learning_rate"), found.parameters.get("learning_rate")
    if not is_number(rate) or rate <= most:
        return found
    if isinstance(domain, Categorical):
        rates = [option for option in domain.options if is_number(option)]
        lower = max((option for option in rates if option <= most), default=min(rates))
    elif isinstance(domain, Uniform | LogUniform):
        lower = max(most, domain.low)
    else:
        return found  # the file fixes the rate
    return replace(found, parameters={**found.parameters, "learning_rate": lower})


def completed(space: SearchSpace, proposed: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration of the space with the proposed values, within their domains, and its fixed parameters."""
    return dict(space.sample(_Proposed(proposed)))


class _Proposed:
    """Source of the proposed values, kept within their domains. A value that is missing is the middle of its domain."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        value = self._values.get(name)
        if not is_number(value):
            return sqrt(low * high) if log else (low + high) / 2
        return min(max(float(value), low), high)

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return round(self.uniform(name, low, high, log=log))

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        value = self._values.get(name)
        return next((option for option in options if option == value), options[0])
