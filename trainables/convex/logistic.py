"""Logistic regression with an L2 term in double precision: loss, gradient, and a minimum of certified precision."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from trainables.errors import HyperparameterError
from trainables.release.draw import clipped_rows

__all__ = ["LIPSCHITZ", "Problem", "minimum", "problem_of"]

LIPSCHITZ = 2**0.5
"""Largest norm of the gradient of the cross-entropy with respect to the logits: softmax minus a unit vector."""
_ROUNDS = 200


class Problem:
    """J(θ) = (1/m)·Σ_i cross-entropy(W·x_i, y_i) + λ/2·‖θ‖², with θ = W flattened, over clipped x_i with a constant 1.

    Args:
        x: clipped features with a last column of ones, shape (n, d), float64.
        y: labels, shape (n,).
        classes: k.
        normaliser: m, a PUBLIC number. It is never the number of records n.
        weight_decay: λ, above 0.
    """

    def __init__(self, x: Tensor, y: Tensor, *, classes: int, normaliser: int, weight_decay: float) -> None:
        if not 0 < weight_decay < float("inf"):
            raise HyperparameterError(
                "convex-not-strong",
                f"`weight_decay` must be finite and above 0 for a minimum that is perturbed (got {weight_decay!r}). "
                "Without it, one record can move the minimum without limit.",
            )
        self.x, self.y, self.classes = x, y, classes
        self.normaliser, self.weight_decay = normaliser, weight_decay

    @property
    def dimension(self) -> int:
        """Number of entries of θ."""
        return self.classes * self.x.shape[1]

    def loss(self, theta: Tensor) -> Tensor:
        """Return J(θ)."""
        logits = self.x @ theta.reshape(self.classes, -1).T
        data = torch.nn.functional.cross_entropy(logits, self.y, reduction="sum") / self.normaliser
        return data + self.weight_decay / 2 * (theta**2).sum()

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇J(θ), shape (k·d,)."""
        logits = self.x @ theta.reshape(self.classes, -1).T
        off = torch.softmax(logits, 1) - torch.nn.functional.one_hot(self.y, self.classes)
        return (off.T @ self.x).reshape(-1) / self.normaliser + self.weight_decay * theta

    def hessian(self, theta: Tensor) -> Tensor:
        """Return ∇²J(θ), shape (k·d, k·d)."""
        p = torch.softmax(self.x @ theta.reshape(self.classes, -1).T, 1)
        k, d = self.classes, self.x.shape[1]
        found = torch.zeros(k, d, k, d, dtype=torch.float64)
        for a in range(k):
            for b in range(a, k):
                weight = p[:, a] * ((1.0 if a == b else 0.0) - p[:, b]) / self.normaliser
                block = self.x.T @ (weight[:, None] * self.x)
                found[a, :, b], found[b, :, a] = block, block
        return found.reshape(k * d, k * d) + self.weight_decay * torch.eye(k * d, dtype=torch.float64)


def problem_of(x: Tensor, y: Tensor, *, classes: int, clip: float, normaliser: int, weight_decay: float) -> Problem:
    """Return the problem of these records. Each input is clipped by itself, then a constant 1 is appended."""
    rows = clipped_rows(x.reshape(len(x), prod(x.shape[1:])), clip)
    rows = torch.cat([rows, torch.ones(len(rows), 1, dtype=torch.float64)], 1)
    return Problem(rows, y.long(), classes=classes, normaliser=normaliser, weight_decay=weight_decay)


def minimum(problem: Problem, *, tolerance: float) -> Tensor:
    """Return θ with ‖∇J(θ)‖ ≤ `tolerance`, which is checked at the end, by damped Newton steps.

    By strong convexity the distance to the minimum is at most tolerance/λ.

    Raises:
        ArithmeticError: it was not reached within the rounds, as with a tolerance below the precision of doubles.
    """
    theta = torch.zeros(problem.dimension, dtype=torch.float64)
    for _ in range(_ROUNDS):
        gradient = problem.gradient(theta)
        norm, before = float(gradient.norm()), float(problem.loss(theta))
        if norm <= tolerance:
            return theta
        step = torch.linalg.solve(problem.hessian(theta), gradient)
        size, fall = 1.0, float(gradient @ step)
        while size > 1e-10 and float(problem.loss(theta - size * step)) > before - 1e-4 * size * fall:
            if float(problem.gradient(theta - size * step).norm()) < norm / 2:
                break  # near the minimum, doubles cannot tell the losses apart, but the gradients
            size /= 2
        theta = theta - size * step
    raise ArithmeticError("no minimum of this precision was found")
