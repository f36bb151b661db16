"""State of a sweep: its names, reading it, asking the sweep to stop, and the command that resumes it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.study.types import StopReason
from tuner.sweep.folder import is_held

if TYPE_CHECKING:
    from tuner.sweep.folder import SweepFolder

__all__ = [
    "FINISHED",
    "RESUMABLE",
    "RUNNING",
    "SweepState",
    "request_stop",
    "resume_command",
    "state_of",
    "storage_option",
]


class SweepState(StrEnum):
    """States of a sweep that has not ended; one that has ended has a `StopReason` instead."""

    STARTING = "starting"
    """The ledger does not know the sweep yet. In every later state it does."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CRASHED = "crashed"
    """The status says that the sweep runs, but no process holds it. Never written, only read."""


RUNNING = (SweepState.RUNNING, SweepState.STARTING)
"""States of a sweep that a process is running."""

RESUMABLE = (SweepState.INTERRUPTED, SweepState.CRASHED, SweepState.FAILED)
"""States of a sweep that has to be resumed before it can be exported."""

FINISHED = (StopReason.DONE, StopReason.GRID, StopReason.FOUND)
"""Ends after which no trial is left to run."""


def state_of(sweep: SweepFolder) -> str:
    """Return the state in the sweep's status file, or ``crashed`` when it claims to run and no process holds it."""
    state = str(sweep.read_status().get("state", SweepState.STARTING))
    if state in RUNNING and not is_held(sweep):
        return SweepState.CRASHED
    return state


def request_stop(sweep: SweepFolder) -> str:
    """Ask a running sweep to stop, and return what will happen. The sweep sees the request at its next report."""
    state = state_of(sweep)
    if state not in RUNNING:
        return f"{sweep.id} is not running ({state}); nothing to stop"
    sweep.stop_request.touch()
    if sweep.hides_runs:
        return f"{sweep.id} stops soon and releases nothing. It stays charged. Resume with: {resume_command(sweep)}"
    return f"{sweep.id}: running trials finish, no new one starts, and the rest of the budget is kept"


def storage_option(sweep: SweepFolder) -> str:
    """Return `` --storage FOLDER`` when the sweep is not in the commands' default folder, else nothing."""
    return "" if sweep.root.parent == Path("runs").resolve() else f" --storage {sweep.root.parent}"


def resume_command(sweep: SweepFolder) -> str:
    """Return the command that resumes the sweep."""
    return f"tune resume {sweep.id}{storage_option(sweep)}"
