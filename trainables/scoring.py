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
    """Return the number of right answers. With users, return the sum of the users' fractions of right answers.

    Formal guarantee: one more record adds between 0 and 1 to the result. With users, the same holds for one more user,
    whatever the number of records of that user. Each fraction is rounded down to a multiple of 2⁻²⁰, so that the sum is
    exact.

    Args:
        answers: a pair for each part of the records, in order: logits, shape (n, classes), and labels, shape (n,). An
            answer is wrong if one of its logits is not finite.
        whose: user number of each record, for the records of all parts. The numbers are 0, 1, … without gaps. None if
            there are no users.
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
    """Return the PUBLIC number by which protected scores are divided; 0 if scores are not protected."""
    if spec.score_noise is None:
        return 0
    size = data.public_validation_size(spec.dataset)
    if size < 1:
        raise DatasetError(
            "split-empty",
            f"Protected scores need validation records (got {size}). Raise dataset.validation.fraction.",
        )
    return size
