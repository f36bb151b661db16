"""Processes that a process has started, on Linux."""

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
    """One process; its start distinguishes it from a later one with the same number."""

    id: int
    started: int  # clock ticks after the start of the machine
    title: str  # its command line, or its own name for itself

    @property
    def runs(self) -> bool:
        """Whether it still runs; a zombie does not."""
        fields = _fields(self.id)
        return fields is not None and int(fields[19]) == self.started and fields[0] != "Z"


def descendants(root: int) -> list[Process]:
    """Return all processes that `root` started, directly or not, in the order of their numbers."""
    children: dict[int, list[Process]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
            process = Process(int(entry.name), int(fields[19]), _title(int(entry.name)))
            children.setdefault(int(fields[1]), []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        next_ones = children.get(waiting.pop(), [])
        found += next_ones
        waiting += [process.id for process in next_ones]
    return sorted(found, key=lambda process: process.id)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL to each process that still runs."""
    for process in processes:
        if process.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.id, signal.SIGKILL)


def wait_until_gone(processes: Iterable[Process], *, seconds: float) -> list[Process]:
    """Wait until none of them runs; return those that still run when the time is up."""
    until = time.monotonic() + seconds
    left = list(processes)
    while (left := [process for process in left if process.runs]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _fields(process: int) -> list[str] | None:
    """Return the fields after the name in /proc/ID/stat: state, parent, …; None when there is no such process."""
    try:
        # The name, in brackets, may hold anything, brackets too.
        return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _title(process: int) -> str:
    try:
        return (_PROC / str(process) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
