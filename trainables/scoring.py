"""Answers of a model, and the score of protected validation records: a count to which one unit adds at most 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import nan
from typing import Final

import torch
from torch import Tensor, nn

from trainables import data
from trainables.engine.batches import RAISED
from trainables.errors import DatasetError
from trainables.spec import TrainingSpec

__all__ = ["SCORING_ROWS", "answers", "protected_count", "protected_size"]

SCORING_ROWS: Final = 2048
"""Largest number of records in a scoring pass. A pass for a protected score always has this number of rows."""

_PARTS: Final = 2**20  # a user's fraction of right answers is a multiple of 1 / _PARTS, so that sums are exact


def answers(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, classes: int, even: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (logits in float64, labels) for one part of the records after the other.

    The logits of a record are NaN if the model raises for it, or returns no logits. So no record ends the scoring, and
    the other records are scored as without it: the records of a pass that raises are halved until the record is alone.

    Args:
        model: model, on the device of the records.
        inputs: shape (n, *input_shape).
        targets: labels, shape (n,).
        classes: number of logits of a record.
        even: whether every pass is filled to SCORING_ROWS rows. In a shorter pass, a kernel may round logits
            differently. Then one more record could change the answers to other records whose two largest logits are
            almost equal.
    """
    if len(targets) == 0:
        return
    for x, y in zip(*(torch.split(each, SCORING_ROWS) for each in (inputs, targets)), strict=True):
        yield _logits(model, x, classes=classes, even=even), y


def _logits(model: nn.Module, x: Tensor, *, classes: int, even: bool) -> Tensor:
    """Return the logits of at most SCORING_ROWS records, shape (n, classes), float64."""
    count, fill = len(x), SCORING_ROWS - len(x) if even else 0
    try:
        with torch.no_grad():
            logits = model(torch.cat([x, x[:1].repeat(fill, *[1] * (x.ndim - 1))]) if fill else x)
        if isinstance(logits, Tensor) and logits.shape == (count + fill, classes):
            return logits[:count].double()
    except KeyboardInterrupt:
        raise
    except RAISED:
        pass
    if count == 1:
        return torch.full((1, classes), nan, dtype=torch.float64, device=x.device)
    halves = torch.split(x, (count + 1) // 2)
    return torch.cat([_logits(model, half, classes=classes, even=even) for half in halves])


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
