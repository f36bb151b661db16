"""The program, with a stop-watch on its ledger.

    python -m benchmarks.budget_timed REPORT run FILE ... --local

REPORT is written as JSON when the program ends: the seconds that were spent opening the ledger and in transactions that
write to it, from asking for the lock to the end of the commit, how many there were, and the seconds of the sweep.
"""

from __future__ import annotations

import atexit
import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

__all__ = ["main"]


def _watch(seconds: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; the seconds of every call are noted."""

    @wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever is timed
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            seconds.append(time.perf_counter() - started)

    return timed


def main() -> None:
    """Watch and run."""
    from tuner.cli.app import cli
    from tuner.executors import local
    from tuner.privacy.ledger.ledger import Ledger

    writes: list[float] = []
    opened: list[float] = []
    sweep: list[float] = []
    for name in ("open_search", "reserve", "reserve_together", "lease", "settle", "close_search", "begin_sealed"):
        setattr(Ledger, name, _watch(writes, getattr(Ledger, name)))
    Ledger.open = classmethod(_watch(opened, Ledger.open.__func__))  # type: ignore[method-assign, assignment, attr-defined]
    local.run = _watch(sweep, local.run)
    report = Path(sys.argv[1]).absolute()
    found = {"writes": writes, "opened": opened, "sweep": sweep}
    atexit.register(lambda: report.write_text(json.dumps(found)))
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
