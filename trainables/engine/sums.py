"""Sums over samples with bounded rounding errors: in float64, or in blocks of float32 with a proven bound.

The noise must cover the effect of one record on the COMPUTED sum. In plain float32, this effect can be many times C. If
the sum is large, small terms are lost by rounding, and one record can decide whether the terms of other records are
lost (Casacuberta et al. 2022). In float64, the additional effect is below 1e-6 C for a million records.

float64 takes twice the time, so small batches are summed in float32, in blocks of m samples. The sums of the
blocks are added one after the other. Their rounding error is bounded as follows. Let u = 2⁻²⁴, and let every term of
the sum be at most C long. A term takes part in at most m - 1 additions within its block, and then in at most ⌈B/m⌉
additions of blocks. Three more operations round its clip factor and multiply by it. Five more are counted for the
weight decay, which is added separately. The error of each operation is at most u times its result. So the error of a
sum over B samples is at most u·(m + B/m + 8)·B·C (Higham 2002, section 4.2). The sums of two neighbouring batches
differ by at most C + u·(m + B/m + 8)·(2B + 1)·C. m is chosen so that this difference is below (1 + slack)·C, and the
noise is increased by the factor 1 + slack. Each of the two sums errs by at most slack/2·C, so one of them may also be
summed in float64, for example because its batch is taken in several parts (`trainables.engine.batches`). The bound
requires ONE term per sample. Several terms of a sample may be longer than their sum, so they are added in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final

import torch
from torch import Tensor

__all__ = [
    "LARGE",
    "SMALL",
    "Blocks",
    "add_looked_up",
    "add_weighted_outer",
    "add_weighted_rows",
    "blocks_for",
    "in_cache",
    "not_negative",
    "row_squares",
]

_LEAST_ROWS: Final = 64
_LARGE_DIMENSION: Final = 2**16
_CACHED_ENTRIES: Final = 2**18  # numbers that fit in a CPU's cache
_GPU_ENTRIES: Final = 2**27
_UNIT: Final = 2.0**-24
_NORM_BLOCK: Final = 64
_NORM_MARGIN: Final = 1.0 + 2.0**-17
_LOST_SQUARE: Final = 2.0**-126


@dataclass(frozen=True)
class Blocks:
    """Settings of a sum in blocks of float32.

    `slack` is the fraction of C that rounding may add to the sensitivity. Up to the expected batch size
    `largest_batch`, blocks are faster than float64.
    """

    slack: float
    largest_batch: int

    def rows(self, batch_size: int, *, stretch: float = 1.0) -> int | None:
        """Return m, the number of samples in a block, for a drawn batch of B samples; None if float64 must be used.

        `stretch` is a bound of the length of each term of the sum, in units of C. It is at least 1 and independent of
        the records. Neighbouring batches may get different m, because the bound holds for any m returned here.
        """
        if not 1.0 <= stretch < inf:
            return None
        most = self.slack / (_UNIT * (2 * batch_size + 1) * stretch) - 8
        rows = int(min(most - batch_size / _LEAST_ROWS, batch_size + 1))
        return rows if rows >= min(_LEAST_ROWS, batch_size + 1) else None


LARGE: Final = Blocks(slack=2.0**-7, largest_batch=800)
"""Settings for large models: long blocks, because adding a block takes a pass over all parameters."""

SMALL: Final = Blocks(slack=2.0**-8, largest_batch=400)
"""Settings for small models: short blocks, which cost little time and halve the slack."""


def blocks_for(dtype: torch.dtype, *, dimension: int, expected_batch_size: float) -> Blocks | None:
    """Return the block settings for a model with d = `dimension` parameters of `dtype`; None to sum in float64.

    The noise depends on the result. So the result must depend on public values only: `dtype`, d and the EXPECTED batch
    size.
    """
    blocks = LARGE if dimension >= _LARGE_DIMENSION else SMALL
    return blocks if dtype == torch.float32 and expected_batch_size <= blocks.largest_batch else None


def in_cache(rows: int, width: int, device: torch.device) -> Iterator[slice]:
    """Cut `rows` rows of `width` numbers into slices. On a CPU, a slice fits the cache. On a GPU, a slice is larger."""
    at_once = max(1, (_CACHED_ENTRIES if device.type == "cpu" else _GPU_ENTRIES) // max(1, width))
    return (slice(start, min(start + at_once, rows)) for start in range(0, rows, at_once))


def add_weighted_rows(total: Tensor, weights: Tensor, rows: Tensor, *, block: int | None) -> None:
    """Add Σ_i weights_i · rows_i to `total`, shape (p,). `weights` has the shape (B,), and `rows` the shape (B, p).

    `block` is the number of samples in a float32 block, and None uses float64. If `block` is set, each row must be the
    ONLY term of its sample.
    """
    if block is None or rows.dtype == torch.float64:
        exact = _exact(total)
        for part in in_cache(len(rows), rows.shape[1], rows.device):
            exact.addmv_(rows[part].double().mT, weights[part])
        _put(exact, total)
        return
    weights = weights.to(rows.dtype)
    for start in range(0, len(rows), block):
        total += weights[start : start + block] @ rows[start : start + block]


def add_weighted_outer(total: Tensor, weights: Tensor, left: Tensor, right: Tensor, *, block: int | None) -> None:
    """Add Σ_i weights_i Σ_p left_ip right_ipᵀ to `total`, shape (a, b).

    `left` has the shape (B, P, a), and `right` the shape (B, P, b). `block` is the number of samples in a float32
    block. float64 is used if `block` is None, or if there is more than one position p.
    """
    if block is None or left.shape[1] != 1 or left.dtype == torch.float64:
        exact = _exact(total)
        for part in in_cache(len(left), left.shape[1] * max(left.shape[2], right.shape[2]), left.device):
            scaled = weights[part, None, None] * left[part]
            exact.addmm_(scaled.flatten(0, 1).mT, right[part].flatten(0, 1).double())
        _put(exact, total)
        return
    scaled, rows = weights.to(left.dtype)[:, None] * left[:, 0], right[:, 0]
    # Denormal numbers become 0. Rounding may increase them by half, and a factor of up to 10³⁸ would make this large.
    scaled = torch.nn.functional.hardshrink(scaled, torch.finfo(scaled.dtype).tiny)
    # A factor above 1 (automatic clipping) may overflow before tiny inputs make the product small again. An entry that
    # is cut off is smaller in size than the true one, so the sample's term stays within the clip.
    largest = torch.finfo(scaled.dtype).max
    scaled = scaled.clamp_(-largest, largest)
    for start in range(0, len(rows), block):
        lefts, rights = scaled[start : start + block], rows[start : start + block]
        for part in in_cache(len(total), rows.shape[1], rows.device):
            total[part] += lefts[:, part].mT @ rights


def add_looked_up(total: Tensor, weights: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add weights_i · values_ip to the row rows_ip of `total` for all samples i and positions p, in float64.

    `total` has the shape (V, width), `rows` (B, P) and `values` (B, P, width).
    """
    exact = _exact(total)
    exact.index_add_(0, rows.flatten(), (weights[:, None, None] * values).flatten(0, 1))
    _put(exact, total)


def _exact(total: Tensor) -> Tensor:
    """Return the float64 tensor to add to: `total` itself, or zeros that `_put` adds to `total` later."""
    return total if total.dtype == torch.float64 else torch.zeros_like(total, dtype=torch.float64)


def _put(exact: Tensor, total: Tensor) -> None:
    if exact is not total:
        total += exact


def row_squares(rows: Tensor) -> Tensor:
    """Return ‖row‖² of each row of shape (B, ...) as float64 of shape (B,), never smaller than the true value.

    A norm that is too small would weaken the clip. Blocks of at most 64 entries are summed in float32, with a relative
    error of at most 64·2⁻²⁴. A square that is denormal or rounds to 0 adds an error of at most 2⁻¹²⁶. Bounds of both
    errors are added to the result. The blocks are summed in float64, because float32 would lose small entries.
    """
    rows = rows.reshape(len(rows), -1)
    width = rows.shape[1]
    if rows.dtype != torch.float32 or width < 2 * _NORM_BLOCK:
        return rows.double().square().sum(1)
    whole, block = _partition(width)
    norms = torch.linalg.vector_norm(rows[:, :whole].reshape(len(rows), -1, block), dim=2)
    squares: Tensor = norms.double().square().sum(1)
    if whole < width:
        squares += rows[:, whole:].double().square().sum(1)
    return squares.mul_(_NORM_MARGIN).add_(width * _LOST_SQUARE)


def not_negative(squares: Tensor) -> Tensor:
    """Return the squares. Negative values, which come from rounding, become 0, and infinite values become NaN."""
    return torch.where(squares.isfinite(), squares.clamp(min=0.0), torch.nan)


@cache
def _partition(width: int) -> tuple[int, int]:
    """Return (number of a row's entries that fit in blocks, length of a block). If possible, all entries fit."""
    for block in range(_NORM_BLOCK, _NORM_BLOCK // 4, -1):
        if width % block == 0:
            return width, block
    return width // _NORM_BLOCK * _NORM_BLOCK, _NORM_BLOCK
