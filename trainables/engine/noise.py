"""Stage 4, the noise: added ONCE to the clipped sum. This stage, and no other, is what the budget pays for."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.engine.random import Generator

__all__ = ["add_noise"]


def add_noise(clipped: Tensor, *, standard_deviation: float, generator: Generator, dtype: torch.dtype) -> Tensor:
    """The clipped sum plus N(0, standard_deviation²·I).

    Args:
        clipped: Σ_i ḡ_i, shape (d,). The noise is added in float64; what rounds the noised sum is post-processing.
        standard_deviation: noise_multiplier · C, and what is added for the rounding of the sum.
        generator: the secret generator; d numbers are drawn from it, whatever the batch.
        dtype: what the noised sum is rounded to.

    Returns:
        Shape (d,).
    """
    return generator.add_normal(clipped, standard_deviation, dtype)
