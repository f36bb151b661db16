"""Conversion of stored Optuna trials to `TrialView`, for the driver, reports and export. This module only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study.best import best_score
from tuner.study.types import TrialStatus, TrialView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = [
    "COMMITTED",
    "FORFEITS",
    "GRANTED",
    "OUTCOME",
    "PARAMETERS",
    "REASON",
    "REJECTED",
    "REPLICA_OF",
    "RUNGS",
    "STEPS_TAKEN",
    "TRIAL_ID",
    "is_paused",
    "learning_curve",
    "place_of",
    "read_trials",
    "view_of",
]

# Names of the user attributes that the driver writes to Optuna's trials. Analysts see the values.
COMMITTED = "committed"
"""Attribute of the committed run: the id of the trial whose result the run follows."""
TRIAL_ID = "trial_id"
PARAMETERS = "parameters"
OUTCOME = "outcome"
STEPS_TAKEN = "steps_taken"
REASON = "reason"
FORFEITS = "forfeits"
"""Attribute of a trial whose training raised an error. All that the trial had reserved is charged at its end."""
GRANTED = "granted"
"""Attribute of a trial of a rung-wise search: the step up to which it has reserved its steps. After its report at this
step, the trial is paused."""
RUNGS = "rungs"
"""Attribute with a pair [step of the longest trial, step of this trial] for each rung. It is stored only for a trial
whose rungs differ from the rungs of the longest trial."""
REJECTED = "rejected"
"""Attribute with the reason why a configuration was never started."""
REPLICA_OF = "replica_of"
"""Attribute with the number of the trial whose configuration this trial repeats."""

_STATES = {"RUNNING": TrialStatus.RUNNING, "COMPLETE": TrialStatus.COMPLETE, "PRUNED": TrialStatus.PRUNED}


def read_trials(study: Study, *, mode: str, steps_planned: int) -> tuple[TrialView, ...]:
    """Return all started trials of a study, ordered by number. `steps_planned` is the length of the longest trial."""
    return tuple(view_of(trial, mode=mode, steps_planned=steps_planned) for trial in _started(study))


def place_of(study: Study, number: int) -> int:
    """Return how many trials were started before the trial with this number. A crash may leave numbers unused."""
    return sum(trial.number < number for trial in _started(study))


def _started(study: Study) -> Iterator[FrozenTrial]:
    for trial in study.get_trials(deepcopy=False):
        if TRIAL_ID in trial.user_attrs and REJECTED not in trial.user_attrs:
            yield trial


def view_of(trial: FrozenTrial, *, mode: str, steps_planned: int) -> TrialView:
    """Return the view of a stored trial. While the trial runs, the view contains the step of the last report."""
    attributes = trial.user_attrs
    curve = learning_curve(trial)
    scores = [score for _, score in curve]
    own = _own_steps(trial)
    planned, step = max(own.values()) if own else steps_planned, curve[-1][0] if curve else 0
    state = _STATES.get(trial.state.name) or _failed(attributes.get(OUTCOME))
    if is_paused(trial) and step < planned:
        state = TrialStatus.PAUSED
    return TrialView(
        id=str(attributes[TRIAL_ID]),
        number=trial.number,
        parameters=dict(attributes.get(PARAMETERS, trial.params)),
        state=state,
        step=attributes.get(STEPS_TAKEN, step),
        steps_planned=planned,
        last_score=scores[-1] if scores else None,
        best_score=best_score(scores, mode=mode),
        reason=str(attributes.get(REASON, "")),
        committed=COMMITTED in attributes,
        reserved_until=int(attributes.get(GRANTED, 0)),
    )


def is_paused(trial: FrozenTrial) -> bool:
    """Return whether a stored trial has reported at the step up to which it has reserved its steps."""
    curve = learning_curve(trial)
    granted = trial.user_attrs.get(GRANTED)
    return trial.state.name == "RUNNING" and bool(curve) and granted is not None and int(granted) <= curve[-1][0]


def _failed(outcome: object) -> TrialStatus:
    """Return the status of a trial for which Optuna has only the state FAIL."""
    return TrialStatus.LOST if outcome == TrialStatus.LOST.value else TrialStatus.FAILED


def learning_curve(trial: FrozenTrial) -> list[tuple[int, float]]:
    """Return pairs (step, score) of a stored trial, ordered by the trial's own steps."""
    own = _own_steps(trial)
    return [(own.get(step, step), score) for step, score in sorted(trial.intermediate_values.items())]


def _own_steps(trial: FrozenTrial) -> dict[int, int]:
    """Return the trial's own step for each rung of the longest trial, or an empty dict if the rungs are the same."""
    return {int(nominal): int(step) for nominal, step in trial.user_attrs.get(RUNGS, ())}
