"""Stage 4, the noise, added ONCE to the clipped sum. Only this stage costs budget."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["add_noise"]


def add_noise(clipped: Tensor, *, standard_deviation: float, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Return `clipped` + N(0, standard_deviation²·I), shape (d,), computed in float64 and rounded to `dtype`.

    In a step, `clipped` is Σ_i ḡ_i, and the standard deviation is noise_multiplier · C plus a margin for the rounding
    of the sum. For every batch, even an empty one, d random numbers are drawn. Rounding the noised sum is
    post-processing.
    """
    return generator.add_normal(clipped, standard_deviation, dtype)
