"""Poisson sampling, as the accountant assumes: each record, or each user, enters a batch independently."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["poisson_batch", "user_records"]

_GAPS_BELOW = 0.2  # below this rate it is faster to draw the gaps between chosen records


def poisson_batch(generator: Generator, records: int, sample_rate: float) -> Tensor:
    """Return the indices of one batch: every record enters with probability q, independently of all others.

    q is the `sample_rate`. If q is large, a uniform number is drawn for each record. If q is small, only the gaps
    between chosen records are drawn: a gap has k records with probability (1 - q)^k q. Independent gaps with these
    probabilities are equivalent to an independent draw for each record. In both cases, the probabilities are exact
    up to a few 2⁻⁵³.

    The result is increasing int64 indices, shape (size,). The size may be 0. The size and the number of records are
    private under add/remove adjacency.
    """
    if sample_rate >= _GAPS_BELOW:
        return (generator.uniform(records) < sample_rate).nonzero().squeeze(1)
    positions = _further(generator, -1, records, sample_rate)
    while positions[-1] < records:
        positions = torch.cat([positions, _further(generator, int(positions[-1]), records, sample_rate)])
    return positions[: int(torch.searchsorted(positions, records))]


def user_records(users: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of m records for each user of a batch. A user with fewer records repeats its first record.

    The loss ignores a repeated record. If the model returns NaN for it, this affects only the user who owns the record.

    Args:
        users: indices of each user's records, shape (U, m). A user has at least one record. The index -1 fills up the
            row of a user with fewer than m records.
        batch: indices of users, shape (B,).

    Returns:
        (indices of the records, whether each record is a repetition), both of shape (B·m,). The records of a user are
        next to each other.
    """
    rows = users.index_select(0, batch)
    missing = rows < 0
    return torch.where(missing, rows[:, :1], rows).flatten(), missing.flatten()


def _further(generator: Generator, last: int, records: int, sample_rate: float) -> Tensor:
    """Return the indices of the next chosen records after `last`. The last of these is usually beyond all records."""
    expected = (records - 1 - last) * sample_rate
    uniforms = generator.uniform(int(expected + 5.0 * math.sqrt(expected)) + 2)
    # P(gap ≥ k) = (1 - q)^k = P(log u / log(1 - q) ≥ k) for u = 1 - uniform in (0, 1].
    # Larger gaps are cut to `records`. They still end beyond the last record, and the result fits an int64.
    gaps = uniforms.neg_().log1p_().div_(math.log1p(-sample_rate)).clamp_(max=float(records))
    return gaps.long().add_(1).cumsum_(0).add_(last)
