"""Rules that compare scores and choose the best trial. This module imports no third-party package.

Every page and message about a search names the same best trial, because all of them use these rules:

- A score that is missing, infinite or not a number is never the best.
- Of trials with equal scores, the trial with the lowest number wins. A sealed search breaks ties with a secret key
  instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from tuner.study.types import TrialStatus

if TYPE_CHECKING:
    from tuner.study.types import TrialView

__all__ = ["best_of", "best_score", "best_trial", "is_better"]

Item = TypeVar("Item")


def is_better(score: float | None, than: float | None, *, mode: str) -> bool:
    """Return whether `score` is strictly better than the score `than`.

    A finite score is better than a missing or non-finite score. A missing or non-finite `score` is never better.
    """
    if score is None or not math.isfinite(score):
        return False
    if than is None or not math.isfinite(than):
        return True
    return score > than if mode == "max" else score < than


def best_score(scores: Iterable[float | None], *, mode: str) -> float | None:
    """Return the best score, or None if no score is finite."""
    return best_of(scores, score=lambda score: score, mode=mode, tie=lambda _: 0)


def best_of(
    items: Iterable[Item],
    *,
    score: Callable[[Item], float | None],
    mode: str,
    tie: Callable[[Item], Any],
) -> Item | None:
    """Return the item with the best score, or None if no score is finite.

    Of items with equal scores, the item with the greatest value of `tie` wins.
    """
    best: Item | None = None
    for item in items:
        if not is_better(score(item), None, mode=mode):
            continue
        if (
            best is None
            or is_better(score(item), score(best), mode=mode)
            or (score(item) == score(best) and tie(item) > tie(best))
        ):
            best = item
    return best


def best_trial(
    trials: Iterable[TrialView], *, mode: str, tie: Callable[[TrialView], Any] | None = None
) -> TrialView | None:
    """Return the COMPLETE trial with the best final score, or None if no COMPLETE trial has a finite score.

    Of trials with equal scores, the trial with the greatest value of `tie` wins. Without `tie`, the trial
    with the lowest number wins.
    """
    complete = (trial for trial in trials if trial.state is TrialStatus.COMPLETE)
    return best_of(complete, score=lambda trial: trial.last_score, mode=mode, tie=tie or (lambda trial: -trial.number))
