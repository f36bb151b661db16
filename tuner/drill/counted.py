"""Count of the noise draws of a sweep, which shares nothing with the counts of the ledger and of the engine.

Each attempt of a trial has its own file, ``FOLDER/<trial>/<process>-<time>``. One byte is appended to the file before a
draw and one after it, without a buffer, so that kill -9 loses none. An odd number of bytes means that a draw began and
may have happened.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.training import PrivateTraining

__all__ = ["ORDER", "count_draws", "counted_training"]

ORDER = "end-a-worker"
"""Name of a file next to the folder of the draws. The worker that finds it removes it, and ends as by kill -9.

So a worker on another machine can be killed.
"""


def count_draws(folder: Path, *, pace: float = 0.0) -> None:
    """Let every training that this process or its workers start count its draws in a folder.

    `pace` is a pause in seconds before each draw, so that a small sweep lasts long enough to be disturbed.
    """
    from trainables import rungs

    rungs.private_training = partial(counted_training, folder.absolute(), pace=pace)


def counted_training(folder: Path, spec: Any, charge: Any, *, pace: float = 0.0) -> PrivateTraining:  # noqa: ANN401 - as MakeTraining
    """Return the product's training of a trial, and count the draws of this process in `folder` for that trial."""
    from trainables.engine import step
    from trainables.training import PrivateTraining

    inner = vars(charge).get("_charge", charge)  # a `TrainingLoop` wraps the charge
    trial = folder / str(vars(inner).get("trial_id") or inner.trial)
    trial.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{time.time_ns()}"
    file = os.open(trial / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    # A worker trains one trial at a time, so the attempt that began last is the one that draws.
    now = step.add_noise  # type: ignore[attr-defined]
    draw = getattr(now, "__wrapped__", now)
    step.add_noise = _counted(draw, file, folder.with_name(ORDER), pace)  # type: ignore[attr-defined]
    return PrivateTraining(spec, charge)


def _counted(draw: Callable[..., Any], file: int, order: Path, pace: float) -> Callable[..., Any]:
    @wraps(draw)
    def counted(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the noise stage
        time.sleep(pace)
        with contextlib.suppress(FileNotFoundError):
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(file, b".")
        drawn = draw(*arguments, **named)
        os.write(file, b".")
        return drawn

    return counted
