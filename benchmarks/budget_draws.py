"""Noise draws counted where they happen, by nothing that the ledger or the engine counts with.

    python -m benchmarks.budget_draws FOLDER run FILE ...      `tune run FILE ...`, with every draw counted in FOLDER

Each attempt of a trial has a file of its own, ``FOLDER/<trial>/<process>-<time>``. One byte is appended to it before a
draw of noise and one after it, without any buffer, so that kill -9 loses none: the kernel has them. An odd number of
bytes is a draw that was begun, and of which nobody knows whether it happened.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.training import PrivateTraining

__all__ = ["Attempt", "Draws", "counted_training", "read_draws"]


@dataclass(frozen=True)
class Attempt:
    """One process' try at one trial.

    Attributes:
        process: its id.
        started: when, in nanoseconds.
        begun: draws that it began.
        done: draws that it ended.
    """

    process: int
    started: int
    begun: int
    done: int


Draws = Mapping[str, tuple[Attempt, ...]]
"""Attempts of every trial, the first one first."""


def read_draws(folder: Path) -> dict[str, tuple[Attempt, ...]]:
    """What was counted so far; files that are being written are read as they stand."""
    found: dict[str, tuple[Attempt, ...]] = {}
    for trial in sorted(folder.iterdir()) if folder.exists() else ():
        attempts = [_attempt(path) for path in trial.iterdir()]
        found[trial.name] = tuple(sorted(attempts, key=lambda attempt: attempt.started))
    return found


def _attempt(path: Path) -> Attempt:
    process, started = map(int, path.name.split("-"))
    size = path.stat().st_size
    return Attempt(process, started, begun=(size + 1) // 2, done=size // 2)


def counted_training(folder: Path, spec: Any, charge: Any) -> PrivateTraining:  # noqa: ANN401 - as MakeTraining has it
    """A training of the product's own, in a process whose noise is counted under the trial's name.

    Args:
        folder: of the counts.
        spec: what to train.
        charge: the product's own, which knows the trial's name.
    """
    from trainables.engine import step
    from trainables.training import PrivateTraining

    here = folder / (charge.trial_id if hasattr(charge, "trial_id") else charge.trial)
    here.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{time.time_ns()}"
    file = os.open(here / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    # One trial at a time trains in a worker, so the attempt that began last is the one that draws.
    step.add_noise = _counted(getattr(step.add_noise, "__wrapped__", step.add_noise), file)  # type: ignore[attr-defined]
    return PrivateTraining(spec, charge)


def _counted(draw: Callable[..., Any], file: int) -> Callable[..., Any]:
    @wraps(draw)
    def counted(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the noise stage takes
        os.write(file, b".")
        drawn = draw(*arguments, **named)
        os.write(file, b".")
        return drawn

    return counted


def main() -> None:
    """The program itself, with a training that counts."""
    from tuner.cli.app import cli
    from tuner.executors import local
    from tuner.executors.ray import runner as ray_runner

    make_training = partial(counted_training, Path(sys.argv[1]))
    local.run = partial(local.run, make_training=make_training)
    ray_runner.run = partial(ray_runner.run, make_training=make_training)
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    # Under its importable name, so that Ray's workers find the function where they look for it.
    from benchmarks import budget_draws

    budget_draws.main()
