"""Sizes and families of the shipped models, without importing torch. The shipped prior reads them; no claim does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Final

__all__ = ["LSTM_WIDTH", "WORD_HIDDEN", "WORD_WIDTH", "dimension_of", "family_of", "is_perceptron"]

WORD_WIDTH: Final = 256
"""Length of the vector of a word. DPLIS states it for its LSTM."""

WORD_HIDDEN: Final = (500, 250, 50)
LSTM_WIDTH: Final = 96

# Widths of the hidden layers; 0 is the size of an input.
_HIDDEN: Final[Mapping[str, tuple[int, ...]]] = {
    "logistic_regression": (),
    "mlp_input": (0,),
    "mlp_64": (64,),
    "mlp_256": (256,),
    "mlp_256_256": (256, 256),
    "mlp_512_128": (512, 128),
    "mlp_1536_128": (1536, 128),
}
_CONVOLUTIONAL: Final = ("tutorial_cnn", "four_conv_cnn")


def is_perceptron(model: str) -> bool:
    """Return whether a shipped model has linear layers alone. It takes inputs of every shape."""
    return model in _HIDDEN


def family_of(model: str) -> str:
    """Return the family of a model, as the shipped prior names it. A custom model is ``other``."""
    if model == "logistic_regression":
        return "linear"
    if model == "next_word_lstm":
        return "recurrent"
    return "convolutional" if model in _CONVOLUTIONAL else "other"


def dimension_of(model: str, *, input_shape: tuple[int, ...], classes: int, frozen: Sequence[str] = ()) -> int | None:
    """Return the number of trainable parameters of a shipped model without normalization.

    `frozen` are names of layers that are not trained. Return None for a custom model, for other names, and if the model
    cannot take inputs of this shape.
    """
    sizes = _layers(model, input_shape, classes)
    if sizes is None or min(sizes.values()) <= 0 or not sizes.keys() >= set(frozen):
        return None
    return sum(size for name, size in sizes.items() if name not in frozen)


def _layers(model: str, input_shape: tuple[int, ...], classes: int) -> dict[str, int] | None:
    """Return the number of parameters of each layer, by its name in the built model."""
    if model in _HIDDEN:
        size = prod(input_shape)
        dense = _dense(size, *(width or size for width in _HIDDEN[model]), classes)
        return {str(1 + 2 * place): size for place, size in enumerate(dense)}
    names, sizes_of = _OTHERS.get(model, ((), None))
    sizes = None if sizes_of is None else sizes_of(input_shape, classes)
    return None if sizes is None else dict(zip(names, sizes, strict=True))


def _dense(*widths: int) -> list[int]:
    return [(inputs + 1) * outputs for inputs, outputs in pairwise(widths)]


def _tutorial_cnn(shape: tuple[int, ...], classes: int) -> list[int] | None:
    if len(shape) != 3:
        return None
    channels, *sides = shape
    height, width = (_after_convolutions(side) for side in sides)
    if min(height, width) < 1:
        return None
    return [(channels * 64 + 1) * 16, (16 * 16 + 1) * 32, *_dense(32 * height * width, 32, classes)]


def _after_convolutions(side: int) -> int:
    first = (side + 4 - 8) // 2  # a convolution of 8 with stride 2 and padding 2, then a pool of 2 with stride 1
    return (first - 4) // 2  # a convolution of 4 with stride 2, then the same pool


def _four_conv_cnn(shape: tuple[int, ...], classes: int) -> list[int] | None:
    if len(shape) != 3:
        return None
    widths = (shape[0], 32, 64, 64, 128)
    return [*((9 * inputs + 1) * outputs for inputs, outputs in pairwise(widths)), *_dense(128, classes)]


def _next_word_mlp(shape: tuple[int, ...], classes: int) -> list[int] | None:
    if len(shape) != 1:
        return None
    return [WORD_WIDTH * classes, *_dense(WORD_WIDTH * shape[0], *WORD_HIDDEN, classes)]


def _next_word_lstm(shape: tuple[int, ...], classes: int) -> list[int] | None:
    if len(shape) != 1:
        return None
    gates = 4 * LSTM_WIDTH * (WORD_WIDTH + LSTM_WIDTH + 2)  # two biases, as torch has
    return [WORD_WIDTH * classes, gates, *_dense(LSTM_WIDTH, classes)]


_OTHERS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[tuple[int, ...], int], list[int] | None]]]] = {
    "tutorial_cnn": (("0", "3", "7", "9"), _tutorial_cnn),
    "four_conv_cnn": (("0", "3", "6", "9", "13"), _four_conv_cnn),
    "next_word_mlp": (("1", "3", "5", "7", "9"), _next_word_mlp),
    "next_word_lstm": (("1", "2", "3"), _next_word_lstm),
}
