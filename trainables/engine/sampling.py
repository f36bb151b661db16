"""Poisson sampling by index: each record enters a batch by itself, as the accountant supposes."""

from __future__ import annotations

from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["poisson_batch"]


def poisson_batch(generator: Generator, records: int, sample_rate: float) -> Tensor:
    """The indices of one batch.

    Every record is compared with a uniform of its own, so that the law holds exactly (to 2⁻⁵³) with nothing to prove
    about skips or binomial draws; at 60 000 records this is a fraction of a millisecond.

    Args:
        generator: the secret generator.
        records: records there are. Private under add/remove: it is neither shown nor used in any scale.
        sample_rate: probability q of each record, in (0, 1].

    Returns:
        Increasing int64 indices, shape (size,); the size is private too, and may be 0.
    """
    return (generator.uniform(records) < sample_rate).nonzero().squeeze(1)
