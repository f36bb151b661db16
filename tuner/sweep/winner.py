"""Choice of the winning trial, by its score or by the fitted curve of a unimodal search. No other module chooses it.

The best of many scores is often partly luck. An exported model is the one that was scored, so it keeps the lucky score,
and the score decides (docs/unimodal.md, "On real data"). A public search trains the winning configuration again. The
luck would not repeat, so the curve decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.study.best import best_trial
from tuner.study.types import TrialStatus, TrialView

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment

__all__ = ["By", "Chosen", "choose_winner", "is_unimodal"]

By = Literal["commit", "curve", "score"]
"""Rule that chooses the winning trial. `commit` is the committed run, which no score chooses."""


@dataclass(frozen=True)
class Chosen:
    """Winner of a search, and the rule that chose it. `why` is empty if both rules choose the same trial."""

    trial: TrialView
    by: By
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"trial": self.trial.number, "by": self.by, "why": self.why}


def is_unimodal(experiment: Experiment) -> bool:
    """Return whether the search assumes a unimodal curve. A sealed search never does."""
    return not experiment.mode.runs_hidden and experiment.search.is_unimodal


def choose_winner(
    study: Study, trials: Sequence[TrialView], experiment: Experiment, *, by: By | None = None
) -> Chosen | None:
    """Return the study's winning trial, or None if no trial is complete.

    If a committed run follows the search, it is the winner, whatever it scored, and there is no winner before it is
    complete. With `by`, the winner is a trial of the search instead.

    By default, the curve decides in a public search, whose models are discarded, and the score decides in every other
    search. The score also decides if there is no usable curve. No curve is usable if the search is not
    unimodal, if its assumption of a single maximum was rejected, or if the maximum is not estimated yet.
    """
    mode = experiment.search.metric.mode
    if experiment.search.commit is not None and by in (None, "commit"):
        run = best_trial((trial for trial in trials if trial.committed), mode=mode)
        return None if run is None else Chosen(run, "commit", f"trial {run.number} is the committed run")
    trials = [trial for trial in trials if not trial.committed]
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
    """Return the scores as texts with at least four digits, and enough digits to tell them apart."""
    texts: list[str] = []
    for digits in (4, 6, 17):
        texts = ["–" if score is None else f"{score:.{digits}g}" for score in scores]
        if len(set(texts)) == len(set(scores)):
            break
    return texts
