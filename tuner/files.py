"""Files that processes share: writes that a crash cannot halve, and locks that the kernel releases at death.

The lock library is imported when a lock is used, so that `tune doctor` runs where it is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = ["file_lock", "is_locked", "lock_open_file", "replacing", "take_lock", "write_json", "write_text"]

_LOOKING_TAKES = 1.0
"""Seconds that a process waits for a lock: enough for others to look at it, too short to wait for a holder."""


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends: a reader or a crash sees the old file or the new one.

    Args:
        path: the file to replace.
        mode: permissions of the new file, before the umask.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    with replacing(path, mode=mode) as file:
        file.write(text.encode())


def write_json(path: Path, values: object) -> None:
    """Write JSON so that a crash leaves the old file or the new one."""
    write_text(path, json.dumps(values, indent=2))


def file_lock(path: Path) -> FileLock:
    """Return the lock of a lock file, not yet taken. `with` waits for it, and releases it at the end.

    The file stays when the lock is released: removing it would let two waiting processes hold two locks.
    """
    from filelock import FileLock

    # Without flock, filelock would fall back to a file whose existence is the lock, which outlives a killed process.
    return FileLock(path, thread_local=False, fallback_to_soft=False, poll_interval=0.005)


def take_lock(path: Path) -> FileLock | None:
    """Take a lock, or return None when another process holds it."""
    from filelock import Timeout

    lock = file_lock(path)
    try:
        lock.acquire(timeout=_LOOKING_TAKES)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock now.

    A shared lock on a file that is opened for reading: several processes can look at once, a reader needs no right to
    write, and a process that takes the lock at this moment still gets it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lock_open_file(descriptor: int) -> bool:
    """Lock an open file until its descriptor is closed; False when another process holds it."""
    from filelock import lock_descriptor

    return lock_descriptor(descriptor, blocking=False)
