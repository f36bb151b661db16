"""The sections that only compute: the printed tables, the counter-example and the exact enumeration."""

from __future__ import annotations

from math import exp

import numpy as np

from benchmarks.budget.enumeration import FAULTS, Discrete, DiscreteOrder, exhausting, run_cases, worst_adaptive
from benchmarks.budget.published import rows
from benchmarks.harness import Results, Settings, Table, at_least, at_most
from tuner.privacy.accountant.filters import UNITS

TABLES_BARS = {"tables.differing": at_most(0)}
COUNTER_EXAMPLE_BARS = {
    # "Some order fits" admits a game that realises 1.97 times the claimed δ; one order fixed beforehand does not.
    "counter_example.delta_some_order": at_least(1.9e-5),
    "counter_example.delta_order_2": at_most(1e-5),
    "counter_example.delta_order_8": at_most(1e-5),
}
BRUTE_FORCE_BARS = {
    "brute_force.cases": at_least(10_000, quick=False),
    "brute_force.violations": at_most(0),
    "brute_force.faults_unseen": at_most(0),
}

_CASES, _QUICK_CASES, _PLANTED = 10_000, 1_000, 200
_ORDERS, _EPSILON, _DELTA = (2.0, 8.0), 20.0, 1e-5


def tables(_settings: Settings, results: Results) -> None:
    """Compare every printed figure of the specification with the computed one."""
    found = rows()
    results.tables["Printed and computed"] = Table(
        ("section", "figure", "printed", "computed", "agrees"),
        tuple((row.table, row.what, row.printed, row.shown, "yes" if row.agrees else "NO") for row in found),
    )
    differing = [row.what for row in found if not row.agrees]
    results.count("tables.differing", len(differing), note="; ".join(differing) or f"of {len(found)}")


def counter_example(_settings: Settings, results: Results) -> None:
    """Play the game in which each branch exhausts another order, against one order and against "some order fits".

    The first round is loud with probability 0.005. After the quiet outcome comes the mechanism that exactly exhausts
    order 2, after the loud one the mechanism that exactly exhausts order 8. The best play of all that is admitted gives
    the realised δ.
    """
    first = Discrete((0.005, 0.995), (0.005 * exp(-1.5), 1 - 0.005 * exp(-1.5)))
    filters = {order: DiscreteOrder.of(order=order, epsilon=_EPSILON, delta=_DELTA) for order in _ORDERS}
    known = {order: found for order, found in filters.items() if found is not None}
    menu = [first]
    for order, p in zip(_ORDERS, (1.99e-5, 0.0151), strict=True):
        found = known[order]
        # A billionth below the bound: the rule is tested, not the last bit of a price.
        left = (found.budget - found.price(first)) / UNITS * (1 - 1e-9)
        loss = float(exhausting(order, left, np.array([p]))[0])
        menu.append(Discrete((p, 1 - p), (p * exp(-loss), 1 - p * exp(-loss))))

    def realised(*chosen: DiscreteOrder) -> float:
        def admits(used: tuple[int, ...], index: int) -> bool:
            spent = dict(zip(menu, used, strict=True))
            return any(each.left(spent, menu[index]) >= 1 for each in chosen)  # type: ignore[arg-type]

        return worst_adaptive(tuple(menu), admits, _EPSILON, depth=2)

    note = f"realised at ε = {_EPSILON:g}, claimed {_DELTA:g}"
    results.count("counter_example.delta_some_order", realised(*known.values()), note=note)
    for order, found in known.items():
        results.count(f"counter_example.delta_order_{order:g}", realised(found), note=note)


def brute_force(settings: Settings, results: Results) -> None:
    """Enumerate random small mechanisms against the best adversary in every mode, then with each planted fault."""
    found = run_cases(_QUICK_CASES if settings.quick else _CASES, settings.seed)
    planted = [
        (fault, run_cases(_PLANTED, settings.seed, fault=fault, modes=(mode,))[0])
        for fault, modes in FAULTS.items()
        for mode in modes
    ]
    results.count("brute_force.cases", sum(outcome.cases for outcome in found))
    results.count("brute_force.violations", sum(outcome.violations for outcome in found))
    results.count("brute_force.faults_unseen", sum(not outcome.violations for _, outcome in planted))
    results.tables["Exact enumeration"] = Table(
        ("mode", "planted fault", "cases", "above the claim", "largest realised δ over claimed"),
        tuple((each.mode, "–", each.cases, each.violations, f"{each.closest:.4f}") for each in found)
        + tuple((each.mode, fault, each.cases, each.violations, f"{each.closest:.3g}") for fault, each in planted),
    )
