"""Gaussian numbers from random 64-bit words by Box-Muller in float64, in chunks that fit the second-level cache.

Attacks on noise exploit the gaps between its possible values (Mironov 2012). Here, the radius has 52 random bits and
the angle has 64, and both are float64. Only the noised sum is rounded to float32, and this is post-processing. This
design makes attacks harder, but it is no proof of security, because float64 has gaps too.

A radius above 7.4, which one pair in 2⁴⁰ has, gets 52 more random bits. Without them no radius would exceed
√(2·52·ln 2) = 8.49. With a noise multiplier of 0.2, a record moves the sum by 5 standard deviations, so one step would
show the record with a probability of 2·10⁻⁴: a number beyond 8.49 proves that it is there. With them the end is
`LONGEST`, and `tuner.privacy.accountant.pld` subtracts from δ what is beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["LONGEST", "BoxMuller", "Words", "from_words", "needs_more_bits", "random_words", "word_count"]

LONGEST = math.sqrt(2 * 104 * math.log(2))
"""Largest radius of a pair of numbers, 12.0, in standard deviations."""

Words = np.ndarray[Any, np.dtype[np.uint64]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]
_CHUNK = 32_768  # Gaussian numbers in a chunk, which needs a megabyte of scratch memory

_WORD, _FRACTION = np.dtype("<u8"), np.dtype("<f8")  # lowest byte first on every machine
# The twelve lowest bits of a word are dropped. The other bits are the fraction of a float64 in [1, 2).
_DROPPED = np.uint64(12)
_ONE = np.uint64(0x3FF0_0000_0000_0000)
_FEW = 4096
"""A u of at most this many units of 2⁻⁵² gets more bits. `_gaussians` explains u."""
_REST = 2.0**-104
# The thirteen lowest bits of a word choose a sector of the circle from a table. The fraction is the angle within this
# sector, at most half a sector from the middle. There, two terms of the sine and cosine series are exact. One bit
# belongs to both numbers, but it changes the angle by only 2⁻⁶⁵ of a turn.
_SECTORS = 8192
_LOWEST = np.uint64(_SECTORS - 1)
_SECTOR = 2.0 * math.pi / _SECTORS
_MIDDLES = np.exp(1j * _SECTOR * (np.arange(_SECTORS) + 0.5))
# cos b = 1 - b²/2 + b⁴/24 - …; b⁴ is replaced by the nearest linear function of b², with an error of 1.2e-16.
_HALF = _SECTOR / 2.0
_COS_0 = 1.0 - _HALF**4 / 192.0
_COS_2 = (_HALF**2 / 24.0 - 0.5) * _SECTOR**2
# sin b = b - b³/6 + …, with an error of 1e-19.
_SIN_1, _SIN_3 = _SECTOR, -(_SECTOR**3) / 6.0


class BoxMuller:
    """Source of Gaussian numbers. Its memory is reused, because allocating takes longer than filling it."""

    def __init__(self) -> None:
        self._scratch = np.empty(0)

    def chunks(self, fill: Callable[[Words], None], size: int, scale: float = 1.0) -> Iterator[tuple[slice, Numbers]]:
        """Yield `size` independent numbers of N(0, scale²) in chunks: (slice, numbers).

        The slice is the position of the chunk among all numbers. `fill` overwrites an array with the next random words.
        The numbers are valid until the next chunk is drawn.
        """
        most = 4 * min(_CHUNK, size + 1)
        if len(self._scratch) < most:
            self._scratch = np.empty(most)
        for start in range(0, size, _CHUNK):
            count = min(_CHUNK, size - start)
            yield slice(start, start + count), _gaussians(fill, self._scratch, (count + 1) // 2, scale)[:count]


def _gaussians(fill: Callable[[Words], None], scratch: Numbers, pairs: int, scale: float) -> Numbers:
    """Return `pairs` pairs of Gaussian numbers as one array. `scratch` must have room for eight numbers per pair."""
    words = scratch[: 2 * pairs].view(_WORD)
    fractions = scratch[: 2 * pairs].view(_FRACTION)
    radius, rest = fractions[:pairs], fractions[pairs:]
    square, cosine = scratch[2 * pairs : 3 * pairs], scratch[3 * pairs : 4 * pairs]
    turn, made = scratch[4 * pairs : 8 * pairs].view(np.complex128).reshape(2, pairs)
    sector = square.view(np.int64)  # used before the square is computed
    fill(words)
    longest = _longest(words[:pairs])
    more = _more_bits(fill, longest)
    np.bitwise_and(words[pairs:], _LOWEST, out=square.view(np.uint64))
    np.take(_MIDDLES, sector, out=made, mode="clip")
    np.right_shift(words, _DROPPED, out=words)
    np.bitwise_or(words, _ONE, out=words)
    # radius = √(-2 log u) with u = 2 - fraction in (0, 1], whose logarithm is finite.
    np.subtract(2.0, radius, out=radius)
    radius[longest] -= more
    np.log(radius, out=radius)
    np.multiply(radius, -2.0, out=radius)
    np.sqrt(radius, out=radius)
    # `rest` is the angle within the sector, in [-½, ½) sectors. `square` becomes the sine of this angle, times `scale`.
    np.subtract(rest, 1.5, out=rest)
    np.multiply(rest, rest, out=square)
    np.multiply(square, _COS_2 * scale, out=cosine)
    np.add(cosine, _COS_0 * scale, out=cosine)
    np.multiply(square, _SIN_3 * scale, out=square)
    np.add(square, _SIN_1 * scale, out=square)
    np.multiply(square, rest, out=square)
    np.multiply(cosine, radius, out=turn.real)
    np.multiply(square, radius, out=turn.imag)
    np.multiply(made, turn, out=made)
    return made.view(np.float64)


def _longest(words: Words) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the places of the words that need more bits as radii."""
    return np.flatnonzero(words >= np.uint64(2**64 - (_FEW << 12)))


def _more_bits(fill: Callable[[Words], None], longest: np.ndarray[Any, np.dtype[np.intp]]) -> Numbers:
    """Return what is subtracted from u at the places `longest`: one random number below 2⁻⁵² for each."""
    more = np.empty(longest.size, _WORD)
    if longest.size:
        fill(more)
    return (more >> _DROPPED).astype(np.float64) * _REST


def word_count(size: int) -> int:
    """Return how many random words `size` Gaussian numbers need, if no radius needs more bits."""
    return size // _CHUNK * _CHUNK + (size % _CHUNK + 1) // 2 * 2


def random_words(fill: Callable[[Words], None], size: int) -> tuple[Words, Numbers | None]:
    """Return the random words for `size` Gaussian numbers, and what is subtracted from the u of each pair.

    They are drawn in the order of `BoxMuller`: radii, then angles, of one chunk after the other. The second value, of
    half as many numbers, is None if no radius needs more bits, which is nearly always so.
    """
    words = np.empty(word_count(size), _WORD)
    less: Numbers | None = None
    for start in range(0, words.size, _CHUNK):
        part = words[start : start + _CHUNK]
        fill(part)
        longest = _longest(part[: part.size // 2])
        if longest.size:
            less = np.zeros(words.size // 2) if less is None else less
            less[start // 2 + longest] = _more_bits(fill, longest)
    return words, less


def from_words(words: Tensor, size: int, less: Tensor | None = None) -> Tensor:
    """Convert the result of `random_words` to `size` Gaussian numbers in float64 on an accelerator.

    `_gaussians` does the same on a CPU. So one key gives one noise on every device, up to the rounding of logarithm,
    sine and cosine. `words` is int64.
    """
    middles = _middles(words.device)
    parts, done = [], 0
    for each in _chunks(words, size):
        pairs = each.numel() // 2
        own = 0.0 if less is None else less[done : done + pairs].view(len(each), -1)
        parts.append(_of_chunks(each, middles, own))
        done += pairs
    return torch.cat(parts)[:size] if parts else words.double()


def needs_more_bits(words: Tensor, size: int) -> bool:
    """Return whether a radius among these words, as in `from_words`, needs more bits. The host waits for the answer."""
    # As int64, the largest words are the last negative numbers.
    radii = [((each[:, 0] < 0) & (each[:, 0] >= -(_FEW << 12))).any() for each in _chunks(words, size)]
    return bool(torch.stack(radii).any())


def _chunks(words: Tensor, size: int) -> list[Tensor]:
    """Return views of the words of all whole chunks, and of the last, each of shape (chunks, 2, pairs)."""
    whole = size // _CHUNK * _CHUNK
    found = [words[:whole].view(-1, 2, _CHUNK // 2)] if whole else []
    return found + ([words[whole:].view(1, 2, -1)] if whole < size else [])


@cache
def _middles(device: torch.device) -> Tensor:
    """Return the middles of all sectors on a device, shape (_SECTORS, 2)."""
    return torch.view_as_real(torch.from_numpy(_MIDDLES)).to(device)


def _of_chunks(words: Tensor, middles: Tensor, less: Tensor | float = 0.0) -> Tensor:
    """Convert the words of chunks, shape (chunks, 2, pairs), to Gaussian numbers, shape (chunks · 2 · pairs,)."""
    fractions = ((words >> 12) & (2**52 - 1)).double() * 2.0**-52
    radius = (-2.0 * torch.log(1.0 - fractions[:, 0] - less)).sqrt()
    # The small angle keeps all its bits. As a part of a whole turn, it would lose the last thirteen.
    rest = _SECTOR * (fractions[:, 1] - 0.5)
    cosine, sine = rest.cos() * radius, rest.sin() * radius
    x, y = middles[words[:, 1] & (_SECTORS - 1)].unbind(-1)
    return torch.stack([x * cosine - y * sine, x * sine + y * cosine], -1).flatten()
