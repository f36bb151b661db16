"""Poisson sampling by index: each record, or each user, enters a batch independently, as the accountant assumes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["poisson_batch", "user_records"]

# Below this rate the gaps between chosen records are drawn, which is faster.
_GAPS_BELOW = 0.2


def poisson_batch(generator: Generator, records: int, sample_rate: float) -> Tensor:
    """Return the indices of one batch: every record enters with probability q, independently of all others.

    At a large rate every record is compared with its own uniform. At a small rate only the gaps are drawn: the number
    of records before the next one that enters is k with probability (1 - q)^k q. A Bernoulli sequence has no memory, so
    its gaps are independent with this law, and sequences with such gaps are Bernoulli sequences. Both hold to a few
    2⁻⁵³.

    Args:
        generator: the secret generator.
        records: number of records. Private under add/remove: it is neither shown nor used in any scale.
        sample_rate: probability q of each record, in (0, 1].

    Returns:
        Increasing int64 indices, shape (size,); the size is private too, and may be 0.
    """
    if sample_rate >= _GAPS_BELOW:
        return (generator.uniform(records) < sample_rate).nonzero().squeeze(1)
    positions = _further(generator, -1, records, sample_rate)
    while positions[-1] < records:
        positions = torch.cat([positions, _further(generator, int(positions[-1]), records, sample_rate)])
    return positions[: int(torch.searchsorted(positions, records))]


def user_records(users: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return the records of some users, equally many for each; a user with fewer repeats its first record.

    It is no other user's record and no constant, so an output for it, perhaps NaN, concerns only that user.

    Args:
        users: indices of each user's records, shape (U, m); at least one, and -1 where there are no more.
        batch: indices of users, shape (B,).

    Returns:
        Indices of records, shape (B·m,), those of a user next to each other; and which to ignore, shape (B·m,).
    """
    rows = users.index_select(0, batch)
    missing = rows < 0
    return torch.where(missing, rows[:, :1], rows).flatten(), missing.flatten()


def _further(generator: Generator, last: int, records: int, sample_rate: float) -> Tensor:
    """Return the next records that enter after `last`: enough to reach the end in most cases."""
    expected = (records - 1 - last) * sample_rate
    uniforms = generator.uniform(int(expected + 5.0 * math.sqrt(expected)) + 2)
    # P(gap ≥ k) = P(u ≤ (1 - q)^k) for u = 1 - uniform in (0, 1]: then, and only then, is log u / log(1 - q) ≥ k.
    # All gaps beyond the last record are equivalent; this one fits an int64.
    gaps = uniforms.neg_().log1p_().div_(math.log1p(-sample_rate)).clamp_(max=float(records))
    return gaps.long().add_(1).cumsum_(0).add_(last)
