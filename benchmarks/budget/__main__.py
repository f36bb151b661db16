"""The budget of a search: what it claims, what it survives, what it costs and what it buys.

    python -m benchmarks.budget [--quick] [--json] [--data-dir DIR] [--only SECTION ...] [--out DIR] [--jobs N]

Sections, in this order: `tables` computes the printed figures of the accounting again; `counter_example` plays the
adaptive game that "some order fits" loses; `brute_force` enumerates 10 000 small cases and planted faults exactly;
`speed` measures times; `faults` causes a full disk, flipped bytes and other faults in the middle of a sweep; `storm`
kills 200 times; `buys` measures accuracy for a total ε, for an hour on two cores, and continues from --out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.budget import buys, claims, faults, speed, storm
from benchmarks.harness import Benchmark, Section, at_most, run


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", help="URL of the ledger of the storm; an SQLite file by default")


BENCHMARK = Benchmark(
    name="budget",
    about=__doc__,
    packages=("torch", "ray", "dp-accounting"),
    seed=4,
    jobs=1,
    out=Path("runs/budget"),
    quick_seconds=290.0,
    add_options=_add_options,
    sections={
        "tables": Section(measure=claims.tables, bars=claims.TABLES_BARS),
        "counter_example": Section(measure=claims.counter_example, bars=claims.COUNTER_EXAMPLE_BARS),
        "brute_force": Section(measure=claims.brute_force, bars=claims.BRUTE_FORCE_BARS),
        "speed": Section(measure=speed.measure, bars=speed.BARS, datasets=speed.datasets),
        "faults": Section(measure=faults.measure, bars=faults.BARS),
        "storm": Section(measure=storm.measure, bars=storm.BARS),
        "buys": Section(
            measure=buys.measure,
            bars={"buys.missing": at_most(0)},
            quick=False,
            datasets=lambda _settings: {workload.dataset for workload in buys.WORKLOADS},
        ),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
