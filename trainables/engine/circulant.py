"""Product of a vector with the inverse of A_σ, the matrix of Laplacian smoothing. On a CPU it takes time O(d).

A_σ = I - σL is cyclic with the first row (1 + 2σ, -σ, 0, …, 0, -σ). On a GPU, the product uses an FFT. On a CPU, it
uses the smaller root ω = e^-θ of ω + 1/ω = 2 + 1/σ. The inverse of A_σ has the entry (i, j)

    (ω^|i-j| + ω^(d-|i-j|)) / ((1 - ω^d) √(4σ + 1)).

The vector is cut into blocks, and one small matrix smooths each block. The other blocks affect a block only
through two numbers, called carries. One carry enters from the left and one from the right, and both decay within the
block. For any σ and d, the result is exact up to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["laplacian_eigenvalues", "solve_into"]

_Array = np.ndarray[Any, np.dtype[np.floating[Any]]]

_BLOCK = 16  # longer blocks cost more arithmetic, shorter blocks more carries
_STRETCH = 262_144  # numbers that are smoothed together; they fit in the second-level cache
_DENSE = 128  # up to this length, one dense product is cheaper than blocks
# A term with a factor e^-x below the last digit is dropped. This is so from x = 41 for float64, and 21 for float32.
_FORGOTTEN = {np.dtype(np.float64): 41.0, np.dtype(np.float32): 21.0}
_FEW = 6  # if a carry reaches at most this many blocks, carries are added one by one
_MEAN_ONLY = 1e60  # from this σ on, every entry of A_σ⁻¹ v equals the mean of v in float64


def solve_into(target: Tensor, vector: Tensor, sigma: float) -> None:
    """Write A_σ⁻¹ v, shape (d,), into `target`.

    `vector` is v. It must be contiguous and must not share memory with `target`.
    """
    size = vector.numel()
    if sigma == 0 or size <= 1:
        target.copy_(vector)
    elif vector.device.type != "cpu":
        # It is computed at each step: stored spectra would take the GPU's memory, 10 MB for 4.9 million entries.
        spectrum = laplacian_eigenvalues(size, sigma, vector.device).to(vector.dtype)
        target.copy_(torch.fft.irfft(torch.fft.rfft(vector) / spectrum, n=size))
    elif size <= _DENSE:
        torch.mv(_dense(size, sigma, vector.dtype), vector, out=target)
    else:
        _solve_circle(target, vector, _Blocks.of(sigma, vector.dtype))


def laplacian_eigenvalues(size: int, sigma: float, device: torch.device | None = None) -> Tensor:
    """Return the eigenvalues 1 + 2σ - 2σ cos(2πk/d) of A_σ for k = 0, …, d // 2, float64."""
    frequencies = torch.arange(size // 2 + 1, dtype=torch.float64, device=device) / size
    # The sine of the half angle keeps the digits that 1 - cos loses at low frequencies.
    return 1.0 + sigma * (2.0 * torch.sin(torch.pi * frequencies)).square()


@lru_cache(maxsize=64)
def _dense(size: int, sigma: float, dtype: torch.dtype) -> Tensor:
    """Return A_σ⁻¹ as a matrix, shape (d, d)."""
    decay, height = _decay_and_height(sigma)
    index = torch.arange(size, dtype=torch.float64)
    distance = (index[:, None] - index).abs()
    kernel = torch.exp(-decay * distance) + torch.exp(-decay * (size - distance))
    return (kernel * (height / -math.expm1(-decay * size))).to(dtype)


def _decay_and_height(sigma: float) -> tuple[float, float]:
    """Return θ = -log ω and 1 / √(4σ + 1). asinh is precise even for a large σ, for which ω rounds to 1."""
    sigma = min(sigma, _MEAN_ONLY)
    return 2.0 * math.asinh(0.5 / math.sqrt(sigma)), 1.0 / math.sqrt(4.0 * sigma + 1.0)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Constants of the blocks for one σ.

    Attributes:
        decay: θ = -log ω.
        kernel: ω^|i-j| / √(4σ + 1) inside a block, shape (block, block).
        wings: factors by which a carry decays within a block: ω^(i+1) from the left and ω^(block-i) from the right,
            shape (2, block).
        fading: ω^(i+1) for i = 0, 1, …: factors by which a carry decays within a stretch. The array ends
            where rounding loses a carry, or after `_STRETCH` factors.
    """

    decay: float
    kernel: Tensor
    wings: Tensor
    fading: _Array

    @staticmethod
    @lru_cache(maxsize=64)
    def of(sigma: float, dtype: torch.dtype) -> _Blocks:
        """Return the constants for one σ. They are cached."""
        decay, height = _decay_and_height(sigma)
        index = torch.arange(_BLOCK, dtype=torch.float64)
        kernel = height * torch.exp(-decay * (index[:, None] - index).abs())
        wings = torch.exp(-decay * torch.stack([index + 1, _BLOCK - index]))
        fading = torch.exp(-decay * torch.arange(1, _STRETCH + 1, dtype=torch.float64)).to(dtype).numpy()
        reach = math.ceil(min(_FORGOTTEN[fading.dtype] / decay, _STRETCH))
        return _Blocks(decay, kernel.to(dtype), wings.to(dtype), fading[:reach].copy())


def _solve_circle(target: Tensor, vector: Tensor, blocks: _Blocks) -> None:
    """Smooth a vector whose two ends are joined. It is cut into long parts, called stretches.

    Each stretch is smoothed alone. Then the carries of the other stretches are added.
    """
    size = len(vector)
    starts = range(0, size, _STRETCH)
    for start in starts:
        _solve_stretch(target[start : start + _STRETCH], vector[start : start + _STRETCH], blocks)
    smoothed = target.numpy()
    stretches = [smoothed[start : start + _STRETCH] for start in starts]
    # The last number of a smoothed stretch is its carry to the right, the first one its carry to the left.
    lengths = [len(stretch) for stretch in stretches]
    from_left = _round_the_circle(lengths, [float(stretch[-1]) for stretch in stretches], blocks.decay)
    from_right = _round_the_circle(lengths[::-1], [float(stretch[0]) for stretch in stretches[::-1]], blocks.decay)
    for stretch, left, right in zip(stretches, from_left, from_right[::-1], strict=True):
        fading = blocks.fading[: len(stretch)]
        stretch[: len(fading)] += left * fading
        stretch[-len(fading) :] += right * fading[::-1]


def _round_the_circle(lengths: list[int], sent: list[float], decay: float) -> list[float]:
    """Return the carry that enters each stretch of the circle.

    `lengths` has the length of each stretch. `sent` has the carry that leaves each stretch.
    """
    arriving = 0.0
    for length, leaving in zip(lengths, sent, strict=True):
        arriving = math.exp(-decay * length) * arriving + leaving
    arriving /= -math.expm1(-decay * sum(lengths))  # the sum over all rounds of the circle
    received = []
    for length, leaving in zip(lengths, sent, strict=True):
        received.append(arriving)
        arriving = math.exp(-decay * length) * arriving + leaving
    return received


def _solve_stretch(target: Tensor, vector: Tensor, blocks: _Blocks) -> None:
    """Smooth each block of a stretch alone, then add the carries of the other blocks. The last block may be shorter.

    The carries are computed with numpy, which is faster for many operations on few numbers.
    """
    count, rest = divmod(vector.numel(), _BLOCK)
    if rest:
        torch.mv(blocks.kernel[:rest, :rest], vector[count * _BLOCK :], out=target[count * _BLOCK :])
    if not count:
        return
    whole = target[: count * _BLOCK].view(count, _BLOCK)
    torch.mm(vector[: count * _BLOCK].view(count, _BLOCK), blocks.kernel, out=whole)
    smoothed = whole.numpy()
    # One recursion computes both directions, as two rows. The second row has the blocks in reversed order. So the
    # shorter block is the last entry of the first row, and the first entry of the second row.
    few = blocks.decay * _BLOCK * _FEW >= _FORGOTTEN[smoothed.dtype]
    sent = np.zeros((2, count + 1), dtype=smoothed.dtype if few else np.float64)
    sent[0, :-1], sent[1, 1:] = smoothed[:, -1], smoothed[::-1, 0]
    if rest:
        sent[1, 0] = float(target[count * _BLOCK])
    received = _scan(sent, blocks.decay * _BLOCK)
    carries = np.empty((count, 2), dtype=smoothed.dtype)
    carries[:, 0], carries[:, 1] = received[0, :-2], received[1, -2:0:-1]
    whole.addmm_(torch.from_numpy(carries), blocks.wings)
    if rest:
        target[count * _BLOCK :] += float(received[0, -2]) * blocks.wings[0, :rest]


def _scan(sent: _Array, decay: float) -> _Array:
    """Return r with r_0 = 0 and r_(k+1) = e^-decay · r_k + s_k for each row s of `sent`.

    `sent` has the shape (rows, P), and the result has the shape (rows, P + 1). A long row is cut into blocks, whose
    carries are computed by a recursive call.
    """
    rows, count = sent.shape
    received = np.zeros((rows, count + 1), dtype=sent.dtype)
    forgotten = _FORGOTTEN[sent.dtype]
    if decay * _FEW >= forgotten:
        received[:, 1:] = sent
        for lag in range(1, min(count, math.ceil(forgotten / decay))):
            received[:, lag + 1 :] += math.exp(-decay * lag) * sent[:, : count - lag]
    elif count <= _DENSE:
        np.matmul(sent, _triangle(count, decay), out=received[:, 1:])
    else:
        blocks = -(-count // _BLOCK)
        padded = np.zeros((rows, blocks * _BLOCK))
        padded[:, :count] = sent
        inside = np.matmul(padded.reshape(-1, _BLOCK), _triangle(_BLOCK, decay)).reshape(rows, blocks, _BLOCK)
        carries = _scan(inside[:, :, -1], decay * _BLOCK)[:, :-1]
        inside += carries[:, :, None] * np.exp(-decay * np.arange(1, _BLOCK + 1))
        received[:, 1:] = inside.reshape(rows, -1)[:, :count]
    return received


@lru_cache(maxsize=64)
def _triangle(size: int, decay: float) -> _Array:
    """Return the matrix with the entries e^(-decay (j - i)) for j ≥ i and 0 for j < i."""
    index = np.arange(size)
    return np.triu(np.exp(-decay * np.maximum(index - index[:, None], 0)))
