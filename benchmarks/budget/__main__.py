"""What the budget of a search survives, what it costs, and what it buys.

    python -m benchmarks.budget --data-dir DATA [--quick] [--json] [--only SECTION ...] [--out DIR] [--jobs N]

Sections, in this order: `speed` measures times; `faults` causes a full disk, flipped bytes and other faults in the
middle of a sweep; `storm` kills a sweep's processes 200 times; `buys` measures accuracy for a total ε, for an hour on
two cores, and continues from --out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.budget import buys, faults, speed, storm
from benchmarks.harness import Benchmark, Section, at_most, run

BENCHMARK = Benchmark(
    name="budget",
    about=__doc__,
    packages=("torch", "ray", "dp-accounting"),
    seed=4,
    jobs=1,
    out=Path("runs/budget"),
    quick_seconds=290.0,
    sections={
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
