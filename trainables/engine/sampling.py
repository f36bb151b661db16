"""Poisson sampling by index: each record, or each user, enters a batch by itself, as the accountant supposes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["poisson_batch", "records_of"]

# Below this rate the gaps between chosen records are drawn. They are faster above it too, by less and less.
_GAPS_BELOW = 0.2


def poisson_batch(generator: Generator, records: int, sample_rate: float) -> Tensor:
    """The indices of one batch: every record enters with probability q, independently of all others.

    At a large rate every record is compared with a uniform of its own. At a small one only the gaps are drawn: the
    number of records passed over before the next one enters is k with probability (1 - q)^k q, and a Bernoulli sequence
    has no memory, so that successive gaps are independent and of this law, and sequences with such gaps are Bernoulli
    sequences. Both hold to a few 2⁻⁵³.

    Args:
        generator: the secret generator.
        records: records there are. Private under add/remove: it is neither shown nor used in any scale.
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


def records_of(users: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """The records of some users, as many places for each: where a user has fewer, its first record stands again.

    Nobody else's record, and no constant: what a model gives for it (NaN perhaps) is then that user's own matter.

    Args:
        users: numbers of each user's records, shape (U, m); at least one, and -1 where there are no more.
        batch: numbers of users, shape (B,).

    Returns:
        Numbers of records, shape (B·m,), a user's side by side; and which of them are to be ignored, shape (B·m,).
    """
    rows = users.index_select(0, batch)
    missing = rows < 0
    return torch.where(missing, rows[:, :1], rows).flatten(), missing.flatten()


def _further(generator: Generator, last: int, records: int, sample_rate: float) -> Tensor:
    """The next records that enter after `last`: about as many as are to be expected, and the end is seldom missed."""
    expected = (records - 1 - last) * sample_rate
    uniforms = generator.uniform(int(expected + 5.0 * math.sqrt(expected)) + 2)
    # P(gap ≥ k) = P(u ≤ (1 - q)^k) for u = 1 - uniform in (0, 1]: then, and only then, is log u / log(1 - q) ≥ k.
    # A gap beyond the last record is as good as any longer one, and fits an int64.
    gaps = uniforms.neg_().log1p_().div_(math.log1p(-sample_rate)).clamp_(max=float(records))
    return gaps.long().add_(1).cumsum_(0).add_(last)
