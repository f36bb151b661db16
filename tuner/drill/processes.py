"""Child processes of a process, on Linux."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process; its start time distinguishes it from a later process with the same number."""

    id: int
    started: str  # clock ticks after the start of the machine
    title: str  # its command line, or its own name for itself

    @property
    def runs(self) -> bool:
        """Whether it still runs; a zombie does not."""
        fields = _fields(self.id)
        return bool(fields) and fields[19] == self.started and fields[0] != "Z"


def descendants(root: int) -> list[Process]:
    """Return all processes that `root` started, directly or not, in the order of their numbers."""
    children: dict[int, list[Process]] = {}
    for process in [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]:
        if fields := _fields(process):
            children.setdefault(int(fields[1]), []).append(Process(process, fields[19], _title(process)))
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [process.id for process in below]
    return sorted(found, key=lambda process: process.id)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL to each process that still runs."""
    for process in processes:
        if process.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.id, signal.SIGKILL)


def wait_until_gone(processes: Iterable[Process], *, seconds: float) -> list[Process]:
    """Wait until no process runs; return those that still run after `seconds`."""
    until = time.monotonic() + seconds
    left = list(processes)
    while (left := [process for process in left if process.runs]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _fields(process: int) -> list[str]:
    """Return the fields after the name in /proc/ID/stat: state, parent, …; none if there is no such process."""
    with contextlib.suppress(OSError):
        # The name is in brackets, and may itself have brackets.
        return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    return []


def _title(process: int) -> str:
    with contextlib.suppress(OSError):
        return (_PROC / str(process) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
