"""Writing files so that a crash leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing", "write_json", "write_text"]


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
