"""Stage 4, the noise, added ONCE to the clipped sum. Only this stage costs budget."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["add_noise"]


def add_noise(clipped: Tensor, *, standard_deviation: float, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Return Σ_i ḡ_i + N(0, standard_deviation²·I), shape (d,), added in float64 and rounded to `dtype`.

    The standard deviation is noise_multiplier · C, increased for the rounding of the sum. Every batch draws d numbers
    from the secret generator. Rounding the noised sum is post-processing.
    """
    return generator.add_normal(clipped, standard_deviation, dtype)
