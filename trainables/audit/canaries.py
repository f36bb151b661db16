"""Canaries: public synthetic records, each of which moves directions of the gradient that few others move."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from trainables.data import DatasetRequest, Splits
from trainables.tasks import CLASSIFICATION, REGRESSION

__all__ = ["CANARY_SET", "Canaries", "canary_request", "one_hot_canaries"]

CANARY_SET: Final = "audit-canaries"
"""Name of the synthetic data set of an audit. It is in no ledger, because an audit charges nothing."""

_SIZE: Final = 100.0  # far from ordinary records, so that the clip shortens every gradient to C

_ENOUGH: Final = 64  # canaries with an entry of their own


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """Records that an audit inserts: inputs, shape (m, *input_shape), float32, and labels, shape (m,)."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        """Return m."""
        return len(self.targets)

    def splits(self, entered: Tensor) -> Splits:
        """Return splits whose training records are the canaries that entered. `entered` is bool, shape (m,)."""
        nothing, no_label = self.inputs[:0], self.targets[:0]
        return Splits(
            x_train=self.inputs[entered],
            y_train=self.targets[entered],
            x_validation=nothing,
            y_validation=no_label,
            x_test=nothing,
            y_test=no_label,
        )


def one_hot_canaries(*, input_shape: tuple[int, ...], classes: int, most: int, task: str = CLASSIFICATION) -> Canaries:
    """Return up to `most` canaries: one large entry each, at another place or with another label.

    In a linear model, canaries with different entries have orthogonal gradients of the weights. Canaries with the same
    entry and another label disturb each other, so they are used for small inputs only. In a regression, all labels are
    far from what a model says.
    """
    places = prod(input_shape)
    count = min(most, places if places >= _ENOUGH else places * max(1, classes // 2))
    index = torch.arange(count)
    inputs = torch.zeros(count, places)
    inputs[index, index % places] = _SIZE
    labels = (index + index // places * (1 + places % classes)) % classes
    targets = torch.full((count,), _SIZE) if task == REGRESSION else labels
    return Canaries(inputs=inputs.view(count, *input_shape), targets=targets)


def canary_request(
    folder: Path, *, input_shape: tuple[int, ...], classes: int, public_size: int, task: str = CLASSIFICATION
) -> DatasetRequest:
    """Write a file with the shape and the number of classes of the canaries, and return the request for it.

    A training asks its data set for these two facts. The file has one record of zeros, which is not used.
    """
    path = folder / f"{CANARY_SET}.npz"
    x, y = np.zeros((1, *input_shape), np.float32), np.zeros(1, np.int64)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y, classes=np.int64(classes))
    return DatasetRequest(name=CANARY_SET, path=str(path), public_size=public_size, validation_fraction=0.0, task=task)
