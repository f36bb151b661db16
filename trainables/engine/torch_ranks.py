"""Connection of the ranks of one training by `torch.distributed`: gloo for the CPU, and for a GPU NCCL besides.

The ranks trust each other and the network between them, as the machines of a Ray cluster do: what they send is neither
encrypted nor signed. A rank listens on the address of its machine in the cluster alone, so on one machine on 127.0.0.1.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import BarrierOptions, BroadcastOptions, ProcessGroupGloo, ReduceOptions

from trainables.errors import InfrastructureError

__all__ = ["TorchRanks", "joined", "opened"]

_WITHIN: Final = timedelta(minutes=10)
"""Time within which the ranks must have met."""
_UNBOUNDED: Final = timedelta(days=365)
"""Time of a share of a step. A record may decide how long it takes, so none may decide that it took too long.

A rank whose process died is noticed at once, and `resources.hung_after` ends a trial that makes no progress.
"""


class TorchRanks:
    """Ranks that are connected by `torch.distributed`: gloo for the CPU, and for a GPU NCCL besides.

    Args:
        store: where the ranks meet (`opened`, `joined`).
        rank: number of this rank.
        size: number of ranks.
        host: address of this machine, on which this rank listens for the others.
        device: device of the tensors that are copied and added.
    """

    def __init__(self, store: Store, *, rank: int, size: int, host: str, device: torch.device) -> None:
        self.rank, self.size = rank, size
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # no stub names it
        options._devices = [ProcessGroupGloo.create_device(hostname=host)]
        options._timeout = _WITHIN
        self._words = self._tensors = _asked(lambda: ProcessGroupGloo(PrefixStore("words", store), rank, size, options))
        if device.type == "cuda":
            from torch.distributed import ProcessGroupNCCL

            nccl = ProcessGroupNCCL.Options()
            nccl._timeout = _WITHIN
            self._tensors = _asked(lambda: ProcessGroupNCCL(PrefixStore("tensors", store), rank, size, nccl))
        self._store = store  # it ends with the last reference to it

    def send(self, work: Mapping[str, Any]) -> None:
        """Send work from rank 0; see `Ranks.send`."""
        text = io.BytesIO()
        torch.save(dict(work), text)
        content = torch.frombuffer(bytearray(text.getvalue()), dtype=torch.uint8)
        self._broadcast(self._words, torch.tensor([len(content)]))
        self._broadcast(self._words, content)

    def receive(self) -> dict[str, Any]:
        """Wait for work from rank 0; see `Ranks.receive`. It is read without running any code in it."""
        length = torch.zeros(1, dtype=torch.int64)
        self._broadcast(self._words, length)
        content = torch.empty(int(length), dtype=torch.uint8)
        self._broadcast(self._words, content)
        work: dict[str, Any] = torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)
        return work

    def copy(self, tensor: Tensor) -> Tensor:
        """Copy rank 0's tensor to the others; see `Ranks.copy`."""
        sent = tensor.contiguous()  # the connection reads and writes memory, whatever the strides of the tensor say
        self._broadcast(self._tensors, sent)
        return sent

    def add(self, total: Tensor) -> Tensor:
        """Add the ranks' tensors on rank 0; see `Ranks.add`."""
        if self._tensors is not self._words:
            # NCCL waits in vain for a rank that died. gloo notices it, so the ranks meet here before they add.
            meeting = BarrierOptions()
            meeting.timeout = _UNBOUNDED
            _asked(lambda: self._words.barrier(meeting).wait())
        options = ReduceOptions()
        options.rootRank, options.timeout = 0, _UNBOUNDED
        added = total.contiguous()
        _asked(lambda: self._tensors.reduce([added], options).wait())
        return added

    def _broadcast(self, group: Any, tensor: Tensor) -> None:  # noqa: ANN401
        options = BroadcastOptions()
        options.rootRank, options.timeout = 0, _UNBOUNDED
        _asked(lambda: group.broadcast([tensor], options).wait())


def _asked(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the work returns
    """Do what needs the other ranks, and return its result. Raise InfrastructureError if one of them is gone."""
    try:
        return work()
    except RuntimeError as error:
        raise InfrastructureError(
            "rank-lost", "A worker of the trial was lost. The trial continues from its last checkpoint."
        ) from error


def opened(host: str) -> tuple[TCPStore, int]:
    """Return the store of a new training, at which its ranks meet, and its port. It listens on `host` alone."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.bind((host, 0))
    listening.listen()
    port = int(listening.getsockname()[1])
    number = listening.detach()  # the store closes it
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=_WITHIN, master_listen_fd=number)
    return store, port


def joined(host: str, port: int) -> TCPStore:
    """Return the store of rank 0, for another rank."""
    store: TCPStore = _asked(lambda: TCPStore(host, port, is_master=False, timeout=_WITHIN))
    return store
