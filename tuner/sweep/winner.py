"""Which trial of a search wins: as a model the one with the best score, as a configuration the one of the curve.

Of many trials the one with the highest score is often only the luckiest, and who trains its configuration again does
not get its luck again: a public search, which does just that, is decided by the curve where it has one. But the luck
of a trial is in its model, and stays there (docs/unimodal.md, "On real data"): where the model itself is what leaves,
the score decides. Whoever names ONE trial as the result asks here. Which score is the best so far stays a fact about
scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.study.names import canonical_pruner, canonical_sampler
from tuner.study.types import TrialState, TrialView

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
        why: in words, where the curve and the scores prefer different trials; else empty.
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
        by: what is to decide; by default the curve in a public search, whose models are thrown away, and else the
            score. Where no curve is believed in, where it was rejected that there is one top, and where nothing is
            believed yet, the best score decides, whatever is asked for.
    """
    from tuner.study.views import best_trial

    mode = experiment.search.metric.mode
    best = best_trial(trials, mode=mode)
    if best is None:
        return None
    believed = _believed(study, trials) if is_unimodal(experiment) else None
    if believed is None:
        return Chosen(best, "score")
    by = by or ("curve" if experiment.privacy.accounting == "public" else "score")
    differ = believed.number != best.number
    if by == "curve":
        return Chosen(believed, by, _by_curve(believed, best, mode) if differ else "")
    return Chosen(best, by, _by_score(believed, best) if differ else "")


def _believed(study: Study, trials: Sequence[TrialView]) -> TrialView | None:
    from tuner.study.unimodal_view import believed_order  # what it imports is not wanted where there is no curve

    complete = {
        trial.number: trial
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.last_score is not None and math.isfinite(trial.last_score)
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
    """Scores in as many digits, four at least, as tell them apart."""
    told: list[str] = []
    for digits in (4, 6, 17):
        told = ["–" if score is None else f"{score:.{digits}g}" for score in scores]
        if len(set(told)) == len(set(scores)):
            break
    return told
