"""Where noise and Poisson sampling come from: a secret generator keyed by the operating system, and a seeded one.

The secret one is AES-256 in counter mode with fast key erasure (Bernstein 2017): every request first replaces the key,
so whoever reads a checkpoint learns nothing of the noise that was drawn before it.
"""

from __future__ import annotations

import math
import os
import secrets
from abc import ABC, abstractmethod
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

__all__ = ["Generator", "SecureGenerator", "SeededGenerator", "WordGenerator"]

_KEY_BYTES = 32
_WORD_BYTES = 8
# Pairs of Gaussians made at a time: the float64 temporaries of one chunk stay in the second-level cache.
_CHUNK = 8192


class Generator(Protocol):
    """Randomness as the private step needs it."""

    def uniform(self, size: int) -> Tensor:
        """`size` numbers of [0, 1) as multiples of 2⁻⁵³, float64, on the CPU."""
        ...

    def normal(self, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """`size` standard Gaussians, computed in float64 and rounded to `dtype`, on the CPU."""
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
    """Uniforms and Gaussians from random 64-bit words; a subclass says where the words come from."""

    @abstractmethod
    def _words(self, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """`size` independent uniform 64-bit words."""

    def uniform(self, size: int) -> Tensor:
        """`size` numbers of [0, 1) as multiples of 2⁻⁵³, float64, on the CPU."""
        return self._fractions(size)

    def normal(self, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """`size` standard Gaussians by Box-Muller, computed in float64 and rounded to `dtype`, on the CPU."""
        numbers = torch.empty(size, dtype=dtype)
        for start in range(0, size, 2 * _CHUNK):
            part = numbers[start : start + 2 * _CHUNK]
            pairs = (len(part) + 1) // 2
            fractions = self._fractions(2 * pairs)
            # 1 - u lies in (0, 1]: the logarithm is finite.
            radius = (1.0 - fractions[:pairs]).log_().mul_(-2.0).sqrt_()
            angle = fractions[pairs:].mul_(2.0 * math.pi)
            part[:pairs] = radius * angle.cos()
            part[pairs:] = (radius * angle.sin())[: len(part) - pairs]
        return numbers

    def _fractions(self, size: int) -> Tensor:
        return torch.from_numpy((self._words(size) >> np.uint64(11)).astype(np.float64)).mul_(2.0**-53)


class SecureGenerator(WordGenerator):
    """The secret generator of private runs. It takes no seed: its key comes from the operating system."""

    def __init__(self) -> None:
        super().__init__()
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._process = os.getpid()

    def _words(self, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        if self._process != os.getpid():  # a forked child must not repeat its parent's noise
            self.rekey()
        # A constant counter start is right here, because a key serves one request only.
        cipher = Cipher(algorithms.AES256(self._key), modes.CTR(bytes(16))).encryptor()
        self._key = cipher.update(bytes(_KEY_BYTES))
        return np.frombuffer(cipher.update(bytes(_WORD_BYTES * size)), dtype="<u8")

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
        self._bits = np.random.Philox(seed)

    def _words(self, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return self._bits.random_raw(size)

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
