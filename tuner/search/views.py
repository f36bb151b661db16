"""Read trials out of an Optuna study as `TrialView`: for the driver, `ls`, `report` and `export`. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tuner.search.types import TrialState, TrialView

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["OUTCOME", "PARAMETERS", "REASON", "STEPS_TAKEN", "TRIAL_ID", "best_trial", "read_trials", "view_of"]

# The user attributes that the driver writes. What is in them is shown to analysts.
TRIAL_ID = "trial_id"
PARAMETERS = "parameters"
OUTCOME = "outcome"
STEPS_TAKEN = "steps_taken"
REASON = "reason"

_STATES = {"RUNNING": TrialState.RUNNING, "COMPLETE": TrialState.COMPLETE, "PRUNED": TrialState.PRUNED}


def read_trials(study: Study, *, mode: str, steps_planned: int) -> tuple[TrialView, ...]:
    """Every trial of the study that has our id, in order of number.

    Args:
        study: an Optuna study driven by `StudyDriver`.
        mode: ``"max"`` or ``"min"``; decides `TrialView.best_score`.
        steps_planned: the steps of a whole trial.
    """
    trials = study.get_trials(deepcopy=False)
    return tuple(view_of(t, mode=mode, steps_planned=steps_planned) for t in trials if TRIAL_ID in t.user_attrs)


def view_of(trial: FrozenTrial, *, mode: str, steps_planned: int) -> TrialView:
    """One stored trial as a view. Its step is the last that was reported, or taken when it is finished."""
    attributes: Mapping[str, object] = trial.user_attrs
    scores = [trial.intermediate_values[step] for step in sorted(trial.intermediate_values)]
    taken = attributes.get(STEPS_TAKEN, trial.last_step or 0)
    parameters = attributes.get(PARAMETERS, trial.params)
    return TrialView(
        id=str(attributes[TRIAL_ID]),
        number=trial.number,
        parameters=dict(parameters) if isinstance(parameters, Mapping) else {},
        state=_STATES.get(trial.state.name, TrialState.FAILED),
        step=taken if isinstance(taken, int) else 0,
        steps_planned=steps_planned,
        last_score=scores[-1] if scores else None,
        best_score=better(scores, mode),
        reason=str(attributes.get(REASON, "")),
    )


def better(scores: Iterable[float], mode: str) -> float | None:
    """The best of some scores, or None of none."""
    return (max if mode == "max" else min)(scores, default=None)


def best_trial(trials: Iterable[TrialView], *, mode: str) -> TrialView | None:
    """The COMPLETE trial with the best last score, the earliest of equals; None when none is complete."""
    best: TrialView | None = None
    best_score: float | None = None
    for trial in trials:
        if trial.state is not TrialState.COMPLETE or trial.last_score is None:
            continue
        beats = best_score is None or (
            trial.last_score > best_score if mode == "max" else trial.last_score < best_score
        )
        if beats:
            best, best_score = trial, trial.last_score
    return best
