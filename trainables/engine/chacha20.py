"""The key stream of ChaCha20 (Bernstein 2008; RFC 8439 §2.3), on a CPU by OpenSSL, on an accelerator by torch.

A block of 64 bytes depends on the key and on its number alone, so all blocks are computed at once. Both ways give the
same words, and an accelerator needs no copy of them from the CPU.
"""

from __future__ import annotations

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from torch import Tensor

from trainables.engine.gaussian import Words

__all__ = ["KEY_BYTES", "KeyStream"]

KEY_BYTES = 32
_BLOCK_BYTES = 64
_CONSTANTS = b"expand 32-byte k"
_ZEROS = memoryview(bytes(2**18))  # encrypted zeros are the key stream
_BLOCKS_AT_ONCE = 2**21  # need about 600 MB of an accelerator's memory


class KeyStream:
    """Random words of one request, with fast key erasure (Bernstein 2017).

    The first half of block 0 is the key of the next request. Every key is used for one request only, so the nonce is 0.
    A request has fewer than 2³¹ blocks.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
        self.next_key = self._cipher.update(bytes(_BLOCK_BYTES))[:KEY_BYTES]

    def __call__(self, words: Words) -> None:
        """Overwrite an array with the next words."""
        memory = words.view(np.uint8).data
        for start in range(0, len(memory), len(_ZEROS)):
            part = memory[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)

    def first(self, count: int, device: torch.device) -> Tensor:
        """Return the first `count` words, int64, shape (count,), computed on `device`."""
        end = 2 + count * 8 // _BLOCK_BYTES  # the number of the last block, plus one
        starts = range(1, end, _BLOCKS_AT_ONCE)
        parts = [_blocks(self._key, at, min(_BLOCKS_AT_ONCE, end - at), device) for at in starts]
        return torch.cat(parts)[:count]


def _blocks(key: bytes, first: int, count: int, device: torch.device) -> Tensor:
    """Return the blocks with the numbers from `first` on, int64, shape (8 · count,)."""
    head = torch.frombuffer(bytearray(_CONSTANTS + key + bytes(16)), dtype=torch.int32).to(device)
    start = head[:, None].repeat(1, count)
    start[12] = torch.arange(first, first + count, dtype=torch.int32, device=device)
    state = start.clone()
    a, b, c, d = state.view(4, 4, count).unbind()
    for _ in range(10):
        _quarter_rounds(a, b, c, d)  # of the columns, then of the diagonals
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    mixed = torch.cat([a, b, c, d]).add_(start)
    return mixed.T.flatten().view(torch.int64)


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> None:
    """Change four rows of int32 words in place, of which each column is a quarter round's. Sums wrap around."""
    for total, term, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        total += term
        turned ^= total
        low = (turned >> (32 - bits)) & ((1 << bits) - 1)
        turned <<= bits
        turned |= low
