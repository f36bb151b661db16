"""The program `tune`, instrumented: it counts noise draws, or measures the time at the ledger.

    python -m benchmarks.budget.program --draws FOLDER run FILE ...     counts every noise draw in FOLDER
    python -m benchmarks.budget.program --times FILE run FILE ...       writes the seconds at the ledger to FILE

`tuner.drill.counted` counts.
"""

from __future__ import annotations

import argparse
import atexit
import json
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from tuner.drill.counted import count_draws


def _measure_times(report: Path) -> None:
    """Measure every write to the ledger and the whole sweep, and write the seconds when the program ends."""
    from tuner.executors.local import LocalExecutor
    from tuner.privacy.ledger.ledger import Ledger

    seconds: dict[str, list[float]] = {"writes": [], "sweep": []}
    for name in ("open_search", "reserve", "reserve_together", "lease", "settle", "close_search", "begin_sealed"):
        setattr(Ledger, name, _timed(seconds["writes"], getattr(Ledger, name)))
    LocalExecutor.run = _timed(seconds["sweep"], LocalExecutor.run)  # type: ignore[method-assign]
    atexit.register(lambda: report.write_text(json.dumps(seconds)))


def _timed(seconds: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            seconds.append(time.perf_counter() - started)

    return timed


def main() -> None:
    """Install the measurement that an option selects, and run the program with all other words."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget.program", allow_abbrev=False)
    parser.add_argument("--draws", type=Path, metavar="FOLDER", help="count every noise draw in this folder")
    parser.add_argument("--times", type=Path, metavar="FILE", help="write the seconds at the ledger to this file")
    options, words = parser.parse_known_args()
    if options.draws is not None:
        count_draws(options.draws)
    if options.times is not None:
        _measure_times(options.times.absolute())
    from tuner.cli.app import cli

    cli.main(words)


if __name__ == "__main__":
    main()
