"""Rules for scores with noise: which trials are within the error of the best, and what the best is worth.

Everything here is a function of released scores, so it costs no privacy. `python -m benchmarks.noisy_scores` compares
the rules on simulated searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, variance
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainables.score_error import ScoreError

__all__ = ["combined_scores", "expected_score", "tied"]

_LEAST = 3
"""Minimum number of trials for an estimate of the spread."""

_FAR = 8.0  # scores further away, in units of the noise, say nothing about a score
_GRID, _ROUNDS = 80, 100  # points of the fitted distribution, and rounds of its fit


def tied(scores: Mapping[int, float], to: int, error: ScoreError) -> tuple[int, ...]:
    """Return the other trials whose score differs from that of trial `to` by at most the error of the difference.

    `scores` are by trial number. The result is sorted.
    """
    own = scores[to]
    near = (number for number, score in scores.items() if abs(score - own) <= error.of_difference(score, own))
    return tuple(sorted(number for number in near if number != to))


def combined_scores(curves: Mapping[int, Sequence[float]], noise: float) -> dict[int, float]:
    """Return for each complete trial an estimate of its final accuracy from its last two noisy scores.

    The noise of the two scores is independent. The score before the last, moved by the mean difference over all trials,
    is therefore a second measurement of the final accuracy, with the variance noise² + spread². The weights are the
    inverse variances. `spread` is how much the true difference varies between trials. Its estimate is the variance of
    the released differences minus the part of the noise.

    Without noise, the result is the last score.

    Args:
        curves: scores of each trial in the order of its steps, by trial number. Each trial has at least one.
        noise: standard deviation of the noise of a score.
    """
    last = {number: curve[-1] for number, curve in curves.items()}
    before = {number: curve[-2] for number, curve in curves.items() if len(curve) > 1}
    rises = [last[number] - score for number, score in before.items()]
    if noise == 0 or len(rises) < _LEAST:
        return last
    spread = max(variance(rises) - 2 * noise**2, 0.0)
    weight, rise = noise**2 / (noise**2 + spread), fmean(rises)
    return last | {number: (last[number] + weight * (score + rise)) / (1 + weight) for number, score in before.items()}


def expected_score(scores: Sequence[float], score: float, noise: float) -> float:
    """Return the expected accuracy of the trial with the last score `score`, given all complete trials' last scores.

    The best of many noisy scores is too high on average. This is the mean of the accuracy's posterior distribution. The
    prior is the distribution on a grid that makes the scores most likely (nonparametric empirical Bayes: Kiefer and
    Wolfowitz 1956; Jiang and Zhang 2009). It needs no assumption about the shape of the distribution.

    Args:
        scores: last scores of all complete trials, with `score` among them.
        score: last score of one trial.
        noise: standard deviation of the noise of a score, above 0.
    """
    import numpy as np

    near = np.array([each for each in scores if abs(each - score) <= _FAR * noise])
    low, high = np.clip((near.min() - noise, near.max() + noise), 0.0, 1.0)  # an accuracy, whatever its noise
    grid = np.linspace(low, high, _GRID)
    likelihood = np.exp(-(((near[:, None] - grid) / noise) ** 2) / 2)
    prior = np.full(_GRID, 1 / _GRID)
    for _ in range(_ROUNDS):
        prior = np.mean(likelihood * prior / (likelihood @ prior)[:, None], axis=0)
    own = np.exp(-(((score - grid) / noise) ** 2) / 2) * prior
    return float(own @ grid / own.sum())
