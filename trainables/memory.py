"""Memory of the process: large tensors reuse memory that was freed in the step before."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

__all__ = ["keep_freed_memory", "return_freed_memory"]

# The names of mallopt in malloc.h of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 2**28  # of a block that is reused, in bytes: that of a part of a batch
_KEPT = 2**30  # bytes of freed memory that the process keeps


@cache
def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory; return whether it does. No number changes.

    By default it maps every tensor above 32 MiB, and at first every one above 128 KiB, from the kernel again in each
    step, which zeroes the pages. That took 40 % of the time of a step of MNIST's logistic regression.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))


def return_freed_memory() -> None:
    """Give what is freed now back to the system, after large arrays that no later step will need again."""
    with suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)
