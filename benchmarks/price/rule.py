"""How good the rule of `accounting: auto` is: the stored searches, each data set judged by the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

from benchmarks.harness import Figure, Results, Settings, Table
from tuner.plan.candidates import NO_SEARCH
from tuner.plan.prices import MeasuredSearch, Situation, best_arm, expected_gain, shipped_prices

__all__ = ["chosen", "measure", "priced_situations"]

_SEARCHES = ("commit", "full_runs", "composition", "selection", "gen")
_TITLES = {
    "auto": "the rule of `auto`",
    "never": "never a search",
    "commit": "always a committed run",
    "best": "the best candidate of each case",
}
_RECORDS = (0.0, 1e3, 3e3, 3e4, float("inf"))

Priced: TypeAlias = Mapping[Situation, Mapping[str, float]]
"""Price by arm in each situation."""


def measure(_settings: Settings, results: Results) -> None:
    """Add what the rule costs on each data set if it knows the others only, and what a committed run gains."""
    rows = shipped_prices().searches
    situations = priced_situations(rows)
    every = [(dataset, at, prices) for dataset, known in situations.items() for at, prices in known.items()]
    taken = [chosen([row for row in rows if row.dataset != dataset], at, prices) for dataset, at, prices in every]
    costs = {
        "auto": [prices[arm] for arm, (_, _, prices) in zip(taken, every, strict=True)],
        "never": [prices[NO_SEARCH] for *_, prices in every],
        "commit": [prices["commit"] for *_, prices in every],
        "best": [min(prices.values()) for *_, prices in every],
    }
    results.figures |= {f"rule.{name}": _mean(own) for name, own in costs.items()}
    differences = [own - single for own, single in zip(costs["auto"], costs["never"], strict=True)]
    results.figures["rule.auto.minus_never"] = _mean(differences)
    searched = sum(arm != NO_SEARCH for arm in taken)
    results.tables[f"Price in points over {len(every)} cases; the rule searches in {searched}"] = Table(
        ("", "mean price"), tuple((_TITLES[name], _mean(own).plus_minus(sign="+")) for name, own in costs.items())
    )
    gains = [(at.epsilon * at.train_size, prices[NO_SEARCH] - prices["commit"]) for _, at, prices in every]
    bins = [(low, high, [gain for size, gain in gains if low <= size < high]) for low, high in pairwise(_RECORDS)]
    results.tables["Gain of a committed run over no search"] = Table(
        ("ε · records", "cases", "points"),
        tuple(
            (f"{low:g} to {high:g}", str(len(own)), _mean(own).plus_minus(sign="+")) for low, high, own in bins if own
        ),
    )


def priced_situations(rows: Sequence[MeasuredSearch]) -> dict[str, Priced]:
    """Return the mean price of each arm by data set and situation, where no search and a committed run were priced."""
    found: dict[tuple[str, Situation], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    most: dict[tuple[object, ...], int] = defaultdict(int)
    for row in rows:
        most[row.situation] = max(most[row.situation], row.trials)
    for row in rows:
        at = Situation(
            epsilon=row.epsilon,
            trials=most[row.situation],
            axes=row.axes,
            family=row.family,
            train_size=row.train_size,
        )
        if row.arm in (*_SEARCHES, NO_SEARCH):
            found[row.dataset, at][row.arm].append(row.price)
    priced: dict[str, dict[Situation, dict[str, float]]] = defaultdict(dict)
    for (dataset, at), arms in found.items():
        if {NO_SEARCH, "commit"} <= set(arms):
            priced[dataset][at] = {arm: fmean(prices) for arm, prices in arms.items()}
    return dict(priced)


def chosen(known: Sequence[MeasuredSearch], at: Situation, prices: Mapping[str, float]) -> str:
    """Return the arm that the rule takes in a situation, of those with a price there, if it knows these searches."""
    gains = {arm: expected_gain(known, arm, NO_SEARCH, at) for arm in _SEARCHES if arm in prices}
    return best_arm(gains) or NO_SEARCH


def _mean(values: Sequence[float]) -> Figure:
    return Figure.mean_of(list(values), "points")
