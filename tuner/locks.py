"""Locks between processes, which the kernel releases when a process ends."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

__all__ = ["file_lock", "is_locked", "lock_open_file", "take_lock"]

_LOOKING_TAKES = 1.0
"""Seconds that a process waits for a lock: enough for others to look at it, too short to wait for a holder."""


def file_lock(path: Path) -> FileLock:
    """Return the lock of a lock file, not yet taken. `with` waits for it, and releases it at the end.

    The file stays when the lock is released: removing it would let two waiting processes hold two locks.
    """
    # Without flock, filelock would fall back to a file whose existence is the lock, which outlives a killed process.
    return FileLock(path, thread_local=False, fallback_to_soft=False, poll_interval=0.005)


def take_lock(path: Path) -> FileLock | None:
    """Take a lock, or return None when another process holds it."""
    lock = file_lock(path)
    try:
        lock.acquire(timeout=_LOOKING_TAKES)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock now. A process that takes it at this moment still gets it."""
    if not path.exists():
        return False
    lock = file_lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    lock.release()
    return False


def lock_open_file(descriptor: int) -> bool:
    """Lock an open file until its descriptor is closed; False when another process holds it."""
    return lock_descriptor(descriptor, blocking=False)
