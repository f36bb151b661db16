"""Atomic writes of files, and file locks that the kernel releases when a process dies.

The lock library is imported on first use, so `tune doctor` runs without the library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tuner.errors import InputError

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = [
    "create_private",
    "file_lock",
    "is_locked",
    "lock_open_file",
    "replacing",
    "require_kept",
    "require_page_path",
    "take_lock",
    "unwritable",
    "write_json",
    "write_text",
]

_PAGE = b"<!doctype html"  # how each page begins

_COPIES = "working_dir_files"
"""Folder of Ray with its copies of the working directories of jobs."""

_PATIENCE = 1.0
"""Seconds that `take_lock` waits for a lock. Must be longer than the instant for which `is_locked` holds the lock."""


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the ``with`` block ends.

    Readers see either the complete old file or the complete new file, even after a crash. `mode` is the permission
    bits of the new file, before the umask is applied.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # the name that the user knows
        raise


def create_private(path: Path) -> None:
    """Create an empty file that only this account may read and write. An existing file stays as it is."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a text file atomically."""
    with replacing(path, mode=mode) as file:
        file.write(text.encode())


def write_json(path: Path, values: object) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(values, indent=2))


def unwritable(folder: Path) -> OSError | None:
    """Return the error that this process gets when it writes into a folder, or into the one that it is made in."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return error


def require_kept(path: Path | None) -> None:
    """Raise an InputError if Ray will delete this file or folder with its copy of a job's working directory."""
    if path is not None and _COPIES in path.resolve().parts:
        raise InputError(
            "job-copy",
            f"{path} is in Ray's copy of the working directory of a job, which Ray deletes. Write absolute paths of a "
            "folder that remains, for `storage`, `tracking.uri` and a ledger.",
        )


def require_page_path(out: Path) -> None:
    """Raise an InputError if no page can be written to this path, or if a file there is no page."""
    if out.is_dir() or not out.parent.is_dir() or unwritable(out.parent) is not None:
        raise InputError(
            "output-path-invalid",
            f"Cannot write the page to {out}: it is a folder, or its folder does not exist or cannot be written. Name "
            "a file in a folder that can be written.",
        )
    if not out.exists():
        return
    with out.open("rb") as file:
        is_page = file.read(len(_PAGE)).lower() == _PAGE
    if not is_page:
        raise InputError(
            "output-path-invalid", f"The file {out} exists, and is no page that could be replaced. Name another file."
        )


def file_lock(path: Path) -> FileLock:
    """Return the lock that belongs to a lock file. A ``with`` block waits for the lock, then holds it.

    The lock file is never removed. Otherwise two processes could hold locks on two different files of this name.
    """
    from filelock import FileLock

    # If locks are unsupported, filelock would by default use the existence of a file as the lock. Such a lock would
    # remain after its process was killed.
    return FileLock(path, thread_local=False, fallback_to_soft=False, poll_interval=0.005)


def take_lock(path: Path) -> FileLock | None:
    """Take the lock of a lock file and return the lock, or return None if another process holds it."""
    from filelock import Timeout

    lock = file_lock(path)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a lock file now.

    The check needs no write access. It holds a shared lock for an instant. Several processes can check at the same
    time, and `take_lock` waits until the checks have ended.
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
    """Lock an open file until its descriptor is closed. Return False if another process holds the lock."""
    from filelock import lock_descriptor

    return lock_descriptor(descriptor, blocking=False)
