"""The program `tune`, instrumented: it counts noise draws, times the ledger, or runs with a clock that jumps.

    python -m benchmarks.budget.program --draws FOLDER run FILE ...     counts every noise draw in FOLDER
    python -m benchmarks.budget.program --jump FILE run FILE ...        adds the seconds in FILE to the time of day
    python -m benchmarks.budget.program --times FILE run FILE ...       writes the seconds at the ledger to FILE

Draws are counted by nothing that the ledger or the engine counts with. Each attempt of a trial has a file of its own,
``FOLDER/<trial>/<process>-<time>``. One byte is appended to it before a draw and one after it, without a buffer, so
that kill -9 loses none: the kernel has them. An odd number of bytes is a draw that began and may have happened.

A jump changes the wall clock from the moment at which its file is written; the monotonic clock is not changed.
"""

from __future__ import annotations

import argparse
import atexit
import datetime as datetimes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.harness.machine import child_environment

if TYPE_CHECKING:
    from trainables.training import PrivateTraining

_TIME = time.time


def counted_training(folder: Path, spec: Any, charge: Any) -> PrivateTraining:  # noqa: ANN401 - as MakeTraining
    """Return a training of the product, in a process whose draws are counted for its trial.

    Args:
        folder: of the counts.
        spec: what to train.
        charge: of the product; it knows the name of the trial.
    """
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


def start_program(
    folder: Path, output: str, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the program in a folder, with its draws counted in `draws` and its output appended to a file."""
    with (folder / output).open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.budget.program", "--draws", "draws", *words],
            cwd=folder,
            env=child_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def install_draws(folder: Path) -> None:
    """Count the draws of all executors."""
    from tuner.executors.base import TrialSetup

    TrialSetup.training = lambda _: partial(counted_training, folder)  # type: ignore[method-assign]


def install_jump(jump: Path) -> None:
    """Make the clock jump by the seconds in the file."""

    def shift() -> float:
        try:
            return float(jump.read_text())
        except (OSError, ValueError):  # not written yet, or only in part
            return 0.0

    class Jumping(datetimes.datetime):
        """A datetime whose `now` jumps."""

        @classmethod
        def now(cls, tz: datetimes.tzinfo | None = None) -> Self:
            return super().now(tz) + datetimes.timedelta(seconds=shift())

    import tuner.cli.app
    import tuner.privacy.ledger.ledger
    import tuner.recorder.recorder
    import tuner.runner.commands  # noqa: F401 - imported so that their names can be replaced

    time.time = lambda: _TIME() + shift()
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in ("tuner", "trainables")
        if ours and getattr(module, "datetime", None) is datetimes.datetime:
            module.datetime = Jumping  # type: ignore[attr-defined]


def install_times(report: Path) -> None:
    """Time every write to the ledger, and the sweep; write the seconds when the program ends."""
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
    """Install what the options ask for, and run the program with all other words."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    installs = {"draws": install_draws, "jump": install_jump, "times": install_times}
    for name in installs:
        parser.add_argument(f"--{name}", type=Path)
    options, words = parser.parse_known_args()
    for name, install in installs.items():
        if getattr(options, name) is not None:
            install(getattr(options, name).absolute())
    from tuner.cli.app import cli

    cli.main(words)


if __name__ == "__main__":
    # Imported by its name, so that the workers of Ray find the function.
    from benchmarks.budget import program

    program.main()
