"""Choice of the winning trial, by its score or by the fitted curve of a unimodal search. No other module chooses it.

The best of many scores is often partly luck. An exported model is the one that was scored, so it keeps the lucky score,
and the score decides (docs/unimodal.md, "Which trial wins"). A public search trains the best configuration again. The
luck would not repeat, so the curve decides.

The noise of a protected score is luck that no model keeps. Among the trials within the error of the best score, the
last two scores of each trial decide (`tuner.study.noisy_scores`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.study.best import best_of, best_trial
from tuner.study.noisy_scores import combined_scores, expected_score, tied
from tuner.study.types import TrialStatus, TrialView

if TYPE_CHECKING:
    from optuna.study import Study

    from trainables.score_error import ScoreError
    from tuner.experiment import Experiment

__all__ = ["By", "Chosen", "choose_winner", "is_unimodal"]

By = Literal["commit", "curve", "score"]
"""Rule that chooses the winning trial. `commit` is the committed run, which no score chooses."""


@dataclass(frozen=True)
class Chosen:
    """Winner of a search, and the rule that chose it.

    Attributes:
        trial: the winner.
        by: the rule.
        why: why the winner is not the trial with the best score, or not the curve's; empty if all agree.
        tied: numbers of the other trials whose score is within the error of the difference from the winner's.
        expected: expected accuracy of a winner by protected scores, corrected for the choice of the best of many noisy
            scores; None for other winners.
    """

    trial: TrialView
    by: By
    why: str = ""
    tied: tuple[int, ...] = ()
    expected: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        tied = list(self.tied)
        return {"trial": self.trial.number, "by": self.by, "why": self.why, "tied": tied, "expected": self.expected}


def is_unimodal(experiment: Experiment) -> bool:
    """Return whether the search assumes a unimodal curve. A sealed search never does."""
    return not experiment.mode.runs_hidden and experiment.search.is_unimodal


def choose_winner(
    study: Study,
    trials: Sequence[TrialView],
    experiment: Experiment,
    error: ScoreError | None,
    *,
    by: By | None = None,
) -> Chosen | None:
    """Return the study's winning trial, or None if no trial is complete.

    If a committed run follows the search, it is the winner, whatever it scored, and there is no winner before it is
    complete. With `by`, the winner is a trial of the search instead.

    By default, the curve decides in a public search, whose models are discarded, and the score decides in every other
    search. The score also decides if there is no usable curve. No curve is usable if the search is not
    unimodal, if its assumption of a single maximum was rejected, or if the maximum is not estimated yet.

    If the score decides and has noise, the winner is the trial with the best combination of its last two scores, among
    those within the error of the best score.

    Args:
        study: the search's study.
        trials: the trials of the study.
        experiment: the search's experiment.
        error: standard error of the scores, or None if it is not known.
        by: the rule; None is the default rule.
    """
    mode = experiment.search.metric.mode
    if experiment.search.commit is not None and by in (None, "commit"):
        run = best_trial((trial for trial in trials if trial.committed), mode=mode)
        return None if run is None else Chosen(run, "commit", f"trial {run.number} is the committed run")
    trials = [trial for trial in trials if not trial.committed]
    best = best_trial(trials, mode=mode)
    if best is None:
        return None
    complete = _complete(trials)
    scores = {number: score for number, (_, score) in complete.items()}

    def near(trial: TrialView) -> tuple[int, ...]:
        return () if error is None else tied(scores, trial.number, error)

    believed = _believed(study, complete) if is_unimodal(experiment) else None
    if believed is not None and (by or ("curve" if experiment.mode.searches_public else "score")) == "curve":
        why = _by_curve(believed, best, mode) if believed.number != best.number else ""
        return Chosen(believed, "curve", why, near(believed))
    winner, expected = best, None
    whys = []
    if error is not None and error.noise > 0:
        number = _despite_noise(study, (best.number, *near(best)), complete, noise=error.noise, mode=mode)
        winner = complete[number][0]
        whys += [_by_two_scores(winner, best)] * (number != best.number)
        expected = expected_score(list(scores.values()), scores[number], error.noise)
    if believed is not None and believed.number != winner.number:
        whys.append(_by_score(believed, winner))
    return Chosen(winner, "score", "; ".join(whys), near(winner), expected)


def _complete(trials: Sequence[TrialView]) -> dict[int, tuple[TrialView, float]]:
    """Return the complete trials that have a finite score, with their score, by number."""
    return {
        trial.number: (trial, trial.last_score)
        for trial in trials
        if trial.state is TrialStatus.COMPLETE and trial.last_score is not None and math.isfinite(trial.last_score)
    }


def _believed(study: Study, complete: Mapping[int, tuple[TrialView, float]]) -> TrialView | None:
    from tuner.study.unimodal.curves import believed_order  # its imports are slow and only needed for a curve

    return next((complete[number][0] for number in believed_order(study) if number in complete), None)


def _despite_noise(
    study: Study,
    contenders: Sequence[int],
    complete: Mapping[int, tuple[TrialView, float]],
    *,
    noise: float,
    mode: str,
) -> int:
    """Return the contender with the best combination of its last two scores. The first contender has the best score."""
    from tuner.study.views import learning_curve

    curves = {
        trial.number: [score for _, score in learning_curve(trial) if math.isfinite(score)]
        for trial in study.get_trials(deepcopy=False)
        if trial.number in complete
    }
    combined = combined_scores(curves, noise)
    found = best_of(contenders, score=combined.__getitem__, mode=mode, tie=lambda number: -number)
    return contenders[0] if found is None else found


def _by_curve(winner: TrialView, best: TrialView, mode: str) -> str:
    own, other = _apart(winner.last_score, best.last_score)
    scored = f"{'higher' if mode == 'max' else 'lower'}: {other} against {own}"
    if winner.last_score == best.last_score:
        scored = f"the same: {own}"
    return f"trial {winner.number} by the fitted curve (trial {best.number} scored {scored})"


def _by_two_scores(winner: TrialView, best: TrialView) -> str:
    own, other = _apart(winner.last_score, best.last_score)
    return (
        f"trial {winner.number} by its last two scores (its last score is {own}; trial {best.number} has {other}, a "
        "difference within the noise)"
    )


def _by_score(believed: TrialView, best: TrialView) -> str:
    own, other = _apart(best.last_score, believed.last_score)
    return (
        f"trial {best.number} by its score, {own} (the fitted curve prefers trial {believed.number}, which scored "
        f"{other})"
    )


def _apart(*scores: float | None) -> list[str]:
    """Return the scores as texts with at least four digits, and enough digits to tell them apart."""
    texts: list[str] = []
    for digits in (4, 6, 17):
        texts = ["–" if score is None else f"{score:.{digits}g}" for score in scores]
        if len(set(texts)) == len(set(scores)):
            break
    return texts
