"""Removal of a sweep's folder. What the sweep was charged stays in the ledger."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.sweep.folder import hold
from tuner.sweep.status import RESUMABLE, RUNNING, SweepState, resume_command, state_of

if TYPE_CHECKING:
    from tuner.sweep.folder import SweepFolder

__all__ = ["remove"]

_WITHOUT_RESULT = (SweepState.STARTING, SweepState.FAILED)


def remove(sweep: SweepFolder, *, yes: bool) -> str:
    """Remove a sweep that failed, or with `yes` any sweep that does not run, and say what is left.

    Raises:
        InputError: a process runs the sweep; or it can be resumed, or has a result, and `yes` is False.
    """
    state = state_of(sweep) if sweep.whole else SweepState.STARTING  # while this process does not hold it
    with hold(sweep):
        if state not in _WITHOUT_RESULT and not yes:
            now = f"is {state}" if state in (*RUNNING, *RESUMABLE) else f"has ended ({state})"
            raise InputError(
                "sweep-has-result",
                f"{sweep.id} {now}. Without its folder, the search can be neither resumed "
                f"({resume_command(sweep)}) nor exported, and its charges stay in the ledger. To remove the folder "
                "anyway, add --yes.",
            )
        # What cannot be renamed cannot be removed either. A folder that lost only its files would look never started.
        going = sweep.root.rename(sweep.root.with_name(f"{sweep.id}.removed"))
        shutil.rmtree(going)
    return f"removed {sweep.root}; the ledger keeps the charges of this search, and MLflow keeps its runs"
