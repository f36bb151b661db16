"""Objective perturbation: the minimum of a strongly convex loss with a random linear term, plus a little noise.

The linear term is that of Kifer, Smith & Thakurta (2012), and the noise at the end that of approximate minima
perturbation (Iyengar et al. 2019), which covers that a solver stops near the minimum. The bound is ours.

Formal guarantee (proved in `noise`): with the numbers of `objective_noise`, the output is
dominated by one Gaussian mechanism with noise multiplier σ and sample rate 1, whatever the records are. It is charged
as that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.convex.logistic import Problem, minimum
from trainables.convex.noise import objective_noise
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator, SecureGenerator

__all__ = ["objective_perturbation"]


def objective_perturbation(
    problem: Problem, *, clip: float, noise_multiplier: float, tolerance: float, generator: Generator | None = None
) -> Tensor:
    """Return the noised minimum, float64, shape (k·d,). It must be charged before, as one step at sample rate 1."""
    noise = objective_noise(
        clip=clip, classes=problem.classes, normaliser=problem.normaliser, weight_decay=problem.weight_decay,
        noise_multiplier=noise_multiplier, tolerance=tolerance,
    )  # fmt: skip
    secret = SecureGenerator() if generator is None else generator
    still = torch.zeros(problem.dimension, dtype=torch.float64)
    tilt = add_noise(still, standard_deviation=noise.tilt, generator=secret, dtype=still.dtype)
    found = minimum(problem.perturbed(tilt, weight_decay=noise.weight_decay), tolerance=tolerance)
    return add_noise(found, standard_deviation=noise.output, generator=secret, dtype=found.dtype)
