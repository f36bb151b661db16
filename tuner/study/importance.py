"""Importance of searched parameters: the share of the scores' variance that each explains, by fANOVA."""

from __future__ import annotations

from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.study import Study
from optuna.trial import TrialState

__all__ = ["importances"]

_LEAST = 6  # complete trials; with fewer, the trees of fANOVA split by chance


def importances(study: Study, *, seed: int) -> dict[str, float]:
    """Return the importance of each parameter by name, in [0, 1] with sum 1; empty where too few trials say it.

    Source: Hutter, Hoos & Leyton-Brown (ICML 2014), as Optuna computes it.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < _LEAST or len({trial.value for trial in complete}) < 2:
        return {}
    try:
        return dict(get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=seed)))
    except ValueError:  # no parameter is in all trials
        return {}
