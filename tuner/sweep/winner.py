"""Choice of the winning trial: the best score when the model is the result, the curve when the configuration is.

The trial with the best score of many is often the luckiest one, and training its configuration again does not repeat
the luck. A public search trains its winner again, so the curve decides there, if the search is unimodal. When the model
itself is the result, its luck stays in the model (docs/unimodal.md, "On real data"), so the score decides. This is the
only place that chooses ONE trial as the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.study.best import best_trial
from tuner.study.names import canonical_pruner, canonical_sampler
from tuner.study.types import TrialStatus, TrialView

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment

__all__ = ["By", "Chosen", "choose_winner", "is_unimodal"]

By = Literal["curve", "score"]
"""What decides which trial wins."""


@dataclass(frozen=True)
class Chosen:
    """Winner of a search.

    Attributes:
        trial: the trial.
        by: what decided.
        why: the reason as text when the curve and the scores prefer different trials; else empty.
    """

    trial: TrialView
    by: By
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"trial": self.trial.number, "by": self.by, "why": self.why}


def is_unimodal(experiment: Experiment) -> bool:
    """Return whether the search assumes a unimodal curve; a sealed search never does."""
    search = experiment.search
    named = (canonical_sampler(search.sampler.name), canonical_pruner(search.pruner.name))
    return not experiment.mode.runs_hidden and "unimodal" in named


def choose_winner(
    study: Study, trials: Sequence[TrialView], experiment: Experiment, *, by: By | None = None
) -> Chosen | None:
    """Return the winning trial, or None when no trial is complete. The result depends on the study only.

    Args:
        study: the study, with its sampler and pruner.
        trials: the trials of the study.
        experiment: the search.
        by: what decides. The default is the curve in a public search, whose models are discarded, and else the score.
            The score always decides when the search is not unimodal, when the assumption of a single maximum was
            rejected, and when there is no estimate of the maximum yet.
    """
    mode = experiment.search.metric.mode
    best = best_trial(trials, mode=mode)
    if best is None:
        return None
    believed = _believed(study, trials) if is_unimodal(experiment) else None
    if believed is None:
        return Chosen(best, "score")
    by = by or ("curve" if experiment.mode.searches_public else "score")
    differ = believed.number != best.number
    if by == "curve":
        return Chosen(believed, by, _by_curve(believed, best, mode) if differ else "")
    return Chosen(best, by, _by_score(believed, best) if differ else "")


def _believed(study: Study, trials: Sequence[TrialView]) -> TrialView | None:
    from tuner.study.unimodal.curves import believed_order  # its imports are slow and only needed for a curve

    complete = {
        trial.number: trial
        for trial in trials
        if trial.state is TrialStatus.COMPLETE and trial.last_score is not None and math.isfinite(trial.last_score)
    }
    return next((complete[number] for number in believed_order(study) if number in complete), None)


def _by_curve(winner: TrialView, best: TrialView, mode: str) -> str:
    own, other = _apart(winner.last_score, best.last_score)
    scored = f"{'higher' if mode == 'max' else 'lower'}: {other} against {own}"
    if winner.last_score == best.last_score:
        scored = f"the same: {own}"
    return f"trial {winner.number} by the curve (trial {best.number} scored {scored})"


def _by_score(believed: TrialView, best: TrialView) -> str:
    own, other = _apart(best.last_score, believed.last_score)
    return f"trial {best.number} by its score, {own} (the curve believes in trial {believed.number}: {other})"


def _apart(*scores: float | None) -> list[str]:
    """Return the scores with as many digits as distinguish them, at least four."""
    texts: list[str] = []
    for digits in (4, 6, 17):
        texts = ["–" if score is None else f"{score:.{digits}g}" for score in scores]
        if len(set(texts)) == len(set(scores)):
            break
    return texts
