"""What a search survives: random faults of a simulated cluster, and real sweeps with one fault each.

    python -m benchmarks.faults [--quick] [--json] [--only SECTION ...] [--faults FAULT ...] [--repeats N]

Sections: `schedules` replays 10 000 random schedules of faults through the driver and the ledger, without Ray, and
plants three flaws that must be found. `sweeps` causes each fault in a real sweep on Ray.
"""

from __future__ import annotations

import sys

from benchmarks.faults import schedules, sweeps
from benchmarks.harness import Benchmark, Section, run

BENCHMARK = Benchmark(
    name="faults",
    about=__doc__,
    packages=("torch", "ray", "optuna", "mlflow"),
    seed=17,
    jobs=2,
    quick_seconds=290.0,
    add_options=sweeps.add_options,
    sections={
        "schedules": Section(measure=schedules.measure, bars=schedules.BARS),
        "sweeps": Section(measure=sweeps.measure, bars=sweeps.BARS),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
