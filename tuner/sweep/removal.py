"""Removal of a sweep's folder. What the sweep was charged stays in the ledger."""

from __future__ import annotations

import shutil
from pathlib import Path

from tuner.errors import InputError
from tuner.sweep.folder import SweepFolder, hold, is_id
from tuner.sweep.status import RESUMABLE, RUNNING, SweepState, resume_command, state_of

__all__ = ["finish_removal", "remove"]

_GOING = ".removed"


def remove(sweep: SweepFolder, *, yes: bool) -> str:
    """Remove a sweep that has nothing to lose, or with `yes` any sweep that does not run, and say what is left.

    A sweep has nothing to lose if it never started, or failed before a trial began.

    Raises:
        InputError: a process runs the sweep; or it can be resumed, or has a result, and `yes` is False.
    """
    state = state_of(sweep) if sweep.whole else SweepState.STARTING  # while this process does not hold it
    with hold(sweep):
        if not yes and sweep.started:
            sweep.require_whole()
        if not yes and _has_something(sweep, state):
            now = f"is {state}" if state in (*RUNNING, *RESUMABLE) else f"has ended ({state})"
            raise InputError(
                "sweep-has-result",
                f"{sweep.id} {now}. Without its folder, the search can be neither resumed "
                f"({resume_command(sweep)}) nor exported, and its charges stay in the ledger. To remove the folder "
                "anyway, add --yes.",
            )
        # What cannot be renamed cannot be removed either. A folder that lost only its files would look never started.
        going = sweep.root.rename(sweep.root.with_name(f"{sweep.id}{_GOING}"))
        shutil.rmtree(going)
    return _removed(sweep)


def finish_removal(storage: Path, name: str) -> str | None:
    """Remove what an interrupted `remove` left of the sweep with this id or name. Return None if there is nothing."""
    for path in sorted(storage.glob(f"*{_GOING}")):
        sweep = SweepFolder(path.resolve().with_name(path.name.removesuffix(_GOING)))
        if is_id(sweep.id) and name in (sweep.id, sweep.name):
            shutil.rmtree(path)
            return f"ended a removal that was cut off: {_removed(sweep)}"
    return None


def _removed(sweep: SweepFolder) -> str:
    return f"removed {sweep.root}; the ledger keeps the charges of this search, and MLflow keeps its runs"


def _has_something(sweep: SweepFolder, state: str) -> bool:
    if state == SweepState.FAILED:  # a sealed sweep does not tell whether it has a checkpoint
        return sweep.hides_runs or sweep.started
    return state != SweepState.STARTING
