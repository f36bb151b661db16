"""The sections that only compute: the printed tables, the counter-example and the exact enumeration."""

from __future__ import annotations

from math import exp

import numpy as np

from benchmarks.budget_brute import FAULTS, Discrete, DiscreteOrder, exhausting, run_cases, worst_adaptive
from benchmarks.budget_common import Results, Settings, Table, count
from benchmarks.budget_tables import rows
from benchmarks.engine_measure import Figure
from tuner.privacy.accountant.filters import UNITS

__all__ = ["brute_force", "counter_example", "tables"]

_CASES, _QUICK_CASES, _PLANTED = 10_000, 1_000, 200
_ORDERS, _EPSILON, _DELTA = (2.0, 8.0), 20.0, 1e-5


def tables(settings: Settings, results: Results) -> None:
    """Every printed figure of the specification beside the one that is computed."""
    found = rows()
    results.tables["Printed and computed"] = Table(
        ("where", "what", "printed", "computed", "agrees"),
        tuple((row.table, row.what, row.printed, row.shown, "yes" if row.agrees else "NO") for row in found),
    )
    differing = [row.what for row in found if not row.agrees]
    results.figures["tables.differing"] = count(len(differing), note="; ".join(differing) or f"of {len(found)}")


def counter_example(settings: Settings, results: Results) -> None:
    """The game in which each branch exhausts another order, against one order and against "some order fits".

    The first round is loud with probability 0.005. After the quiet outcome comes what exactly exhausts order 2, after
    the loud one what exhausts order 8. What is realised is found by the best play of all that is admitted.
    """
    first = Discrete((0.005, 0.995), (0.005 * exp(-1.5), 1 - 0.005 * exp(-1.5)))
    filters = {order: DiscreteOrder.of(order=order, epsilon=_EPSILON, delta=_DELTA) for order in _ORDERS}
    known = {order: found for order, found in filters.items() if found is not None}
    menu = [first]
    for order, p in zip(_ORDERS, (1.99e-5, 0.0151), strict=True):
        found = known[order]
        # A billionth below the bound: what is tested is the rule, not the last bit of a price.
        left = (found.budget - found.price(first)) / UNITS * (1 - 1e-9)
        loss = float(exhausting(order, left, np.array([p]))[0])
        menu.append(Discrete((p, 1 - p), (p * exp(-loss), 1 - p * exp(-loss))))

    def realised(*chosen: DiscreteOrder) -> float:
        def admits(used: tuple[int, ...], index: int) -> bool:
            spent = dict(zip(menu, used, strict=True))
            return any(each.left(spent, menu[index]) >= 1 for each in chosen)  # type: ignore[arg-type]

        return worst_adaptive(tuple(menu), admits, _EPSILON, depth=2)

    results.figures["counter_example.delta_some_order"] = Figure(
        realised(*known.values()), unit="", note=f"realised at ε = {_EPSILON:g}, claimed {_DELTA:g}"
    )
    for order, found in known.items():
        results.figures[f"counter_example.delta_order_{order:g}"] = Figure(
            realised(found), unit="", note="realised by the best play that this one order admits"
        )


def brute_force(settings: Settings, results: Results) -> None:
    """Random small mechanisms against the best adversary, in every mode; then each planted fault, to be seen."""
    found = run_cases(_QUICK_CASES if settings.quick else _CASES, settings.seed)
    planted = [
        (fault, run_cases(_PLANTED, settings.seed, fault=fault, modes=(mode,))[0])
        for fault, modes in FAULTS.items()
        for mode in modes
    ]
    if not settings.quick:
        results.figures["brute_force.cases"] = count(sum(outcome.cases for outcome in found))
    results.figures["brute_force.violations"] = count(sum(outcome.violations for outcome in found))
    results.figures["brute_force.faults_unseen"] = count(sum(not outcome.violations for _, outcome in planted))
    results.tables["Exact enumeration"] = Table(
        ("mode", "planted fault", "cases", "above the claim", "largest realised δ over claimed"),
        tuple((each.mode, "–", each.cases, each.violations, f"{each.closest:.4f}") for each in found)
        + tuple((each.mode, fault, each.cases, each.violations, f"{each.closest:.3g}") for fault, each in planted),
    )
