"""Check that this machine can run the trials, before a search is charged. `cluster_check` asks those of a cluster."""

from __future__ import annotations

import importlib
import os
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from tuner.experiment.places import Places
    from tuner.experiment.sections import ResourcesSection

__all__ = ["CODE", "check_own_machine", "missing_gpus"]

CODE = ("tuner", "trainables", "search_spaces")


def check_own_machine(resources: ResourcesSection, places: Places, *, local: bool) -> str:
    """Return a sentence if fewer trials run at a time than the file asks for, or an empty string.

    Args:
        resources: what a trial needs, and how many may run at a time.
        places: locations of these keys in the experiment file.
        local: whether the trials run in this process, one after the other.

    Raises:
        InputError: one trial needs more than this machine has, or the current folder has another copy of our code.
    """
    if not local:
        _require_same_code(Path.cwd())
    cores, gpus = len(os.sched_getaffinity(0)), _gpus() if resources.gpus_per_trial else 0
    for name, what, needed, has in (
        ("cpus_per_trial", "CPU core", resources.cpus_per_trial, cores),
        ("gpus_per_trial", "GPU", resources.gpus_per_trial, gpus),
    ):
        if needed > has and not (local and name == "cpus_per_trial"):
            raise InputError(
                "resources-too-large",
                f"{places.of(f'resources.{name}')}: {_needs(needed, what, has)}. Lower the value, or name a cluster "
                "with --address.",
            )
    asked = resources.concurrent_trials
    if local:
        return "" if asked == 1 else f"with --local, one trial runs at a time, not {asked}"
    at_once = int(cores / resources.cpus_per_trial)
    if resources.gpus_per_trial:
        at_once = min(at_once, int(gpus / resources.gpus_per_trial))
    if at_once >= asked:
        return ""
    return f"trials run {at_once} at a time, not {asked}, because this machine has {cores} CPU cores" + (
        f" and {gpus} GPUs" if resources.gpus_per_trial else ""
    )


def _require_same_code(folder: Path) -> None:
    """Raise an InputError if `folder`, the current one, has another copy of our code.

    Ray puts the current folder first into the path of its workers. They would train with that copy, which nothing here
    has checked.
    """
    for name in CODE:
        other = next((each for each in (folder / name / "__init__.py", folder / f"{name}.py") if isfile(each)), None)
        if other is not None and not other.samefile(str(importlib.import_module(name).__file__)):
            raise InputError(
                "code-hidden",
                f"{other} would hide the installed {name} from Ray's workers. Start the search in another folder.",
            )


def missing_gpus(resources: ResourcesSection, places: Places) -> str:
    """Return a sentence if a trial needs GPUs that this machine does not have, or an empty string.

    A plan is made anywhere, so this is no error of it.
    """
    needed = resources.gpus_per_trial
    if not needed or needed <= (has := _gpus()):
        return ""
    return (
        f"{places.of('resources.gpus_per_trial')}: {_needs(needed, 'GPU', has)}. So no time was measured. "
        "For `tune run`, use a machine with a GPU, or a cluster (--address)"
    )


def _needs(needed: float, what: str, has: int) -> str:
    usable = " that torch can use" if what == "GPU" else ""
    return (
        f"one trial needs {needed:g} {what}{'s' if needed > 1 else ''}, but this machine has {has or 'no'} "
        f"{what}{'' if has == 1 else 's'}{usable}"
    )


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
