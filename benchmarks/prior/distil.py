"""Distillation of measured grids into a few coefficients, by the accuracy that a setting chosen with them loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import torch
from torch import Tensor

from benchmarks.prior.situations import CLIPS, Measured, Situation
from search_spaces.prior.features import FEATURES, features

__all__ = ["Fit", "Rows", "family_of_rates", "fit_adam", "fit_sgd", "regret", "rows_of"]

THEORY: Mapping[str, float] = {"noise": -1.0, "dimension": 0.0, "classes": 0.0}
"""Exponents that the ridge pulls to: the noise of all steps on the weights, rate × noise × √steps, stays what it is."""

_RIDGE = 0.3
_WITHIN = 0.683  # part of a normal distribution within one standard deviation
_CAP = 10.0  # points: a loss of accuracy counts r/(1 + r/cap), so that a few hopeless situations do not decide


@dataclass(frozen=True)
class Rows:
    """Measured situations as tensors.

    Attributes:
        features: shape (N, F), in the order of FEATURES.
        grid: logarithms of the products of rate and clip (Adam: rates), shape (N, P).
        table: accuracies of the averaged weights in percent, shape (N, P, clips).
        last: the same of the last weights.
        families: family of each situation.
        datasets: data set of each situation.
    """

    features: Tensor
    grid: Tensor
    table: Tensor
    last: Tensor
    families: tuple[str, ...]
    datasets: tuple[str, ...]

    def only(self, kept: Sequence[bool]) -> Rows:
        """Return the rows that are marked."""
        at = torch.tensor(kept)
        return Rows(
            self.features[at],
            self.grid[at],
            self.table[at],
            self.last[at],
            tuple(name for name, keep in zip(self.families, kept, strict=True) if keep),
            tuple(name for name, keep in zip(self.datasets, kept, strict=True) if keep),
        )


Fit = dict[str, Any]


def rows_of(measured: Mapping[Situation, Measured], optimizer: str) -> Rows:
    """Return the situations of an optimizer. Accuracies are smoothed along the grid, because they are noisy."""
    own = [(run, found) for run, found in measured.items() if run.optimizer == optimizer]
    known = [
        features(
            noise_multiplier=found.noise_multiplier,
            batch_size=found.batch_size,
            steps=found.steps,
            dimension=found.dimension,
            classes=found.classes,
        )
        for _, found in own
    ]
    return Rows(
        torch.tensor([[each[name] for name in FEATURES] for each in known], dtype=torch.float64),
        torch.tensor([found.grid for _, found in own], dtype=torch.float64).log(),
        _smooth([found.accuracies for _, found in own]),
        _smooth([found.last for _, found in own]),
        tuple(run.family for run, _ in own),
        tuple(run.dataset for run, _ in own),
    )


def _smooth(accuracies: Sequence[Sequence[float]]) -> Tensor:
    tables = torch.tensor(accuracies, dtype=torch.float64).unflatten(1, (-1, len(CLIPS)))
    smooth = tables.clone()
    smooth[:, 1:-1] = tables[:, :-2] / 4 + tables[:, 1:-1] / 2 + tables[:, 2:] / 4
    return smooth


def of_last_weights(rows: Rows, product: Tensor, clip: Tensor) -> float:
    """Return the logarithm of the factor by which the rate is lower if the last weights are taken, not their average.

    It is the factor with the least loss for all situations together. `product` and `clip` are what the formulas say.
    """
    rows, weights = replace(rows, table=rows.last), _balanced(rows)
    shifts = torch.linspace(-2.0, 1.0, 61, dtype=torch.float64)
    losses = torch.stack([(weights * _around(rows, product + shift, clip)).sum() for shift in shifts])
    return float(shifts[losses.argmin()])


def regret(rows: Rows, product: Tensor, clip: Tensor) -> Tensor:
    """Return the points that each situation loses at log product and log clip, both of shape (N,), by interpolation."""
    height = rows.grid.shape[1]
    place = (product - rows.grid[:, 0]) / (rows.grid[:, -1] - rows.grid[:, 0]) * (height - 1)
    # Beyond the grid, the loss keeps growing a little, so that a fit finds its way back.
    beyond = (place.clamp_max(0).neg() + (place - (height - 1)).clamp_min(0)) * 0.5
    place = place.clamp(0, height - 1 - 1e-6)
    low = place.floor().long()
    share = (place - low)[:, None]
    every = torch.arange(len(place))
    at_product = rows.table[every, low] * (1 - share) + rows.table[every, low + 1] * share
    logs = torch.tensor([log(each) for each in CLIPS], dtype=torch.float64)
    beside = (clip - logs[0]) / (logs[-1] - logs[0]) * (len(CLIPS) - 1)
    beside = beside.clamp(0, len(CLIPS) - 1 - 1e-6)
    column = beside.floor().long()
    part = beside - column
    found = at_product[every, column] * (1 - part) + at_product[every, column + 1] * part
    return rows.table.amax((1, 2)) - found + beyond


def _around(rows: Rows, product: Tensor, clip: Tensor) -> Tensor:
    """Return the mean loss around a point, so that a fit is not drawn to the points of the grid."""
    shifts = ((0.0, 0.0), (0.35, 0.7), (0.35, -0.7), (-0.35, 0.7), (-0.35, -0.7))
    return torch.stack([_robust(regret(rows, product + a, clip + b)) for a, b in shifts]).mean(0)


def fit_sgd(rows: Rows, *, rounds: int = 250) -> tuple[Fit, Fit]:
    """Return the formulas of the product of rate and clip, and of the clip."""
    families = sorted(set(rows.families) - {"linear"})
    member = torch.tensor(
        [[float(name == family) for family in families] for name in rows.families], dtype=torch.float64
    )
    member = member.view(len(rows.families), len(families))
    theory = torch.tensor([THEORY[name] for name in FEATURES], dtype=torch.float64)
    slopes = theory.clone().requires_grad_()
    start = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    offsets = torch.zeros(len(families), dtype=torch.float64, requires_grad=True)
    clip_start = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    clip_slopes = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    follow = torch.tensor([0.2], dtype=torch.float64, requires_grad=True)
    centre = rows.features.mean(0)
    weights = _balanced(rows)
    others = torch.tensor([log(each) for each in CLIPS], dtype=torch.float64)
    optimizer = torch.optim.Adam([slopes, start, offsets, clip_start, clip_slopes, follow], lr=0.05)
    for _ in range(rounds):
        optimizer.zero_grad()
        centred = rows.features - centre
        clip = (clip_start + centred[:, :2] @ clip_slopes).clamp(-4.6, 2.3)
        product = start + centred @ slopes + member @ offsets
        loss = (weights * _around(rows, product, clip)).sum()
        for each in others:  # a clip that the user fixed
            fixed = regret(rows, product + follow.clamp(0, 1) * (each - clip), each.expand_as(clip))
            loss = loss + 0.1 * (weights * _robust(fixed)).sum()
        ridge = ((slopes - theory) ** 2).sum() + 0.1 * (offsets**2).sum() + 0.3 * (clip_slopes**2).sum()
        (loss + _RIDGE * ridge).backward()
        optimizer.step()
        with torch.no_grad():
            slopes[0].clamp_(max=0.0)
            clip_slopes[0].clamp_(max=0.0)
    with torch.no_grad():
        clip = clip_start + (rows.features - centre)[:, :2] @ clip_slopes
        product = start + (rows.features - centre) @ slopes + member @ offsets
        spread = _spread(rows, product)
        own = {family: family_of_rates(float(offset)) for family, offset in zip(families, offsets, strict=True)}
        of_product: Fit = {
            "intercept": float(start - centre @ slopes),
            "coefficients": dict(zip(FEATURES, slopes.tolist(), strict=True)),
            "families": {"linear": family_of_rates(), **own},
            "unmeasured_family": 1.0,
            "clip": float(follow.clamp(0, 1)),
            "last_weights": of_last_weights(rows, product, clip),
            "spread": spread,
        }
        of_clip: Fit = {
            "intercept": float(clip_start - centre[:2] @ clip_slopes),
            "coefficients": dict(zip(FEATURES[:2], clip_slopes.tolist(), strict=True)),
            "spread": 1.0,
        }
    return of_product, of_clip


def fit_adam(rows: Rows, *, rounds: int = 250) -> Fit:
    """Return the formula of Adam's rate."""
    theory = torch.tensor([THEORY[name] for name in FEATURES], dtype=torch.float64)
    slopes = theory.clone().requires_grad_()
    start = torch.tensor([-3.0], dtype=torch.float64, requires_grad=True)
    centre, weights = rows.features.mean(0), _balanced(rows)
    clip = torch.full((len(rows.families),), log(0.4), dtype=torch.float64)
    optimizer = torch.optim.Adam([slopes, start], lr=0.05)
    for _ in range(rounds):
        optimizer.zero_grad()
        rate = start + (rows.features - centre) @ slopes
        loss = (weights * _around(rows, rate, clip)).sum() + _RIDGE * ((slopes - theory) ** 2).sum()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            slopes[0].clamp_(max=0.0)
    with torch.no_grad():
        rate = start + (rows.features - centre) @ slopes
        return {
            "intercept": float(start - centre @ slopes),
            "coefficients": dict(zip(FEATURES, slopes.tolist(), strict=True)),
            "families": {"linear": family_of_rates()},
            "unmeasured_family": 1.0,
            "last_weights": of_last_weights(rows, rate, clip),
            "spread": _spread(rows, rate),
        }


def family_of_rates(offset: float = 0.0, *, most: float | None = None, spread: float = 0.0) -> Fit:
    """Return by what the rates of a family differ: an offset, a limit, and more spread.

    The limit `most` is the largest product of rate and clip, divided by the root of the number of steps.
    """
    return {"offset": offset, "most": most, "spread": spread}


def _robust(loss: Tensor) -> Tensor:
    return loss / (1 + loss / _CAP)


def _balanced(rows: Rows) -> Tensor:
    counts = {name: rows.datasets.count(name) for name in set(rows.datasets)}
    weights = torch.tensor([1 / counts[name] for name in rows.datasets], dtype=torch.float64)
    return weights / weights.sum()


def _spread(rows: Rows, predicted: Tensor) -> float:
    """Return the distance from the prediction within which two of three best logarithms are; flat curves count little.

    It is a quantile, because a data set whose best rates are far off would decide a standard deviation alone.
    """
    curve = rows.table.amax(2)
    weight = (curve - curve.amax(1, keepdim=True)).exp()
    weight = weight / weight.sum(1, keepdim=True)
    centre = (weight * rows.grid).sum(1)
    width = (weight * (rows.grid - centre[:, None]) ** 2).sum(1)
    certainty = 1 / (width + 0.1)
    away, order = (centre - predicted).abs().sort()
    below = (certainty[order] / certainty.sum()).cumsum(0)
    return float(away[torch.searchsorted(below, _WITHIN)])
