"""What the budget must show, as data: each bar by the name of its figure."""

from __future__ import annotations

from typing import Final

from benchmarks.budget_faults import FAULTS
from benchmarks.budget_speed import PLANS, SWEEPS
from benchmarks.engine_bars import Bar

__all__ = ["BARS", "SECTIONS"]

SECTIONS: Final = ("tables", "counter_example", "brute_force", "speed", "faults", "storm", "buys")
"""In the order in which they are measured: what takes long comes last. A figure's name begins with its section's."""

BARS: Final[tuple[Bar, ...]] = (
    # The printed tables, to the printed digits.
    Bar("tables.differing", 0, "at most"),
    # "Some order fits" accepts what realises 1.97 times the δ that is claimed; one order fixed beforehand does not.
    Bar("counter_example.delta_some_order", 1.9e-5, "at least"),
    Bar("counter_example.delta_order_2", 1e-5, "at most"),
    Bar("counter_example.delta_order_8", 1e-5, "at most"),
    # Exact enumeration, and its controls: what was planted and not seen.
    Bar("brute_force.cases", 10_000, "at least", quick=False),
    Bar("brute_force.violations", 0, "at most"),
    Bar("brute_force.faults_unseen", 0, "at most"),
    Bar("speed.admission_ms", 1.0, "at most"),
    Bar("speed.epsilon_ms.after_a_lease", 100.0, "at most"),
    Bar("speed.composition_first_over_again", 100.0, "at least"),
    *(Bar(f"speed.{what}.{plan}", 2_000.0, "at most") for plan in PLANS for what in ("plan_ms", "plan_command_ms")),
    *(Bar(f"speed.ledger_percent.{sweep.name}", 1.0, "at most", quick=sweep.quick) for sweep in SWEEPS if sweep.judged),
    # How many things were wrong in each fault's play.
    *(Bar(f"faults.{fault}", 0, "at most") for fault in FAULTS),
    Bar("storm.kills", 200, "at least", quick=False),
    Bar("storm.draws_below", 0, "at most"),
    Bar("storm.leases_above_per_trial", 1, "at most"),
    # What the product promises of its own (docs/guarantees.md): a lease a trial and attempt.
    Bar("storm.leases_above_per_attempt", 1, "at most"),
    Bar("storm.errors", 0, "at most"),
    # The table of what a budget buys has no bar but that it is whole.
    Bar("buys.missing", 0, "at most", quick=False),
)
