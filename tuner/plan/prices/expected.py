"""Expected price of a search: a kernel-weighted mean of measured prices, with an error over data sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt

from tuner.plan.prices.measured import MeasuredSearch

__all__ = ["MOST_CLASSES", "Expected", "Situation", "best_arm", "expected_gain", "expected_price"]

_BUDGET = log(3.0)
_SIZE = log(10.0)
_TRIALS = log(3.0)
_CLASSES = log(3.0)
"""Widths of the kernels in the logarithms of ε times the number of records, the number of records, the number of
trials and the number of classes above `MOST_CLASSES`. At a factor of exp(width) from the setting, a row has the
weight e^−½. They are set by hand and not fitted.

ε times records, because the noise of a mean over n records goes like 1/(ε·n). The length of the noise in all
parameters, r·√T, foretells gains less well on data sets that are left out: most of its directions matter to nobody."""
MOST_CLASSES = 10
"""Most classes of a measured search. Searches with fewer classes are taken to have equal prices.

A measured search with more classes would need its own number of classes in `MeasuredSearch`.
"""
_AXIS = 0.85
"""Factor of a row's weight for each searched parameter more or less."""
_FAMILY = 0.5
"""Factor of a row's weight if its model is of another family."""
_NO_NETWORKS = frozenset({"linear", "other"})
_DOUBT = 0.5
"""Points by which the mean over ONE data set is taken to differ from the mean over all, beyond what the rows show."""
_LEAST_NEAR = 1.0
"""Least number of data sets near the setting. With fewer, nothing is expected."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """PUBLIC facts about a search on which its price depends; see `MeasuredSearch`.

    `classes` is the number of outputs of the model.
    """

    epsilon: float
    trials: int
    axes: int
    family: str
    train_size: int
    classes: int = MOST_CLASSES


@dataclass(frozen=True, kw_only=True)
class Expected:
    """An expected value in points of accuracy.

    Attributes:
        error: standard error of the mean over data sets, with what few data sets leave unknown.
        near: number of data sets near the setting. A data set counts as much as its nearest row.
    """

    value: float
    error: float
    near: float


def expected_price(rows: Iterable[MeasuredSearch], arm: str, at: Situation) -> Expected | None:
    """Return the expected price of an arm, or None if it was not measured near this setting."""
    return _mean([(_weight(row, at), row.price, row.dataset) for row in rows if row.arm == arm])


def expected_gain(rows: Sequence[MeasuredSearch], arm: str, over: str, at: Situation) -> Expected | None:
    """Return by how many points `arm` is expected to be better than the arm `over`, or None if that was not measured.

    The difference is paired: it compares searches in the same situation, so that what both lose cancels. If nothing
    is paired near the setting, it is the difference of two means.

    What linear models and the small perceptrons of the tables gained, a network trained by the product did not. So
    only that network speaks for networks, perceptrons included.
    """
    rows = [row for row in rows if (row.family in _NO_NETWORKS) == (at.family == "linear")]
    others: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.arm == over:
            others[row.situation].append(row.price)
    paired = [
        (_weight(row, at), sum(others[row.situation]) / len(others[row.situation]) - row.price, row.dataset)
        for row in rows
        if row.arm == arm and row.situation in others
    ]
    found = _mean(paired)
    if found is not None:
        return found
    first, second = expected_price(rows, over, at), expected_price(rows, arm, at)
    if first is None or second is None:
        return None
    return Expected(
        value=first.value - second.value, error=hypot(first.error, second.error), near=min(first.near, second.near)
    )


def best_arm(gains: Mapping[str, Expected | None]) -> str | None:
    """Return the arm with the largest expected gain, or None if no gain is above 0."""
    above = {arm: gain.value for arm, gain in gains.items() if gain is not None and gain.value > 0}
    return max(above, key=above.__getitem__, default=None)


def _weight(row: MeasuredSearch, at: Situation) -> float:
    away = [
        log(row.epsilon * row.train_size / (at.epsilon * at.train_size)) / _BUDGET,
        log(row.train_size / at.train_size) / _SIZE,
        log(max(1.0, at.classes / MOST_CLASSES)) / _CLASSES,
    ]
    if row.arm not in ("prior", "gen", "middle"):  # these have one trial, whatever a search would have
        away.append(log(row.trials / at.trials) / _TRIALS)
    family = 1.0 if row.family == at.family else _FAMILY
    return exp(-sum(each**2 for each in away) / 2) * _AXIS ** abs(row.axes - at.axes) * family


def _mean(rows: Sequence[tuple[float, float, str]]) -> Expected | None:
    """Return the mean of (weight, value, data set) rows over data sets, each of which is one observation.

    The value of a data set is the weighted mean of its rows, and its weight is that of its nearest row.
    """
    each: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for weight, value, dataset in rows:
        each[dataset].append((weight, value))
    nearest = [max(weight for weight, _ in found) for found in each.values()]
    near = sum(nearest)
    if near < _LEAST_NEAR:
        return None
    means = [sum(w * value for w, value in found) / sum(w for w, _ in found) for found in each.values()]
    mean = sum(w * value for w, value in zip(nearest, means, strict=True)) / near
    spread = sum((w * (value - mean)) ** 2 for w, value in zip(nearest, means, strict=True)) / near**2
    count = near**2 / sum(w**2 for w in nearest)  # of data sets, if all had the same weight
    return Expected(value=mean, error=sqrt(spread * count / max(count - 1, 0.5) + _DOUBT**2 / near), near=near)
