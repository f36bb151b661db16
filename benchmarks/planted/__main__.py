"""Plant every fault of the catalogue and show which were caught."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.planted.catalogue import FAULTS
from benchmarks.planted.fault import Fault
from benchmarks.planted.runner import Outcome, clean_failures, copied_tree, plant

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the faults, print a table, and return 1 when one was not caught."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults to plant; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"--only takes names of the catalogue, got {', '.join(sorted(unknown))}")
    faults = [fault for fault in FAULTS if options.only is None or fault.name in options.only]
    begin = time.monotonic()
    outcomes = run(faults)
    seconds = time.monotonic() - begin
    falls_short = [outcome.fault.name for outcome in outcomes if not outcome.caught]
    print(f"{len(outcomes) - len(falls_short)} of {len(outcomes)} faults caught in {seconds:.0f} s")
    for name in falls_short:
        print(f"falls short: {name}")
    if options.json:
        rows = [
            {
                "name": each.fault.name,
                "breaks": each.fault.breaks,
                "file": each.fault.file,
                "test": each.fault.test,
                "caught": each.caught,
                "found": each.found,
                "seconds": round(each.seconds, 1),
            }
            for each in outcomes
        ]
        print(json.dumps({"faults": rows, "seconds": round(seconds, 1), "falls_short": falls_short}))
    return 1 if falls_short else 0


def run(faults: Sequence[Fault]) -> list[Outcome]:
    """Plant the faults one after the other, and print a line for each."""
    outcomes = []
    with copied_tree(_ROOT) as copy:
        print(f"running {len({fault.test for fault in faults})} tests without a fault ...", flush=True)
        unusable = clean_failures(faults, copy)
        for fault in faults:
            if fault.test in unusable:
                why = f"without the fault: {unusable[fault.test]}"
                outcome = Outcome(fault=fault, caught=False, found=why, seconds=0.0)
            else:
                outcome = plant(fault, copy)
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
    return outcomes


def _row(outcome: Outcome) -> str:
    answer = "caught" if outcome.caught else "MISSED"
    found = "" if outcome.caught else f"  ({outcome.found})"
    return f"{answer}  {outcome.fault.name:<44} {outcome.seconds:5.1f} s  {outcome.fault.test}{found}"


if __name__ == "__main__":
    sys.exit(main())
