"""What the budget of a search survives, and what it costs. `benchmarks.price` measures what it buys.

    python -m benchmarks.budget --data-dir DATA [--quick] [--json] [--only SECTION ...]

Sections, in this order: `speed` measures times; `faults` causes a full disk, flipped bytes and other faults in the
middle of a sweep; `storm` kills a sweep's processes 200 times.
"""

from __future__ import annotations

import sys

from benchmarks.budget import faults, speed, storm
from benchmarks.harness import Benchmark, Section, run

BENCHMARK = Benchmark(
    name="budget",
    about=__doc__,
    packages=("torch", "ray", "dp-accounting"),
    seed=4,
    quick_seconds=290.0,
    sections={
        "speed": Section(measure=speed.measure, bars=speed.BARS, datasets=speed.datasets),
        "faults": Section(measure=faults.measure, bars=faults.BARS),
        "storm": Section(measure=storm.measure, bars=storm.BARS),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
