"""Sums over samples with bounded rounding: in float64, or in blocks of float32 with a proven bound.

The noise must cover the change of the COMPUTED sum by one record. In plain float32 this change can be many times C:
once the sum is large, small terms are rounded away, and one record decides whether this happens to the others
(Casacuberta et al. 2022). In float64 the same effect is below 1e-6 C for a million records.

float64 costs twice the time, so small batches are summed in float32, in blocks of m samples. The blocks are added one
after the other. Let u = 2⁻²⁴ and every term of the sum be at most C long. In any order of the additions within a block,
a term passes at most m - 1 additions, three products (the factor is rounded, then two), and the additions of the ⌈B/m⌉
blocks. Each operation errs by at most a part u of its result. Five more operations are counted for the weight decay,
which is added separately. So B records err by at most u·(m + B/m + 8)·B·C (Higham 2002, section 4.2), and the sums of
two neighbouring batches differ by at most C + u·(m + B/m + 8)·(2B + 1)·C. m is chosen so that this is below
(1 + slack)·C, and the noise is larger by the factor 1 + slack. The bound needs ONE term per sample. float64 is used for
several terms per sample, which may be longer than their sum.
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
    "full_float32",
    "in_cache",
    "not_negative",
    "row_squares",
]

_LEAST_ROWS: Final = 64
_LARGE_DIMENSION: Final = 2**16
_CACHED_ENTRIES: Final = 2**18  # numbers that fit in a cache together
_GPU_ENTRIES: Final = 2**27
_UNIT: Final = 2.0**-24
_NORM_BLOCK: Final = 64
_NORM_MARGIN: Final = 1.0 + 2.0**-17
_LOST_SQUARE: Final = 2.0**-126


@dataclass(frozen=True)
class Blocks:
    """Settings of a sum in blocks of float32, which are faster than float64 up to the expected size `largest_batch`.

    `slack` is the fraction of C that rounding may add to the sensitivity.
    """

    slack: float
    largest_batch: int

    def rows(self, batch_size: int, *, stretch: float = 1.0) -> int | None:
        """Return m, the samples of a block for a drawn batch size B, or None if float64 must be used.

        `stretch` is the largest length of a term of the sum in units of C, at least 1 and independent of the records.
        Neighbouring batches may get different m, because the bound holds for each.
        """
        if not 1.0 <= stretch < inf:
            return None
        most = self.slack / (_UNIT * (2 * batch_size + 1) * stretch) - 8
        rows = int(min(most - batch_size / _LEAST_ROWS, batch_size + 1))
        return rows if rows >= min(_LEAST_ROWS, batch_size + 1) else None


LARGE: Final = Blocks(slack=2.0**-7, largest_batch=800)
"""Blocks of large models: long blocks, because each block is a pass over all parameters."""

SMALL: Final = Blocks(slack=2.0**-8, largest_batch=400)
"""Blocks of small models: short blocks, which cost little and halve the slack."""


def blocks_for(dtype: torch.dtype, *, dimension: int, expected_batch_size: float) -> Blocks | None:
    """Return the blocks for a model with d parameters of `dtype`, or None for float64.

    The result sets the noise, so it must depend on public values only: `dtype`, d and the EXPECTED batch size b.
    """
    blocks = LARGE if dimension >= _LARGE_DIMENSION else SMALL
    return blocks if dtype == torch.float32 and expected_batch_size <= blocks.largest_batch else None


def full_float32() -> None:
    """Switch off short products of float32 on a GPU (TF32), for which the rounding bounds do not hold."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def in_cache(rows: int, width: int, device: torch.device) -> Iterator[slice]:
    """Return slices of `rows` rows of `width` numbers, each small enough for a CPU's cache; larger slices on a GPU."""
    at_once = max(1, (_CACHED_ENTRIES if device.type == "cpu" else _GPU_ENTRIES) // max(1, width))
    return (slice(start, min(start + at_once, rows)) for start in range(0, rows, at_once))


def add_weighted_rows(total: Tensor, weights: Tensor, rows: Tensor, *, block: int | None) -> None:
    """Add Σ_i weights_i · rows_i to `total`, shape (p,); weights have the shape (B,) and rows (B, p).

    `block` is the samples of a float32 block, for which a row must be the ONE term of its sample; None uses float64.
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
    """Add Σ_i weights_i Σ_p left_ip right_ipᵀ to `total`, shape (a, b); left has the shape (B, P, a), right (B, P, b).

    `block` is the samples of a float32 block; None, and several positions P, use float64.
    """
    if block is None or left.shape[1] != 1 or left.dtype == torch.float64:
        exact = _exact(total)
        for part in in_cache(len(left), left.shape[1] * max(left.shape[2], right.shape[2]), left.device):
            scaled = weights[part, None, None] * left[part]
            exact.addmm_(scaled.flatten(0, 1).mT, right[part].flatten(0, 1).double())
        _put(exact, total)
        return
    scaled, rows = weights.to(left.dtype)[:, None] * left[:, 0], right[:, 0]
    # A denormal number may be rounded up by half, and is then multiplied by entries of up to 10³⁸.
    scaled = torch.nn.functional.hardshrink(scaled, torch.finfo(scaled.dtype).tiny)
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
    """Return a float64 tensor to add to: the total itself, or zeros that `_put` adds to the total."""
    return total if total.dtype == torch.float64 else torch.zeros_like(total, dtype=torch.float64)


def _put(exact: Tensor, total: Tensor) -> None:
    if exact is not total:
        total += exact


def row_squares(rows: Tensor) -> Tensor:
    """Return ‖row‖² of each row of shape (B, ...) as float64 of shape (B,), never smaller than the true value.

    A norm that is too small would weaken the clip. Blocks of 64 entries are summed in float32, with an error of at most
    64·2⁻²⁴ of the sum, and of 2⁻¹²⁶ for each square that is denormal or lost. Both bounds are added to the result. The
    blocks are summed in float64, because one float32 sum of millions of entries loses the small ones.
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
    """Return the squares, with 0 instead of negative ones (from rounding) and NaN instead of infinite ones."""
    return torch.where(squares.isfinite(), squares.clamp(min=0.0), torch.nan)


@cache
def _partition(width: int) -> tuple[int, int]:
    """Return (number of entries in blocks, length of a block). Blocks have all entries if a divisor is suitable."""
    for block in range(_NORM_BLOCK, _NORM_BLOCK // 4, -1):
        if width % block == 0:
            return width, block
    return width // _NORM_BLOCK * _NORM_BLOCK, _NORM_BLOCK
