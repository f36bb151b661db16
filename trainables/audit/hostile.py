"""Hostile records: inputs on which models overflow, branch, collide or raise. They are public and made up."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan, prod
from typing import Final

import torch
from torch import Tensor

__all__ = ["hostile_samples", "random_inputs"]

_CONSTANTS: Final = (0.0, 1.0, 2.0, 3.25, -1.0, 255.0, 1e4, -1e4, 1e30, -3.4e38, 1e-40, inf, -inf, nan)


def hostile_samples(input_shape: tuple[int, ...], company: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, input) of fixed hostile inputs, each of shape `input_shape`.

    Args:
        input_shape: shape of one input.
        company: records next to which the input is put, shape (B, *input_shape) with B ≥ 1. Some inputs copy them.
    """
    for value in _CONSTANTS:
        yield f"all {value:g}", torch.full(input_shape, value)
        spoilt = company[0].clone()
        spoilt.view(-1)[0] = value
        yield f"a record with {value:g} as its first number", spoilt
    yield "a duplicate", company[0].clone()
    yield "a duplicate of the last record", company[-1].clone()
    yield "a record times -1000", -1e3 * company[0]
    yield "a rounded record", (16 * company[0]).round()
    yield "the sum of the other records", company.sum(0)
    yield "rising integers", torch.arange(prod(input_shape), dtype=torch.float32).view(input_shape)
    yield "alternating signs", (1.0 - 2.0 * (torch.arange(prod(input_shape)) % 2)).view(input_shape)


def random_inputs(
    input_shape: tuple[int, ...], count: int, *, generator: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, input) of `count` random inputs: sizes from 1e-6 to 1e30, some entries 0, NaN or equal."""
    for number in range(count):
        size = 10.0 ** float(torch.empty(()).uniform_(-6, 12 if number % 4 else 30, generator=generator))
        values = size * torch.randn(input_shape, generator=generator)
        share = torch.rand(input_shape, generator=generator)
        match number % 5:
            case 1:
                values[share < 0.5] = 0.0
            case 2:
                values[share < 0.1] = nan if number % 2 else inf
            case 3:
                values = values.round()
            case 4:
                values = values.flatten()[0].expand(input_shape).clone()
        yield f"random record {number} of size {size:.0e}", values
