"""Sizes and families of the shipped models, without importing torch. The shipped prior reads them; no claim does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import prod
from typing import Final

__all__ = ["dimension_of", "family_of"]

# Widths of the hidden layers; 0 is the size of an input.
_HIDDEN: Final[Mapping[str, tuple[int, ...]]] = {
    "logistic_regression": (),
    "mlp_input": (0,),
    "mlp_64": (64,),
    "mlp_256": (256,),
    "mlp_512_128": (512, 128),
    "mlp_1536_128": (1536, 128),
}
_CONVOLUTIONAL: Final = ("tutorial_cnn", "four_conv_cnn")


def family_of(model: str) -> str:
    """Return the family of a model, as the shipped prior names it. A custom model is ``other``."""
    if model == "logistic_regression":
        return "linear"
    return "convolutional" if model in _CONVOLUTIONAL else "other"


def dimension_of(model: str, *, input_shape: tuple[int, ...], classes: int) -> int | None:
    """Return the number of trainable parameters of a shipped model without normalization.

    Return None for a custom model, and if the model cannot take inputs of this shape.
    """
    if model in _HIDDEN:
        size = prod(input_shape)
        return _dense(size, *(width or size for width in _HIDDEN[model]), classes)
    found = _OTHERS[model](input_shape, classes) if model in _OTHERS else None
    return found if found is not None and found > 0 else None


def _dense(*widths: int) -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def _tutorial_cnn(shape: tuple[int, ...], classes: int) -> int | None:
    if len(shape) != 3:
        return None
    channels, *sides = shape
    height, width = (_after_convolutions(side) for side in sides)
    if min(height, width) < 1:
        return None
    return (channels * 64 + 1) * 16 + (16 * 16 + 1) * 32 + _dense(32 * height * width, 32, classes)


def _after_convolutions(side: int) -> int:
    first = (side + 4 - 8) // 2  # a convolution of 8 with stride 2 and padding 2, then a pool of 2 with stride 1
    return (first - 4) // 2  # a convolution of 4 with stride 2, then the same pool


def _four_conv_cnn(shape: tuple[int, ...], classes: int) -> int | None:
    if len(shape) != 3:
        return None
    widths = (shape[0], 32, 64, 64, 128)
    return sum((9 * inputs + 1) * outputs for inputs, outputs in pairwise(widths)) + _dense(128, classes)


def _next_word(shape: tuple[int, ...], classes: int) -> int | None:
    return 16 * classes + _dense(16 * shape[0], 64, classes) if len(shape) == 1 else None


_OTHERS: Final[Mapping[str, Callable[[tuple[int, ...], int], int | None]]] = {
    "tutorial_cnn": _tutorial_cnn,
    "four_conv_cnn": _four_conv_cnn,
    "next_word": _next_word,
}
