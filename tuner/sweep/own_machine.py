"""Check that this machine can run the trials, before a search is charged. `cluster_check` asks those of a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from tuner.experiment.sections import ResourcesSection

__all__ = ["check_own_machine"]


def check_own_machine(resources: ResourcesSection, *, local: bool) -> str:
    """Return a sentence if fewer trials run at a time than the file asks for, or an empty string.

    Args:
        resources: what a trial needs, and how many may run at a time.
        local: whether the trials run in this process, one after the other.

    Raises:
        InputError: one trial needs more than this machine has.
    """
    cores, gpus = len(os.sched_getaffinity(0)), _gpus() if resources.gpus_per_trial else 0
    for name, what, needed, has in (
        ("cpus_per_trial", "CPU cores", resources.cpus_per_trial, cores),
        ("gpus_per_trial", "GPUs that torch can use", resources.gpus_per_trial, gpus),
    ):
        if needed > has and not (local and name == "cpus_per_trial"):
            raise InputError(
                "resources-too-large",
                f"resources.{name}: one trial needs {needed:g} {what}, but this machine has {has}. Lower the value, or "
                "name a cluster with --address.",
            )
    asked = resources.concurrent_trials
    if local:
        return "" if asked == 1 else f"with --local one trial runs at a time, not {asked}"
    at_once = int(cores / resources.cpus_per_trial)
    if resources.gpus_per_trial:
        at_once = min(at_once, int(gpus / resources.gpus_per_trial))
    if at_once >= asked:
        return ""
    return f"{at_once} of {asked} concurrent trials run at a time, because this machine has {cores} CPU cores" + (
        f" and {gpus} GPUs" if resources.gpus_per_trial else ""
    )


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
