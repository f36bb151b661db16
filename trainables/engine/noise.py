"""Stage 4, the noise: added ONCE to the clipped sum. The budget pays for this stage and no other."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["add_noise"]


def add_noise(clipped: Tensor, *, standard_deviation: float, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Return the clipped sum plus N(0, standard_deviation²·I).

    Args:
        clipped: Σ_i ḡ_i, shape (d,). The noise is added in float64; rounding the noised sum is post-processing.
        standard_deviation: noise_multiplier · C, increased for the rounding of the sum.
        generator: the secret generator; d numbers are drawn from it for every batch.
        dtype: of the result.

    Returns:
        Shape (d,).
    """
    return generator.add_normal(clipped, standard_deviation, dtype)
