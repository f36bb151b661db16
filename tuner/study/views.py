"""Read trials out of an Optuna study as `TrialView`: for the driver, `ls`, `report` and `export`. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tuner.study.types import TrialState, TrialView

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = [
    "OUTCOME",
    "PARAMETERS",
    "REASON",
    "REJECTED",
    "REPLICA_OF",
    "RUNGS",
    "STEPS_TAKEN",
    "TRIAL_ID",
    "best_trial",
    "curve_of",
    "read_trials",
    "view_of",
]

# The user attributes that the driver writes. What is in them is shown to analysts.
TRIAL_ID = "trial_id"
PARAMETERS = "parameters"
OUTCOME = "outcome"
STEPS_TAKEN = "steps_taken"
REASON = "reason"
RUNGS = "rungs"
"""[nominal step, own step] of every rung, of a trial that is shorter than the nominal one."""
REJECTED = "rejected"
"""Why a configuration was drawn and never became a trial."""
REPLICA_OF = "replica_of"
"""Number of the trial whose configuration was run again, to tell it apart from another."""

_STATES = {"RUNNING": TrialState.RUNNING, "COMPLETE": TrialState.COMPLETE, "PRUNED": TrialState.PRUNED}


def read_trials(study: Study, *, mode: str, steps_planned: int) -> tuple[TrialView, ...]:
    """Every trial of the study that has our id, in order of number.

    Args:
        study: an Optuna study driven by `StudyDriver`.
        mode: ``"max"`` or ``"min"``; decides `TrialView.best_score`.
        steps_planned: the steps of a whole trial; of the longest where they differ.
    """
    trials = study.get_trials(deepcopy=False)
    return tuple(view_of(t, mode=mode, steps_planned=steps_planned) for t in trials if _is_trial(t))


def _is_trial(trial: FrozenTrial) -> bool:
    return TRIAL_ID in trial.user_attrs and REJECTED not in trial.user_attrs


def view_of(trial: FrozenTrial, *, mode: str, steps_planned: int) -> TrialView:
    """One stored trial as a view. Its step is the last that was reported, or taken when it is finished."""
    attributes: Mapping[str, object] = trial.user_attrs
    curve = curve_of(trial)
    scores = [score for _, score in curve]
    own = _own_steps(trial)
    taken = attributes.get(STEPS_TAKEN, curve[-1][0] if curve else 0)
    parameters = attributes.get(PARAMETERS, trial.params)
    return TrialView(
        id=str(attributes[TRIAL_ID]),
        number=trial.number,
        parameters=dict(parameters) if isinstance(parameters, Mapping) else {},
        state=_STATES.get(trial.state.name, TrialState.FAILED),
        step=taken if isinstance(taken, int) else 0,
        steps_planned=max(own.values()) if own else steps_planned,
        last_score=scores[-1] if scores else None,
        best_score=better(scores, mode),
        reason=str(attributes.get(REASON, "")),
    )


def curve_of(trial: FrozenTrial) -> list[tuple[int, float]]:
    """The scores of a stored trial, each with the trial's own step at which it was reported, rising."""
    own = _own_steps(trial)
    return [(own.get(step, step), score) for step, score in sorted(trial.intermediate_values.items())]


def _own_steps(trial: FrozenTrial) -> dict[int, int]:
    """Nominal step → own step; empty where they are the same."""
    return {int(nominal): int(step) for nominal, step in trial.user_attrs.get(RUNGS, ())}


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
