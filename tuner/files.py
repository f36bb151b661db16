"""Files that processes share: atomic writes, and locks that the kernel releases when a process dies.

The lock library is imported on first use, so `tune doctor` runs without it.
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

_PATIENCE = 1.0
"""Seconds that `take_lock` waits: longer than `is_locked` holds the lock, shorter than a sweep."""


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends. Readers see the old or the new file, also after a crash.

    The mode gives the permissions of the new file, before the umask.
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
    """Write a text file atomically."""
    with replacing(path, mode=mode) as file:
        file.write(text.encode())


def write_json(path: Path, values: object) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(values, indent=2))


def file_lock(path: Path) -> FileLock:
    """Return the lock of a lock file. `with` waits for the lock, takes it, and releases it at the end.

    The file is never removed: otherwise two waiting processes could lock two files.
    """
    from filelock import FileLock

    # The fallback of filelock is a file whose existence is the lock, which would outlive a killed process.
    return FileLock(path, thread_local=False, fallback_to_soft=False, poll_interval=0.005)


def take_lock(path: Path) -> FileLock | None:
    """Take a lock, or return None when another process holds it."""
    from filelock import Timeout

    lock = file_lock(path)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock now.

    This takes a shared lock for a moment, which needs no write access. Several processes can do so at once, and
    `take_lock` waits longer.
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
    """Lock an open file until its descriptor is closed, or return False if another process holds the lock."""
    from filelock import lock_descriptor

    return lock_descriptor(descriptor, blocking=False)
