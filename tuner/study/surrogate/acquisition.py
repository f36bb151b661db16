"""Choice of the next trial: what is expected to improve the final run most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from tuner.study.gaussian_process import Array
from tuner.study.surrogate.setting import SearchSetting
from tuner.study.surrogate.surrogate import Surrogate

__all__ = ["choose_next"]

_QUANTILES: Final = ndtri((np.arange(9) + 0.5) / 9)
_PLACES: Final = 64  # candidates of either kind


def choose_next(
    surrogate: Surrogate,
    setting: SearchSetting,
    tried: Sequence[Mapping[str, object]],
    pending: Sequence[Mapping[str, object]],
    seed: int,
) -> dict[str, object]:
    """Return the configuration of the next trial.

    If the final run is another run than the trial, the choice has the greatest expected gain in the final run's
    expected score at the configuration that will then be best (knowledge gradient: Frazier, Powell & Dayanik 2009).
    If the final run is one of the trials, it has the greatest expected improvement on the best trial so far, a pending
    one included.

    Args:
        surrogate: surrogate of what was observed.
        setting: facts about the search.
        tried: configurations of trials with scores.
        pending: configurations without scores: running trials, and those that did not fit the budget. Their scores
            are taken as known, so that none is proposed twice.
        seed: seed of the candidates.
    """
    fresh: list[dict[str, object]] = [dict(point) for point in surrogate.axes.fill(_PLACES // 2, seed)]
    leaders = surrogate.candidates(setting.final, 1.0)[:_PLACES]
    around = surrogate.axes.around(leaders[:4], _PLACES // 8, 0.15, seed)
    known = [surrogate.axes.kept(each) for each in (*tried, *pending)]
    proposed = [*leaders[:: 2 if setting.trial_is_final else 4], *around, *fresh]
    candidates = [each for each in proposed if each not in known] or fresh
    finals: list[Mapping[str, object]] = [*leaders, *fresh] if not setting.trial_is_final else [*tried, *pending]
    trial = [(each, setting.noise_of(each), setting.length) for each in (*pending, *candidates)]
    final = [(each, setting.final(each), 1.0) for each in finals]
    weights, means, covariance = surrogate.joint([*trial, *final])
    covariance = _known(covariance, len(pending), surrogate.effect)
    first, many = len(pending), len(candidates)
    at, after = slice(first, first + many), slice(first + many, None)
    mean = weights @ means
    typical = float(np.median(means[:, at]))
    noise = surrogate.effect**2 + setting.error(typical) ** 2
    spread = np.diagonal(covariance, axis1=1, axis2=2)[:, at]
    if setting.trial_is_final:
        best = float(mean[after].max()) if finals else float(mean[at].min())
        gains = _improvement(means[:, at] - best, np.sqrt(np.maximum(spread, 0.0) + 1e-12))
    else:
        moved = covariance[:, at, after] / np.sqrt(np.maximum(spread, 0.0) + noise)[:, :, None]
        outcomes = mean[after][:, None] + moved[:, :, :, None] * _QUANTILES  # (B, candidates, decisions, quantiles)
        gains = outcomes.max(axis=2).mean(axis=2) - mean[after].max()
    return dict(candidates[int(np.argmax(weights @ gains))])


def _improvement(lead: Array, deviation: Array) -> Array:
    """Return the expected positive part of a normal variable with this mean and standard deviation."""
    scaled = lead / deviation
    density = np.exp(-0.5 * scaled**2) / np.sqrt(2 * np.pi)
    found: Array = lead * ndtr(scaled) + deviation * density
    return found


def _known(covariance: Array, pending: int, effect: float) -> Array:
    """Return the covariance after the scores of the first `pending` places were observed, whatever they are."""
    if not pending:
        return covariance
    inner = covariance[:, :pending, :pending] + (effect**2 + 1e-9) * np.eye(pending)
    cross = covariance[:, :pending, :]
    found: Array = covariance - np.swapaxes(cross, 1, 2) @ np.linalg.solve(inner, cross)
    return found
