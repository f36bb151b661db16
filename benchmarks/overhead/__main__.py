"""What everything around the trials costs, in CPU time of commands and in wall time of sweeps of trivial trials.

    python -m benchmarks.overhead [--quick] [--json] [--only SECTION ...] [--trials N] [--rounds N]

Sections, in this order: `commands` runs the commands that people wait for, on the shipped files and on a small sweep;
`ray` runs a sweep on two slots, in turn with Ray's class API with reused actors; `local` runs a sweep with `--local`,
in turn with a loop of Optuna that logs to MLflow. Both sweeps have ledger, MLflow and search on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from benchmarks.harness import Benchmark, Section, Settings, run
from benchmarks.overhead import commands, sweeps


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=0, help="trials of each sweep; 200, or 30 with --quick")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved repetitions; 3, or 1 with --quick")


def _problems(settings: Settings) -> Iterator[str]:
    for name in ("trials", "rounds"):
        if getattr(settings.own, name) < 0:
            yield f"--{name} must be at least 1, or 0 for the default"


BENCHMARK = Benchmark(
    name="overhead",
    about=__doc__,
    packages=("torch", "ray", "optuna", "mlflow"),
    quick_seconds=290.0,
    add_options=_add_options,
    problems=_problems,
    sections={
        "commands": Section(measure=commands.measure, bars=commands.BARS, datasets=commands.datasets),
        "ray": Section(measure=sweeps.measure_ray, bars=sweeps.RAY_BARS),
        "local": Section(measure=sweeps.measure_local, bars=sweeps.LOCAL_BARS),
    },
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
