"""Choice of how far the averaged weights are extrapolated. It looks at validation records that are not protected."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Final

import torch

from trainables.scoring import Answered, score
from trainables.tasks import METRICS

__all__ = ["FACTORS", "choose_factor"]

FACTORS: Final = (0.0, 0.5, 1.0, 2.0)
"""Factors a among which is chosen (`trainables.engine.average`)."""

_GROUPS: Final = 20  # of the jackknife


def choose_factor(answered: Mapping[float, Answered], *, metric: str) -> float:
    """Return the factor with the greatest gain over factor 0, minus the standard error of this gain; else 0.

    The error is the jackknife's over groups of records (Efron & Tibshirani 1993, chapter 11). The models are scored on
    the same records, so the error of a gain is much smaller than that of a score.

    Args:
        answered: for each factor, 0 among them, the answers on the same validation records.
        metric: score that is compared, as in an experiment file.
    """
    scores = {factor: _scores(each, metric) for factor, each in answered.items()}
    gains = {factor: _sure_gain(each, scores[0.0]) for factor, each in scores.items()}
    best = max(gains, key=lambda factor: gains[factor])
    return best if gains[best] > 0 else 0.0


def _scores(answered: Answered, metric: str) -> list[float]:
    """Return the score on all records, then those without each of the groups. Greater is better."""
    sign = 1.0 if METRICS[metric].mode == "max" else -1.0
    name, records = metric.removeprefix("validation_"), len(answered)
    group = torch.arange(records) % _GROUPS
    kept = [group >= 0, *(group != each for each in range(min(_GROUPS, records)))]
    return [sign * score(answered.only(each), name) for each in kept]


def _sure_gain(scores: list[float], plain: list[float]) -> float:
    gain, *without = (one - other for one, other in zip(scores, plain, strict=True))
    count = len(without)
    if count < 2:
        return -inf
    mean = sum(without) / count
    error = ((count - 1) / count * sum((each - mean) ** 2 for each in without)) ** 0.5
    return gain - error if isfinite(gain - error) else -inf
