"""Models of a user's own, found by a name that no other module of the tests has."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def float_model(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A user's model with a tensor of a fixed type, which double precision cannot meet."""

    class Fixed(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.flatten(1) @ torch.ones(64, 64) @ self.weight.T + self.bias

    return Fixed(64, classes)


def own_model(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def failing_model(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    raise KeyError("mine")
