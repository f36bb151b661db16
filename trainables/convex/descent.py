"""Full-batch private gradient descent: every step is a Gaussian mechanism on the clipped sum, at sample rate 1."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.convex.logistic import Problem
from trainables.convex.noise import gradient_norm
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator, SecureGenerator

__all__ = ["private_descent"]


def private_descent(
    problem: Problem,
    *,
    clip: float,
    steps: int,
    learning_rate: float,
    noise_multiplier: float,
    generator: Generator | None = None,
) -> Tensor:
    """Return θ after `steps` noised full-batch steps, float64. They must be charged before, at sample rate 1.

    A record's gradient needs no clip of its own: with an input of norm at most C and the constant 1, its norm is at
    most √2·√(C² + 1), to which the noise is proportional.
    """
    secret = SecureGenerator() if generator is None else generator
    deviation = noise_multiplier * gradient_norm(clip) / problem.normaliser
    theta = torch.zeros(problem.dimension, dtype=torch.float64)
    for _ in range(steps):
        gradient = problem.gradient(theta)
        theta = theta - learning_rate * add_noise(
            gradient, standard_deviation=deviation, generator=secret, dtype=gradient.dtype
        )
    return theta
