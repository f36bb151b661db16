"""Models of a user's own, right and wrong, found by a name that no other module of the tests has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainables.errors import TrainableError


def linear(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def ending(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    raise SystemExit(3)


def failing(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    raise KeyError("mine")


def batch_norm(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


def of_two_inputs(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Bilinear(64, 64, classes)


class Fixed(nn.Linear):
    """A model with a tensor of a fixed type, which double precision cannot meet."""

    def __init__(self, *, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1) @ torch.ones(64, 64) @ self.weight.T + self.bias


class Scaled(nn.Module):
    """A model with a parameter outside its layers, which no hook sees."""

    def __init__(self, *, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(classes))
        self.layer = nn.Linear(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * self.layer(inputs.flatten(1))


class Rows(nn.Module):
    """A valid model of numbers of rows, which come as floats."""

    def __init__(self, *, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(17, 2)
        self.last = nn.Linear(128, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.rows((16 * inputs.flatten(1)).clamp(0, 16).long()).flatten(1))


class Unclamped(Rows):
    """The same without a clamp: it raises for a number beyond its rows."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.rows((16 * inputs.flatten(1)).long()).flatten(1))


def printing(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    print("a line of the user's own")
    return linear(input_shape=input_shape, classes=classes)


class Talking(nn.Linear):
    """A model that tells a record in double precision, in an error of the package's own type."""

    def __init__(self, *, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dtype == torch.float64:
            raise TrainableError("records-empty", f"a secret record: {inputs[0]}")
        return super().forward(inputs.flatten(1))
