"""Poisson sampling: each record, or each user, enters a batch independently, as the accountant assumes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["poisson_batch", "user_records"]

_GAPS_BELOW = 0.2  # below this rate it is faster to draw the gaps between chosen records


def poisson_batch(generator: Generator, records: int, sample_rate: float) -> Tensor:
    """Return the indices of one batch: every record enters with probability q, independently of all others.

    At a large rate, every record is compared with its own uniform number. At a small rate, only the gaps are drawn:
    k records are skipped with probability (1 - q)^k q. A sequence of independent draws has independent gaps with this
    law, and the reverse holds too. Both ways have the law up to a few 2⁻⁵³.

    The number of records is private under add/remove, so no scale depends on it. The result is increasing int64
    indices, shape (size,). The size is private too, and may be 0.
    """
    if sample_rate >= _GAPS_BELOW:
        return (generator.uniform(records) < sample_rate).nonzero().squeeze(1)
    positions = _further(generator, -1, records, sample_rate)
    while positions[-1] < records:
        positions = torch.cat([positions, _further(generator, int(positions[-1]), records, sample_rate)])
    return positions[: int(torch.searchsorted(positions, records))]


def user_records(users: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return m records for each user of a batch; a user with fewer repeats its own first record.

    The repeated record is the user's own, so that even an output of NaN for it affects only that user.

    Args:
        users: indices of each user's records, at least one, shape (U, m), -1 if a user has fewer than m.
        batch: indices of users, shape (B,).

    Returns:
        Indices of records, a user's next to each other, and whether to ignore each; both of shape (B·m,).
    """
    rows = users.index_select(0, batch)
    missing = rows < 0
    return torch.where(missing, rows[:, :1], rows).flatten(), missing.flatten()


def _further(generator: Generator, last: int, records: int, sample_rate: float) -> Tensor:
    """Return the next records that enter after `last`, usually enough to reach the end."""
    expected = (records - 1 - last) * sample_rate
    uniforms = generator.uniform(int(expected + 5.0 * math.sqrt(expected)) + 2)
    # P(gap ≥ k) = (1 - q)^k = P(log u / log(1 - q) ≥ k) for u = 1 - uniform in (0, 1].
    # All gaps beyond the last record are equivalent, and `records` fits an int64.
    gaps = uniforms.neg_().log1p_().div_(math.log1p(-sample_rate)).clamp_(max=float(records))
    return gaps.long().add_(1).cumsum_(0).add_(last)
