"""What is told of validation records that are protected: a count to which one record, or user, adds 1 at most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from trainables import data
from trainables.errors import DatasetError
from trainables.spec import TrainingSpec

__all__ = ["protected_count", "protected_size"]

_PARTS: Final = 2**20  # of a user's share of right answers: whole numbers of them are added without rounding


def protected_count(answers: Iterable[tuple[Tensor, Tensor]], whose: Tensor | None) -> float:
    """How many answers are right; with users, the sum of each one's share of right answers. Exact.

    Formal guarantee: one record more, or with users one user more, whatever their number of records, adds 0 to 1. The
    share is what makes that so: it takes the place of a bound on the records of a user, which would have to be paid for
    by as much noise. It is rounded down to a multiple of 2⁻²⁰, so that no sum is rounded.

    Args:
        answers: (logits of shape (n, classes), labels of shape (n,)), a part of the records at a time. A record for
            which some logit is not finite is answered wrongly.
        whose: the number of each record's user, counting from 0 without a gap, shape (all n,); None without users.
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
    """The PUBLIC number of validation records, or users, which protected scores are divided by; 0 without them.

    Raises:
        DatasetError: there are such scores, and the number is 0.
    """
    if spec.score_noise is None:
        return 0
    size = data.public_validation_size(spec.dataset)
    if size < 1:
        raise DatasetError(
            f"protected scores need validation records; got a public number of {size}: raise "
            "dataset.validation.fraction"
        )
    return size
