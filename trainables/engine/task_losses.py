"""Losses of the tasks. Every loss is a function of one sample alone, and the clip bounds each of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from trainables.engine.per_sample import IGNORED, cross_entropy
from trainables.tasks import BINARY, CLASSIFICATION, REGRESSION

__all__ = ["each_loss", "summed_loss"]

EachLoss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of shape (B, outputs), targets of shape (B,)) → losses of the samples, shape (B,)."""


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORED)


def _logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return log(1 + e^(−y·f)) with y = 1 for label 1, and −1 for label 0. An IGNORED label adds 0."""
    signs = 2.0 * targets - 1.0
    return torch.where(targets == IGNORED, 0.0, nn.functional.softplus(-signs * outputs[:, 0]))


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square()


_EACH: Final[Mapping[str, EachLoss]] = {CLASSIFICATION: _cross_entropy, BINARY: _logistic, REGRESSION: _squared}


def each_loss(task: str) -> EachLoss:
    """Return the loss of single samples."""
    return _EACH[task]


def summed_loss(task: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the sum of the samples' losses, whose gradients are per-sample gradients."""
    if task == CLASSIFICATION:
        return cross_entropy
    each = _EACH[task]
    return lambda outputs, targets: each(outputs, targets).sum()
