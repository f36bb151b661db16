"""The budget of the search, put to the test: what it claims, what it survives, what it costs and what it buys.

    python -m benchmarks.budget [--quick] [--json] [--data-dir DIR] [--only SECTION ...] [--out DIR] [--jobs N]

Sections, in this order: `tables` (the printed figures of the accounting, computed again), `counter_example` (the
adaptive game that "some order fits" loses), `brute_force` (exact enumeration of 10 000 small cases and planted faults),
`speed`, `faults` (a full disk, flipped bytes and the like in the middle of a sweep), `storm` (200 times kill -9), and
`buys` (accuracy for a total ε; an hour on two cores, which goes on from --out where it was cut off).
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import budget_buys_runs, budget_checks, budget_faults, budget_speed, budget_storm
from benchmarks.budget_bars import BARS, SECTIONS
from benchmarks.budget_common import Results, Settings
from benchmarks.budget_report import as_json, as_text
from benchmarks.engine import processor
from benchmarks.engine_bars import judge

__all__ = ["main", "measure"]

MEASURES: Mapping[str, Callable[[Settings, Results], None]] = {
    "tables": budget_checks.tables,
    "counter_example": budget_checks.counter_example,
    "brute_force": budget_checks.brute_force,
    "speed": budget_speed.measure,
    "faults": budget_faults.measure,
    "storm": budget_storm.measure,
    "buys": budget_buys_runs.measure,
}
_QUICK_SECONDS = 290.0


def measure(settings: Settings, sections: Sequence[str]) -> Results:
    """The sections asked for, in the order of `SECTIONS`."""
    results = Results()
    for name in SECTIONS:
        if name in sections:
            started = time.perf_counter()
            MEASURES[name](settings, results)
            results.remarks.append(f"{name}: {time.perf_counter() - started:.0f} s")
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; exit code 1 when a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="within five minutes; says which bars it left out")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--data-dir", default=None, help="folder with the data sets")
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=list(SECTIONS), help="these sections alone")
    parser.add_argument("--out", type=Path, default=Path("runs/budget"), help="where `buys` keeps its results")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train at a time in `buys`")
    parser.add_argument("--seed", type=int, default=4, help="of the cases and of the storm")
    parser.add_argument("--ledger", default=None, help="of the storm, by URL; an SQLite file by default")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    settings = Settings(
        quick=options.quick,
        seed=options.seed,
        data_dir=options.data_dir,
        out=options.out,
        jobs=options.jobs,
        ledger=options.ledger,
        deadline=started + _QUICK_SECONDS if options.quick else float("inf"),
    )
    results = measure(settings, options.only)
    verdict = judge(results.figures, BARS)
    environment = {
        "machine": processor(),
        "versions": f"python {platform.python_version()}, torch {version('torch')}, ray {version('ray')}, "
        f"dp-accounting {version('dp-accounting')}",
        "seed": options.seed,
        "command": "python -m benchmarks.budget " + " ".join(sys.argv[1:]),
        "seconds": round(time.perf_counter() - started),
    }
    print(as_text(results, verdict, environment))
    if options.json:
        print(as_json(results, verdict, environment))
    return 1 if verdict.falls_short else 0


if __name__ == "__main__":
    sys.exit(main())
