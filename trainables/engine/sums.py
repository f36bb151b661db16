"""Sums over samples whose rounding is accounted for: in float64, or in blocks of float32 with a proven bound.

What the noise must cover is by how much one record moves the sum as it is COMPUTED. In plain float32 that can be many
times C: once the sum is large, small terms are rounded away, and one record decides for all others whether they are
(Casacuberta et al. 2022). In float64 the same effect is below 1e-6 C for a million records.

Products of large layers cost twice as much in float64, so a small batch is summed in blocks of m samples, each block in
float32 and the blocks in float64. Let u = 2⁻²⁴ and let every clipped gradient be at most C long. Whatever the order of
the additions, each errs by at most u times the length of its result, the j-th by at most u·j·C, and each product by u.
So a block errs by at most u·C·(m²/2 + 2m), B records by u·C·B·(m/2 + 2), and two neighbouring batches differ by at most
C + u·C·(2B + 1)·(m/2 + 2). With m·B at most `_BLOCK_AREA` that is below (1 + FLOAT32_SLACK)·C, and the noise is made
larger by that factor. The bound needs that a sample is ONE term of the sum; where it is several, float64 is used.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = ["FLOAT32_SLACK", "add_weighted_outer", "add_weighted_rows", "block_rows", "row_squares", "sums_in_blocks"]

FLOAT32_SLACK: Final = 2.0**-7
"""By what part of C the rounding of a sum in blocks may add to the sensitivity."""

_BLOCK_AREA: Final = 7 * 2**14
_LEAST_ROWS: Final = 64
_LARGEST_BATCH: Final = 1024
_LEAST_DIMENSION: Final = 2**16
_CACHED_ENTRIES: Final = 2**17  # what is made wider at a time: it stays in the second-level cache
_NORM_BLOCK: Final = 64
_NORM_MARGIN: Final = 1.0 + 2.0**-17


def sums_in_blocks(dtype: torch.dtype, *, dimension: int, expected_batch_size: float) -> bool:
    """Whether blocks of float32 may be used; a public decision, since the noise depends on it.

    Args:
        dtype: of the parameters.
        dimension: d. On small models float64 costs little, and they need no more noise.
        expected_batch_size: b. Far larger batches would need blocks so small that float64 is faster.
    """
    return dtype == torch.float32 and dimension >= _LEAST_DIMENSION and expected_batch_size <= _LARGEST_BATCH


def block_rows(batch_size: int) -> int | None:
    """The m for a batch of this size, or None where float64 must be used.

    Args:
        batch_size: B as it was drawn. Two neighbouring batches may get different answers: both errors are bounded.
    """
    rows = _BLOCK_AREA // max(batch_size, 1)
    return rows if rows >= _LEAST_ROWS else None


def add_weighted_rows(total: Tensor, weights: Tensor, rows: Tensor, *, block: int | None) -> None:
    """Adds Σ_i weights_i · rows_i to `total`.

    Args:
        total: shape (p,), float64.
        weights: shape (B,), float64.
        rows: shape (B, p): ONE term a sample.
        block: samples of a float32 block, or None for float64.
    """
    if block is None or rows.dtype == torch.float64:
        at_once = max(1, _CACHED_ENTRIES // max(1, rows.shape[1]))
        for start in range(0, len(rows), at_once):
            total.addmv_(rows[start : start + at_once].double().mT, weights[start : start + at_once])
        return
    weights = _rounded(weights, rows.dtype)
    for start in range(0, len(rows), block):
        total += weights[start : start + block] @ rows[start : start + block]


def add_weighted_outer(total: Tensor, weights: Tensor, left: Tensor, right: Tensor, *, block: int | None) -> None:
    """Adds Σ_i weights_i Σ_p left_ip right_ipᵀ to `total`.

    Args:
        total: shape (a, b), float64.
        weights: shape (B,), float64.
        left: shape (B, P, a).
        right: shape (B, P, b).
        block: samples of a float32 block, or None for float64. With more than one position it is float64 in any case:
            the terms of one sample may be longer than their sum.
    """
    if block is None or left.shape[1] != 1 or left.dtype == torch.float64:
        scaled = weights[:, None, None] * left
        total.addmm_(scaled.flatten(0, 1).mT, right.flatten(0, 1).double())
        return
    scaled, rows = _rounded(weights, left.dtype)[:, None] * left[:, 0], right[:, 0]
    for start in range(0, len(rows), block):
        total += scaled[start : start + block].mT @ rows[start : start + block]


def _rounded(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """In a shorter dtype, 0 where few digits would be left: those might be rounded up by half of themselves."""
    rounded = weights.to(dtype)
    kept: Tensor = torch.where(rounded < torch.finfo(dtype).tiny, 0.0, rounded)
    return kept


def row_squares(rows: Tensor) -> Tensor:
    """‖row‖² of each row, never too small: a norm that comes out too small is a clip that lets too much through.

    One float32 accumulator over millions of entries loses the small ones. So blocks of 64 entries are taken in float32,
    which errs by at most 64·2⁻²⁴ of their squares, and is made up for; what they come to is added in float64.

    Args:
        rows: shape (B, ...).

    Returns:
        Shape (B,), float64.
    """
    rows = rows.reshape(len(rows), -1)
    if rows.dtype != torch.float32 or rows.shape[1] < 2 * _NORM_BLOCK:
        return rows.double().square().sum(1)
    whole = rows.shape[1] // _NORM_BLOCK * _NORM_BLOCK
    entries = rows[:, :whole].reshape(len(rows), -1, _NORM_BLOCK)
    squares: Tensor = torch.linalg.vector_norm(entries, dim=2).double().square().sum(1)
    if whole < rows.shape[1]:
        squares += rows[:, whole:].double().square().sum(1)
    return squares * _NORM_MARGIN
