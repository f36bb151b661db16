"""Comparison of scores: which one is better, and which trial is the best. Imports nothing heavy.

All reports of a search use these rules, so they name the same trial:

- A score that is missing, infinite or not a number is never the best.
- Equal scores: the trial with the lowest number wins. A sealed search breaks ties with a secret key instead.
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
    """Return whether a score is strictly better than another. A finite score is better than none."""
    if score is None or not math.isfinite(score):
        return False
    if than is None or not math.isfinite(than):
        return True
    return score > than if mode == "max" else score < than


def best_score(scores: Iterable[float | None], *, mode: str) -> float | None:
    """Return the best score, or None if none is finite."""
    return best_of(scores, score=lambda score: score, mode=mode, tie=lambda _: 0)


def best_of(
    items: Iterable[Item],
    *,
    score: Callable[[Item], float | None],
    mode: str,
    tie: Callable[[Item], Any],
) -> Item | None:
    """Return the item with the best score, or None if no score is finite. The greatest key `tie` breaks ties."""
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
    """Return the COMPLETE trial with the best last score, or None.

    The greatest key `tie` breaks ties; by default the lowest number wins.
    """
    complete = (trial for trial in trials if trial.state is TrialStatus.COMPLETE)
    return best_of(complete, score=lambda trial: trial.last_score, mode=mode, tie=tie or (lambda trial: -trial.number))
