"""Generators for noise and Poisson sampling: a secret generator, and a seeded generator for tests.

The secret generator is ChaCha20 with fast key erasure (`chacha20.KeyStream`). Its first key comes from the operating
system. Every request first replaces the key, so a checkpoint reveals nothing about earlier noise.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from trainables.engine.chacha20 import KEY_BYTES, KeyStream
from trainables.engine.gaussian import BoxMuller, Words, from_words, needs_more_bits, random_words, word_count
from trainables.errors import TrainableError

__all__ = ["Generator", "SecureGenerator", "SeededGenerator"]

_MANY = 2**20
"""From this many numbers on, an accelerator computes its own random words (estimate, not measured on a GPU).

Below, the 600 short operations that this takes are slower than drawing the words on the CPU and copying them.
"""


class Generator(ABC):
    """Base class of generators. It turns the random 64-bit words of a subclass into uniform and Gaussian numbers.

    A generator is not thread-safe: two threads would share its memory, and might use the same noise.
    """

    def __init__(self) -> None:
        self._gaussians = BoxMuller()

    @abstractmethod
    def _request(self) -> Callable[[Words], None]:
        """Begin a request. Return a function that fills an array with the next random words."""

    def uniform(self, size: int) -> Tensor:
        """Return `size` random numbers in [0, 1), multiples of 2⁻⁵³, float64, on the CPU."""
        numbers = np.empty(size)
        words = numbers.view("<u8")
        self._request()(words)
        np.right_shift(words, np.uint64(11), out=words)
        np.multiply(words, 2.0**-53, out=numbers)
        return torch.from_numpy(numbers)

    def add_normal(self, total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """Return `total`, shape (d,), plus N(0, scale²) noise, as a new tensor of `dtype` on the same device.

        The sum is computed in float64 and rounded once, to `dtype`. An accelerator computes the noise from the same
        random words as a CPU. A `scale` of 0 draws as many words as any other scale.
        """
        size = total.numel()
        if total.device.type != "cpu":
            return (total + scale * _normal(self._request(), size, total.device)).to(dtype)
        noised = torch.empty_like(total, dtype=dtype)
        old, new = total.numpy(), noised.numpy()
        for part, made in self._gaussians.chunks(self._request(), size, scale):
            np.add(old[part], made, out=new[part], casting="same_kind")
        return noised

    @abstractmethod
    def rekey(self) -> None:
        """Make all later draws of a secret generator independent of earlier draws and stored states."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the stream continues bit for bit."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the stream of a stored state."""


class SecureGenerator(Generator):
    """Secret generator of private runs. Its key comes from the operating system.

    Args:
        key: 32 secret bytes from the operating system. The key of an earlier generator repeats its stream. This is
            allowed only if nobody has seen a result of that stream. With None, the operating system
            creates a new key.
    """

    def __init__(self, key: bytes | None = None) -> None:
        super().__init__()
        if key is not None and len(key) != KEY_BYTES:
            raise TrainableError("generator-key-invalid", f"The key must have {KEY_BYTES} bytes (got {len(key)}).")
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key
        self._process = os.getpid()

    def _request(self) -> Callable[[Words], None]:
        if self._process != os.getpid():  # a forked child must not repeat its parent's noise
            self.rekey()
        stream = KeyStream(self._key)
        self._key = stream.next_key
        return stream

    def rekey(self) -> None:
        """Take a new key from the operating system."""
        self._key = secrets.token_bytes(KEY_BYTES)
        self._process = os.getpid()

    def state_dict(self) -> dict[str, Any]:
        """Return the secret key of the NEXT request. The key determines later noise, but reveals no earlier noise."""
        return {"key": torch.frombuffer(bytearray(self._key), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the stream of a stored state."""
        self._key = state["key"].numpy().tobytes()
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle or copy, because two generators with one key would give two steps the same noise."""
        raise TypeError("The secret generator must not be pickled or copied: its noise would be used twice.")


class SeededGenerator(Generator):
    """Repeatable generator (Philox) for tests and studies. A run with a seeded generator is not private."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._bits = np.random.Philox(seed)

    def _request(self) -> Callable[[Words], None]:
        def fill(words: Words) -> None:
            words[:] = self._bits.random_raw(len(words))

        return fill

    def rekey(self) -> None:
        """Do nothing, because a seeded run repeats its noise on purpose."""

    def state_dict(self) -> dict[str, Any]:
        """Return the counter, the key and the buffer of Philox as integers."""
        state = self._bits.state
        words = {"counter": state["state"]["counter"], "key": state["state"]["key"], "buffer": state["buffer"]}
        integers = {name: [int(word) for word in each] for name, each in words.items()}
        return {**integers, "buffer_pos": int(state["buffer_pos"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the stream of a stored state."""
        counter, key, buffer = (np.array(state[name], dtype=np.uint64) for name in ("counter", "key", "buffer"))
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": key},
            "buffer": buffer,
            "buffer_pos": state["buffer_pos"],
            "has_uint32": 0,
            "uinteger": 0,
        }


def _normal(request: Callable[[Words], None], size: int, device: torch.device) -> Tensor:
    """Return `size` numbers of N(0, 1), float64, on an accelerator."""
    if isinstance(request, KeyStream) and size >= _MANY:
        words = request.first(word_count(size), device)
        if not needs_more_bits(words, size):
            return from_words(words, size)
    drawn, less = random_words(request, size)
    words = torch.from_numpy(drawn.view("<i8")).to(device)
    return from_words(words, size, None if less is None else torch.from_numpy(less).to(device))
