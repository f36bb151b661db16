"""Answers of a model, and the score of protected validation records: a count to which one unit adds at most 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp, inf, isfinite, nan
from typing import Final

import torch
from torch import Tensor, nn

from trainables import data
from trainables.data import DatasetInfo, DatasetRequest
from trainables.engine.accelerator import full_float32
from trainables.engine.batches import RAISED
from trainables.engine.rows import EvenLinear
from trainables.errors import DatasetError, GateError
from trainables.spec import TrainingSpec
from trainables.tasks import BINARY, METRICS, REGRESSION

__all__ = [
    "SCORING_ROWS",
    "Answered",
    "answers",
    "as_logits",
    "check_task",
    "exact_scores",
    "protected_count",
    "protected_size",
    "score",
]

SCORING_ROWS: Final = 2048
"""Largest number of records in a scoring pass. A pass for a protected score always has this number of rows."""

_PARTS: Final = 2**20  # a user's fraction of right answers is a multiple of 1 / _PARTS, so that sums are exact


def answers(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, outputs: int, even: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (outputs in float64, labels) for one part of the records after the other.

    The outputs of a record are NaN if the model raises for it, or returns others. So no record ends the scoring, and
    the other records are scored as without it: the records of a pass that raises are halved until the record is alone.

    Args:
        model: model, on the device of the records.
        inputs: shape (n, *input_shape).
        targets: labels, shape (n,).
        outputs: number of outputs of a record.
        even: whether every pass is filled to SCORING_ROWS rows. In a shorter pass, a kernel may round logits
            differently. Then one more record could change the answers to other records whose two largest logits are
            almost equal.
    """
    if len(targets) == 0:
        return
    for x, y in zip(*(torch.split(each, SCORING_ROWS) for each in (inputs, targets)), strict=True):
        yield _outputs(model, x, width=outputs, even=even), y


def _outputs(model: nn.Module, x: Tensor, *, width: int, even: bool) -> Tensor:
    """Return the outputs for at most SCORING_ROWS records, shape (n, width), float64."""
    count, fill = len(x), SCORING_ROWS - len(x) if even else 0
    try:
        full_float32()
        with EvenLinear(), torch.no_grad():
            found = model(torch.cat([x, x[:1].repeat(fill, *[1] * (x.ndim - 1))]) if fill else x)
        if isinstance(found, Tensor) and found.shape == (count + fill, width):
            return found[:count].double()
    except KeyboardInterrupt:
        raise
    except RAISED:
        pass
    if count == 1:
        return torch.full((1, width), nan, dtype=torch.float64, device=x.device)
    halves = torch.split(x, (count + 1) // 2)
    return torch.cat([_outputs(model, half, width=width, even=even) for half in halves])


def as_logits(found: Iterable[tuple[Tensor, Tensor]], task: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the answers with one logit for each class: (0, f) for the one output f of a binary task."""
    for outputs, labels in found:
        yield torch.cat([torch.zeros_like(outputs), outputs], 1) if task == BINARY else outputs, labels


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a model answered to some records: all that scores are made of. Every tensor has the shape (n,).

    Attributes:
        losses: loss of each record.
        right: whether the answer is right; of no meaning for a regression, as the next two.
        labels: class of each record.
        margins: last logit minus first logit.
    """

    losses: Tensor
    right: Tensor
    labels: Tensor
    margins: Tensor

    @classmethod
    def of(cls, found: Iterable[tuple[Tensor, Tensor]], task: str) -> Answered:
        """Return the answers to the records of all parts, of which there must be at least one."""
        parts = []
        for outputs, y in as_logits(found, task):
            if task == REGRESSION:
                losses = (outputs[:, 0] - y).square()
            else:
                losses = nn.functional.cross_entropy(outputs, y, reduction="none")
            parts.append((losses, outputs.argmax(1) == y, y, outputs[:, -1] - outputs[:, 0]))
        losses, right, labels, margins = (torch.cat(each).cpu() for each in zip(*parts, strict=True))
        return cls(losses=losses, right=right, labels=labels, margins=margins)

    def __len__(self) -> int:
        return len(self.losses)

    def only(self, kept: Tensor) -> Answered:
        """Return the answers to the records at which `kept` is true."""
        return Answered(**{name: value[kept] for name, value in vars(self).items()})


def exact_scores(found: Answered, *, split: str, task: str, metric: str, finite: bool) -> dict[str, float]:
    """Return the scores of a split by name, without noise.

    Args:
        found: answers, to at least one record.
        split: 'validation' or 'test', with which the names start.
        task: task of the labels.
        metric: score that is returned as well, by the name that it has for validation records.
        finite: whether the parameters are finite. If they or the loss are not, all scores are NaN.
    """
    usual = ("loss",) if task == REGRESSION else ("accuracy", "loss")
    names = dict.fromkeys((*usual, metric.removeprefix("validation_")))
    return {f"{split}_{name}": score(found, name) if finite else nan for name in names}


def score(found: Answered, name: str) -> float:
    """Return a score by its name without the split. It is NaN if the loss of a record is not finite.

    Raises:
        ValueError: no score has this name.
    """
    loss = float(found.losses.mean())
    if not isfinite(loss):
        return nan
    match name:
        case "loss":
            return loss
        case "perplexity":
            return exp(loss) if loss < _LARGEST_LOSS else inf
        case "balanced_accuracy":
            return _balanced_accuracy(found.right, found.labels)
        case "auc":
            return _auc(found.margins, found.labels)
        case "accuracy":
            return int(found.right.sum()) / len(found)
    raise ValueError(f"No score is named {name!r}.")


def _balanced_accuracy(right: Tensor, labels: Tensor) -> float:
    """Return the mean, over the classes that occur, of the share of right answers."""
    records = torch.bincount(labels)
    occurs = records > 0
    told = torch.bincount(labels[right], minlength=len(records))
    return float((told[occurs].double() / records[occurs]).mean())


def _auc(margins: Tensor, labels: Tensor) -> float:
    """Return the probability that a record of class 1 has a larger margin than one of class 0; ties count one half.

    It is the statistic of Mann and Whitney, from mean ranks. With one class only it is NaN.
    """
    ordered = margins.sort().values
    ranks = (torch.searchsorted(ordered, margins) + torch.searchsorted(ordered, margins, right=True) + 1).double() / 2
    positive = labels == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not (ones and zeros):
        return nan
    return (float(ranks[positive].sum()) - ones * (ones + 1) / 2) / (ones * zeros)


_LARGEST_LOSS: Final = 700.0  # whose exponential is a float


def check_task(about: DatasetInfo, request: DatasetRequest) -> None:
    """Raise an error if the labels of a data set do not fit the task, or if its samples are users of a regression.

    Raises:
        DatasetError: the labels do not fit.
        GateError: a user with few records would have labels that add nothing, and no number can mark them.
    """
    if about.task != request.task:
        raise DatasetError(
            "task-mismatch",
            f"The labels of {about.name} do not fit the task {request.task}: "
            f"{'they are numbers' if about.task == REGRESSION else f'there are {about.classes} classes'}. "
            "Correct `trainable.task`.",
        )
    if about.task == REGRESSION and request.unit == "user":
        raise GateError(
            "task-of-users",
            "`task: regression` needs `unit: record`. A user with few records would need a mark for each missing "
            "label, and no number can be this mark.",
        )


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
    if METRICS[spec.metric].sensitivity is None:
        raise GateError(
            "metric-not-protectable",
            f"`metric` must be validation_accuracy if scores are protected (got {spec.metric}). For other scores, no "
            "bound is stated on the effect of one record.",
        )
    size = data.public_validation_size(spec.dataset)
    if size < 1:
        raise DatasetError(
            "split-empty",
            f"Protected scores need validation records (got {size}). Raise dataset.validation.fraction.",
        )
    return size
