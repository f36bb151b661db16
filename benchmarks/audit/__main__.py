"""What one record can do beyond what was paid for: an audit of the claim on made-up records.

    python -m benchmarks.audit [--quick] [--json] [--only SECTION ...] [--pairs N] [--runs N]

Sections, in this order: `breaks` plays known breaks, each with a control; `state` inserts hostile records and compares
all that a trial shows; `searches` compares all that whole searches show, by the commands; `canary` bounds ε from below
for every method; `forged` forges cards and ledgers; `planted` plants faults, each with the check that must find it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.audit import breaks, canary, forged, planted, searches, state
from benchmarks.harness import Benchmark, Section, Settings, run


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=0, help="hostile records for each cell of `state` and `searches`")
    parser.add_argument("--runs", type=int, default=0, help="audits of each method in `canary`")


def _problems(settings: Settings) -> Iterator[str]:
    for name in ("pairs", "runs"):
        if getattr(settings.own, name) < 0:
            yield f"--{name} must be at least 1, or 0 for the default"


BENCHMARK = Benchmark(
    name="audit",
    about=__doc__,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    seed=0,
    quick_seconds=285.0,
    add_options=_add_options,
    problems=_problems,
    sections={
        "breaks": Section(measure=breaks.measure, bars=breaks.BARS),
        "state": Section(measure=state.measure, bars=state.BARS),
        "searches": Section(measure=searches.measure, bars=searches.BARS),
        "canary": Section(measure=canary.measure, bars=canary.BARS),
        "forged": Section(measure=forged.measure, bars=forged.BARS),
        "planted": Section(measure=planted.measure, bars=planted.BARS),
    },
)


def main() -> int:
    """Run the benchmark with a home of its own, so that no ledger and no key of this account is touched."""
    with tempfile.TemporaryDirectory(prefix="audit-home-") as home:
        for name in ("DP_TUNER_LEDGER", "DP_TUNER_LEDGER_KEY", "DP_TUNER_STORAGE"):
            os.environ.pop(name, None)
        os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_DATA_HOME"] = home
        return run(BENCHMARK)


if __name__ == "__main__":
    sys.exit(main())
