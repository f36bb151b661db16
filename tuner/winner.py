"""Which trial of a search wins: the one that its curve believes in where it has one, else the one with the best score.

The curve judges the configuration: of many trials the one with the highest score is often only the luckiest. What it
does not see is that the luck of a trial may be its model's own, and last (docs/unimodal.md, "On real data"): `score` is
for that. Whoever names ONE trial as the result asks here. Which score is the best so far stays a fact about scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.search.names import canonical_pruner, canonical_sampler
from tuner.search.types import TrialState, TrialView

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment

__all__ = ["By", "Chosen", "is_unimodal", "winner_of"]

By = Literal["curve", "score"]
"""What decides."""


@dataclass(frozen=True)
class Chosen:
    """The trial that wins.

    Attributes:
        trial: it.
        by: what decided.
        why: in words, where another trial has a score that is as good or better; else empty.
    """

    trial: TrialView
    by: By
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"trial": self.trial.number, "by": self.by, "why": self.why}


def is_unimodal(experiment: Experiment) -> bool:
    """Whether a curve is believed in; of a sealed search none is."""
    search = experiment.search
    named = (canonical_sampler(search.sampler.name), canonical_pruner(search.pruner.name))
    return experiment.privacy.accounting != "selection" and "unimodal" in named


def winner_of(
    study: Study, trials: Sequence[TrialView], experiment: Experiment, *, by: By | None = None
) -> Chosen | None:
    """The trial that wins; None when none is complete. It follows from the study alone, and is the same at every call.

    Args:
        study: with its sampler and pruner.
        trials: of the study.
        experiment: the search.
        by: what is to decide; by default the curve where one is believed in. Where it was rejected that there is one
            top, and where nothing is believed yet, the best score decides, whatever is asked for.
    """
    from tuner.search.views import best_trial

    mode = experiment.search.metric.mode
    best = best_trial(trials, mode=mode)
    if best is None:
        return None
    believed = None if by == "score" or not is_unimodal(experiment) else _believed(study, trials)
    if believed is None:
        return Chosen(best, "score")
    return Chosen(believed, "curve", "" if believed.number == best.number else _why(believed, best, mode))


def _believed(study: Study, trials: Sequence[TrialView]) -> TrialView | None:
    from tuner.search.unimodal_view import believed_order  # what it imports is not wanted where there is no curve

    complete = {
        trial.number: trial
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.last_score is not None and math.isfinite(trial.last_score)
    }
    return next((complete[number] for number in believed_order(study) if number in complete), None)


def _why(winner: TrialView, best: TrialView, mode: str) -> str:
    own, other = _apart(winner.last_score, best.last_score)
    scored = f"{'higher' if mode == 'max' else 'lower'}: {other} against {own}"
    if winner.last_score == best.last_score:
        scored = f"the same: {own}"
    return f"trial {winner.number} by the curve (trial {best.number} scored {scored})"


def _apart(*scores: float | None) -> list[str]:
    """Scores in as many digits, four at least, as tell them apart."""
    told: list[str] = []
    for digits in (4, 6, 17):
        told = ["–" if score is None else f"{score:.{digits}g}" for score in scores]
        if len(set(told)) == len(set(scores)):
            break
    return told
