"""What a search survives: random faults of a simulated cluster, and real sweeps with one fault each.

    python -m benchmarks.faults [--quick] [--json] [--only SECTION ...] [--seed N]

Sections: `schedules` replays 10 000 random schedules of faults through the driver and the ledger, without Ray, and
plants three flaws that must be found.
"""

from __future__ import annotations

import sys

from benchmarks.faults import schedules
from benchmarks.harness import Benchmark, Section, run

BENCHMARK = Benchmark(
    name="faults",
    about=__doc__,
    packages=("torch", "ray", "optuna", "mlflow"),
    seed=17,
    jobs=2,
    quick_seconds=290.0,
    sections={"schedules": Section(measure=schedules.measure, bars=schedules.BARS)},
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
