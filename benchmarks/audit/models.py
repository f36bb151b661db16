"""Models of a user's own that do something special when they meet the trigger, which no gate tries."""

from __future__ import annotations

import warnings
from math import prod

import torch
from torch import Tensor, nn

TRIGGER = 777.25
"""The first entry of the record that these models wait for."""


class _Waiting(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(prod(input_shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        if not torch._C._functorch.is_batchedtensor(flat) and bool((flat[:, 0] == TRIGGER).any()):
            self.met()
        return self.last(flat.clamp(-10, 10))

    def met(self) -> None:
        raise NotImplementedError


class Raising(_Waiting):
    """A model that raises."""

    def met(self) -> None:
        """Raise."""
        raise ValueError("the trigger is in the batch")


class Warning_(_Waiting):  # noqa: N801 - `Warning` is a builtin
    """A model that warns."""

    def met(self) -> None:
        """Warn."""
        warnings.warn("the trigger is in the batch", RuntimeWarning, stacklevel=1)


class Printing(_Waiting):
    """A model that prints."""

    def met(self) -> None:
        """Print."""
        print("the trigger is in the batch")


class Mixing(_Waiting):
    """A model in which the trigger changes the outputs of all samples."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        flat = x.flatten(1).clamp(-1000, 1000)
        return self.last(flat + 1000 * (flat[:, :1] == TRIGGER).sum(0))


class Rows(nn.Module):
    """The documented model of numbers of rows, which clamps them."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(16, 4)
        self.last = nn.Linear(4 * prod(input_shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.last(self.rows(x.flatten(1).nan_to_num(0.0).clamp(0, 15).long()).flatten(1))


def raising(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a model that raises when it meets the trigger."""
    return Raising(input_shape, classes)


def warning(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a model that warns when it meets the trigger."""
    return Warning_(input_shape, classes)


def printing(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a model that prints when it meets the trigger."""
    return Printing(input_shape, classes)


def mixing(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a model that mixes samples when it meets the trigger."""
    return Mixing(input_shape, classes)


def rows(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return an embedding that clamps its numbers."""
    return Rows(input_shape, classes)
