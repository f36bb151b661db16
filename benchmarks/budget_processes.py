"""Which processes a process has started, as Linux tells it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "descendants", "kill", "wait_until_gone"]

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process; its start tells it from a later one of the same number.

    Attributes:
        id: of it.
        started: clock ticks after the machine's start.
        title: its command line, or what it calls itself.
    """

    id: int
    started: int
    title: str

    @property
    def runs(self) -> bool:
        """Whether it still does; one that ended and was not yet asked for its status does not."""
        fields = _fields(self.id)
        return fields is not None and int(fields[19]) == self.started and fields[0] != "Z"


def descendants(root: int) -> list[Process]:
    """All processes that `root` started, directly or not, in the order of their numbers."""
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
    """Kill -9 of each that still runs."""
    for process in processes:
        if process.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.id, signal.SIGKILL)


def wait_until_gone(processes: Iterable[Process], *, seconds: float) -> list[Process]:
    """Wait until none of them runs; those that still do when the time is up."""
    until = time.monotonic() + seconds
    left = list(processes)
    while (left := [process for process in left if process.runs]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _fields(process: int) -> list[str] | None:
    """What stands behind the name in /proc/ID/stat: state, parent, …; None when there is no such process."""
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
