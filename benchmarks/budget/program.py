"""The program `tune`, instrumented: it counts noise draws, or measures the time at the ledger.

    python -m benchmarks.budget.program --draws FOLDER run FILE ...     counts every noise draw in FOLDER
    python -m benchmarks.budget.program --times FILE run FILE ...       writes the seconds at the ledger to FILE

The count of draws shares nothing with the counts of the ledger and the engine. Each attempt of a trial has its own
file, ``FOLDER/<trial>/<process>-<time>``. One byte is appended to the file before a draw and one after it, without a
buffer, so that kill -9 loses none. An odd number of bytes means that a draw began and may have happened.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.training import PrivateTraining


def counted_training(folder: Path, spec: Any, charge: Any) -> PrivateTraining:  # noqa: ANN401 - as MakeTraining
    """Return the product's training of a trial, and count the draws of this process in `folder` for that trial."""
    from trainables.engine import step
    from trainables.training import PrivateTraining

    trial = folder / (charge.trial_id if hasattr(charge, "trial_id") else charge.trial)
    trial.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{time.time_ns()}"
    file = os.open(trial / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    # A worker trains one trial at a time, so the attempt that began last is the one that draws.
    step.add_noise = _counted(getattr(step.add_noise, "__wrapped__", step.add_noise), file)  # type: ignore[attr-defined]
    return PrivateTraining(spec, charge)


def _counted(draw: Callable[..., Any], file: int) -> Callable[..., Any]:
    @wraps(draw)
    def counted(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the noise stage
        os.write(file, b".")
        drawn = draw(*arguments, **named)
        os.write(file, b".")
        return drawn

    return counted


def _count_draws(folder: Path) -> None:
    from tuner.executors.base import TrialSetup

    TrialSetup.training = lambda _: partial(counted_training, folder)  # type: ignore[assignment,method-assign]


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
        _count_draws(options.draws.absolute())
    if options.times is not None:
        _measure_times(options.times.absolute())
    from tuner.cli.app import cli

    cli.main(words)


if __name__ == "__main__":
    # Imported by name, so that the workers of Ray find the function.
    from benchmarks.budget import program

    program.main()
