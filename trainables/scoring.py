"""Score of protected validation records: a count to which one record, or one user, adds at most 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from trainables import data
from trainables.errors import DatasetError
from trainables.spec import TrainingSpec

__all__ = ["protected_count", "protected_size"]

_PARTS: Final = 2**20  # a user's fraction of right answers is a multiple of 1 / _PARTS, so that sums are exact


def protected_count(answers: Iterable[tuple[Tensor, Tensor]], whose: Tensor | None) -> float:
    """Return the number of right answers; with users, the sum of each user's fraction of right answers.

    Formal guarantee: one more record adds 0 to 1. With users, one more user adds 0 to 1, for any number of records.
    Fractions are rounded down to multiples of 2⁻²⁰, so that the sum is exact.

    Args:
        answers: (logits, shape (n, classes); labels, shape (n,)) for a part of the records at a time. An answer with a
            logit that is not finite is wrong.
        whose: user of each record of all parts, numbered from 0 without a gap; None without users.
    """
    right = [(logits.argmax(1) == labels) & logits.isfinite().all(1) for logits, labels in answers]
    if not right:
        return 0.0
    if whose is None:
        return float(sum(int(part.sum()) for part in right))
    records = torch.bincount(whose)
    shares = torch.bincount(whose[torch.cat(right)], minlength=len(records)) * _PARTS // records
    return int(shares.sum()) / _PARTS


def protected_size(spec: TrainingSpec) -> int:
    """Return the PUBLIC number of validation records, or users, by which protected scores are divided; else 0."""
    if spec.score_noise is None:
        return 0
    size = data.public_validation_size(spec.dataset)
    if size < 1:
        raise DatasetError(
            "split-empty",
            f"Protected scores need validation records (got {size}). Raise dataset.validation.fraction.",
        )
    return size
