"""Time of a private step on this machine. It is measured on random inputs, because a plan must not read records."""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import torch

from trainables.charge import NoCharge
from trainables.training import PrivateTraining, TrainingSpec
from trainables.untrained import random_splits

__all__ = ["seconds_per_step"]

_BATCHES = 4


def seconds_per_step(spec: TrainingSpec, *, steps: int, at_most: float) -> list[float]:
    """Return the seconds that each of a few steps takes on random public inputs.

    The first step warms up the machine, so its time is left out. If it takes so long that no other step is taken, its
    time is returned: work that is done only once is then a small part of it.

    Args:
        spec: specification of the trial.
        steps: number of timed steps.
        at_most: time limit in seconds for all steps. After this time, no further step starts.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()  # what an earlier call left on the accelerator: the command `plan` collects nothing by itself
    splits = random_splits(spec, samples=_BATCHES * spec.batch_size)
    threads = torch.get_num_threads()
    seconds: list[float] = []
    try:
        training = PrivateTraining(replace(spec, sample_rate=1 / _BATCHES), NoCharge(), splits=splits)
        started = time.perf_counter()
        for step in range(1, min(steps + 1, spec.steps) + 1):
            before = time.perf_counter()
            training.run_to(step)
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()  # a step returns before the accelerator has finished
            seconds.append(time.perf_counter() - before)
            if time.perf_counter() - started > at_most:
                break
    finally:
        torch.set_num_threads(threads)
    return seconds[1:] or seconds
