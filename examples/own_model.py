"""A model of your own (`trainable.model: own_model:build`): it maps floats (N, *input_shape) to logits (N, classes)."""

from math import prod

from torch import nn


def build(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a perceptron. Samples must not meet: LayerNorm is fine, BatchNorm is refused."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(input_shape), 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, classes)
    )
