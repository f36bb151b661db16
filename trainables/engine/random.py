"""Where noise and Poisson sampling come from: a secret generator keyed by the operating system, and a seeded one.

The secret one is AES-256 in counter mode with fast key erasure (Bernstein 2017): every request first replaces the key,
so whoever reads a checkpoint learns nothing of the noise that was drawn before it.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from trainables.engine.gaussian import BoxMuller, Words, from_words

__all__ = ["Generator", "SecureGenerator", "SeededGenerator", "WordGenerator"]

_KEY_BYTES = 32
# AES in counter mode adds its key stream to a text; a text of zeros leaves the stream itself.
_ZEROS = memoryview(bytes(2**18))


class Generator(Protocol):
    """Randomness as the private step needs it."""

    def uniform(self, size: int) -> Tensor:
        """`size` numbers of [0, 1) as multiples of 2⁻⁵³, float64, on the CPU."""
        ...

    def add_normal(self, total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """`total` plus as many Gaussians of standard deviation `scale`, a new tensor of `dtype` where `total` lies."""
        ...

    def rekey(self) -> None:
        """Makes what follows independent of what was drawn or stored, where the generator is secret."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Plain values from which the stream continues bit for bit."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues a stored stream."""
        ...


class WordGenerator(ABC):
    """Uniforms and Gaussians from random 64-bit words; a subclass says where the words come from.

    Not for two threads at once: they would share the scratch memory, and with it their noise.
    """

    def __init__(self) -> None:
        self._gaussians = BoxMuller()

    @abstractmethod
    def _request(self) -> Callable[[Words], None]:
        """Begins a request: what overwrites an array with the next independent uniform words, again and again."""

    def uniform(self, size: int) -> Tensor:
        """`size` numbers of [0, 1) as multiples of 2⁻⁵³, float64, on the CPU."""
        numbers = np.empty(size)
        words = numbers.view("<u8")
        self._request()(words)
        np.right_shift(words, np.uint64(11), out=words)
        np.multiply(words, 2.0**-53, out=numbers)
        return torch.from_numpy(numbers)

    def normal(self, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """`size` standard Gaussians, computed in float64 and rounded to `dtype`, on the CPU."""
        numbers = torch.empty(size, dtype=dtype)
        target = numbers.numpy()
        for part, made in self._gaussians.chunks(self._request(), size):
            np.copyto(target[part], made, casting="same_kind")
        return numbers

    def add_normal(self, total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """`total` plus as many Gaussians of standard deviation `scale`, a new tensor of `dtype` where `total` lies.

        The sum is taken in float64 and rounded once, to `dtype`. On a CPU the noise alone never exists as
        a whole; for an accelerator the words are drawn here, and what is made of them is made there.

        Args:
            total: shape (d,).
            scale: standard deviation; 0 draws as many words as any other.
            dtype: of what is returned.
        """
        size = total.numel()
        if total.device.type != "cpu":
            words = np.empty(size + size % 2, dtype="<u8")
            self._request()(words)
            noise = from_words(torch.from_numpy(words.view("<i8")).to(total.device))[:size]
            return (total + scale * noise).to(dtype)
        noised = torch.empty_like(total, dtype=dtype)
        old, new = total.numpy(), noised.numpy()
        for part, made in self._gaussians.chunks(self._request(), size, scale):
            np.add(old[part], made, out=new[part], casting="same_kind")
        return noised


class SecureGenerator(WordGenerator):
    """The secret generator of private runs. It takes no seed: its key comes from the operating system.

    Args:
        key: 32 secret bytes that came from there before, for a stream that nobody saw and that is drawn again.
    """

    def __init__(self, key: bytes | None = None) -> None:
        super().__init__()
        if key is not None and len(key) != _KEY_BYTES:
            raise ValueError(f"a key must be {_KEY_BYTES} bytes, got {len(key)}")
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key
        self._process = os.getpid()

    def _request(self) -> Callable[[Words], None]:
        if self._process != os.getpid():  # a forked child must not repeat its parent's noise
            self.rekey()
        # A constant counter start is right here, because a key serves one request only.
        cipher = Cipher(algorithms.AES256(self._key), modes.CTR(bytes(16))).encryptor()
        self._key = cipher.update(bytes(_KEY_BYTES))

        def fill(words: Words) -> None:
            memory = words.view(np.uint8).data
            for start in range(0, len(memory), len(_ZEROS)):
                part = memory[start : start + len(_ZEROS)]
                cipher.update_into(_ZEROS[: len(part)], part)

        return fill

    def rekey(self) -> None:
        """A new key from the operating system."""
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._process = os.getpid()

    def state_dict(self) -> dict[str, Any]:
        """The key of the NEXT request. Secret: it foretells the noise to come, and nothing of the noise before."""
        return {"key": torch.frombuffer(bytearray(self._key), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues a stored stream."""
        self._key = state["key"].numpy().tobytes()
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two generators with one key would give two steps the same noise."""
        raise TypeError("the secret generator must not be pickled or copied: its noise would be used twice")


class SeededGenerator(WordGenerator):
    """A repeatable generator (Philox) for tests and studies; a run that uses it is not private."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._bits = np.random.Philox(seed)

    def _request(self) -> Callable[[Words], None]:
        def fill(words: Words) -> None:
            words[:] = self._bits.random_raw(len(words))

        return fill

    def rekey(self) -> None:
        """Nothing: a seeded run repeats its noise on purpose."""

    def state_dict(self) -> dict[str, Any]:
        """The counter and the buffer of Philox as whole numbers."""
        state = self._bits.state
        words = {name: [int(word) for word in state["state"][name]] for name in ("counter", "key")}
        return {
            **words,
            "buffer": [int(word) for word in state["buffer"]],
            "buffer_pos": int(state["buffer_pos"]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues a stored stream."""
        counter, key = (np.array(state[name], dtype=np.uint64) for name in ("counter", "key"))
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": key},
            "buffer": np.array(state["buffer"], dtype=np.uint64),
            "buffer_pos": state["buffer_pos"],
            "has_uint32": 0,
            "uinteger": 0,
        }
