"""One copy of the records for all workers of a sweep on one machine.

The first worker writes its tensors into memory that has no file (`memfd_create`), and seals it, so nobody can change
it. The others find it under /proc, where only this account may look, and map it. A worker that writes to such a tensor
writes to pages of its own. The memory lives as long as any worker maps it, whichever process made it. It is never on a
disk, unlike an object of Ray's store, which Ray writes to a file when its store is full.

Where this is impossible (another system than Linux, a closed /proc), every worker loads its own copy.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from trainables.data.requests import DatasetRequest, Splits
from trainables.memory import return_freed_memory

if TYPE_CHECKING:
    import torch

    from trainables.rungs import Training

__all__ = ["SharedRecords", "shared_or_loaded"]

_PATIENCE = 120.0
"""Seconds within which the worker whose turn it is must have loaded the records. Then the others load their own."""

_PAUSE = 0.1
_ALIGNED = 4096
_LENGTH = struct.Struct("<Q")

_scope: str | None = None
"""Scope of the training that is made now. Without one, nothing is shared."""


@dataclass(frozen=True)
class SharedRecords:
    """`trainables.rungs.MakeTraining` of workers that share their records.

    Attributes:
        make_training: function of a specification and a charge, such as `PrivateTraining`.
        scope: name that is the same for all workers of one run of a sweep, and for nobody else. Workers of one scope
            must run the same code on the same files.
    """

    make_training: Any
    scope: str

    def __call__(self, spec: Any, charge: Any, **others: Any) -> Training:  # noqa: ANN401 - of `MakeTraining`
        """Return the training. It shares the records that it loads now."""
        global _scope
        before, _scope = _scope, self.scope
        try:
            training: Training = self.make_training(spec, charge, **others)
        finally:
            _scope = before
        return training


def shared_or_loaded(request: DatasetRequest, load: Callable[[], Splits]) -> Splits:
    """Return the records that another process shares, or else load and share them. Without a scope, load them."""
    if _scope is None or not hasattr(os, "memfd_create"):
        return load()
    name = f"dp-tuner-{hashlib.sha256(repr((_scope, request)).encode()).hexdigest()[:32]}"
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        found = _find(name)
        if found is not None:
            return found
        with _turn(name) as ours:
            if ours:  # what the process before shared must be looked for again
                mapped = _find(name) or _shared(name, load())
                return_freed_memory()  # of the tensors that were loaded
                return mapped
        time.sleep(_PAUSE)
    return load()


@contextmanager
def _turn(name: str) -> Iterator[bool]:
    """Yield whether it is this process's turn to load. A process that dies ends its turn."""
    ours = True  # where no turns can be taken, every process loads
    with ExitStack() as until_done:
        try:
            place = until_done.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            place.bind(f"\0{name}")
        except OSError as error:
            ours = error.errno != errno.EADDRINUSE
        yield ours


def _find(name: str) -> Splits | None:
    """Return the records in the sealed memory that another process has under this name."""
    for path in _descriptors():
        with suppress(OSError):  # it is closed, or the memory cannot be mapped
            if os.readlink(path) == f"/memfd:{name} (deleted)":
                found = _mapped(path)
                if found is not None:
                    return found
    return None


def _descriptors() -> Iterator[str]:
    """Yield the open files of all processes of this account."""
    with suppress(OSError):  # there is no /proc
        for process in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):  # it has ended, or belongs to another account
                yield from (f"/proc/{process}/fd/{number}" for number in os.listdir(f"/proc/{process}/fd"))


def _mapped(path: str) -> Splits | None:
    """Return the records in memory that is sealed and belongs to this account; None if it is another."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & _seals() == _seals()
        if not sealed or os.fstat(file).st_uid != os.geteuid():
            return None
        memory = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(file)  # the mapping keeps a descriptor of its own, by which others find the memory here
    return _splits(memory)


def _seals() -> int:
    return fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def _shared(name: str, splits: Splits) -> Splits:
    """Return the records from shared memory, or as they are where memory cannot be shared."""
    arrays = {each.name: _array(getattr(splits, each.name)) for each in fields(splits)}
    try:
        file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return splits
    try:
        _write(file, {key: array for key, array in arrays.items() if array is not None})
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _seals())
        return _mapped(f"/proc/self/fd/{file}") or splits
    except OSError:
        return splits
    finally:
        os.close(file)


def _write(file: int, arrays: dict[str, np.ndarray]) -> None:
    """Write the types, the shapes and places of arrays, and then the arrays."""
    index: dict[str, tuple[str, tuple[int, ...], int]] = {}
    end = _ALIGNED  # the index is shorter
    for key, array in arrays.items():
        index[key] = (array.dtype.str, array.shape, end)
        end += -(-array.nbytes // _ALIGNED) * _ALIGNED
    head = json.dumps(index).encode()
    os.ftruncate(file, end)
    _write_at(file, _LENGTH.pack(len(head)) + head, 0)
    for key, array in arrays.items():
        _write_at(file, array.reshape(-1).view(np.uint8).data, index[key][2])


def _write_at(file: int, content: bytes | memoryview, place: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, place)  # at most 2 GiB at a time
        rest, place = rest[written:], place + written


def _splits(memory: mmap.mmap) -> Splits:
    import torch

    (length,) = _LENGTH.unpack_from(memory)
    index = json.loads(memory[_LENGTH.size : _LENGTH.size + length])
    found: dict[str, torch.Tensor] = {}
    for key, (kind, shape, place) in index.items():
        size = int(np.prod(shape, dtype=np.int64))
        found[key] = torch.from_numpy(np.frombuffer(memory, kind, size, place).reshape(shape))
    return Splits(**found)


def _array(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else np.ascontiguousarray(tensor.numpy())
