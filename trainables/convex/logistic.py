"""Logistic regression with an L2 term in double precision: loss, gradient, and a minimum of certified precision."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from trainables.errors import HyperparameterError
from trainables.release.draw import clipped_rows

__all__ = ["Problem", "minimum", "problem_of"]

_ROUNDS = 200
_LEAST_TOLERANCE = 1e-12
_MARGIN = 2.0
"""Factor by which the computed gradient must be below the tolerance. It covers the rounding of a sum of 10⁶ records."""


class Problem:
    """J(θ) = (1/m)·(Σ_i cross-entropy(W·x_i, y_i) + ⟨b, θ⟩) + λ/2·‖θ‖², with θ = W flattened, over clipped x_i.

    Args:
        x: clipped features with a last column of ones, shape (n, d), float64.
        y: labels, shape (n,).
        classes: k.
        normaliser: m, a PUBLIC number. It is never the number of records n.
        weight_decay: λ, above 0.
        tilt: b, shape (k·d,), or None for 0.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        *,
        classes: int,
        normaliser: int,
        weight_decay: float,
        tilt: Tensor | None = None,
    ) -> None:
        if not 0 < weight_decay < float("inf"):
            raise HyperparameterError(
                "convex-not-strong",
                "`weight_decay` must be finite and above 0 for output and objective perturbation (got "
                f"{weight_decay!r}). Without weight decay, one record can move the minimum without limit.",
            )
        self.x, self.y, self.classes = x, y, classes
        self.normaliser, self.weight_decay = normaliser, weight_decay
        self.tilt = torch.zeros(self.dimension, dtype=torch.float64) if tilt is None else tilt

    def perturbed(self, tilt: Tensor, *, weight_decay: float) -> Problem:
        """Return the problem of the same records with another b and λ."""
        return Problem(
            self.x,
            self.y,
            classes=self.classes,
            normaliser=self.normaliser,
            weight_decay=weight_decay,
            tilt=tilt,
        )

    @property
    def dimension(self) -> int:
        """Number of entries of θ."""
        return self.classes * self.x.shape[1]

    def loss(self, theta: Tensor) -> Tensor:
        """Return J(θ)."""
        logits = self.x @ theta.reshape(self.classes, -1).T
        data = torch.nn.functional.cross_entropy(logits, self.y, reduction="sum") / self.normaliser
        return data + self.tilt @ theta / self.normaliser + self.weight_decay / 2 * (theta**2).sum()

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇J(θ), shape (k·d,)."""
        logits = self.x @ theta.reshape(self.classes, -1).T
        off = torch.softmax(logits, 1) - torch.nn.functional.one_hot(self.y, self.classes)
        return ((off.T @ self.x).reshape(-1) + self.tilt) / self.normaliser + self.weight_decay * theta

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

    By strong convexity the distance to the minimum is at most tolerance/λ. No record can make it fail: if
    the Newton steps do not converge, gradient steps follow. These reach the minimum of every smooth and strongly convex
    loss.

    Raises:
        HyperparameterError: the tolerance is below the precision of doubles.
    """
    if not tolerance >= _LEAST_TOLERANCE:
        raise HyperparameterError(
            "convex-tolerance",
            f"`tolerance` must be at least {_LEAST_TOLERANCE:g}, the precision of doubles (got {tolerance!r}).",
        )
    theta, enough = torch.zeros(problem.dimension, dtype=torch.float64), tolerance / _MARGIN
    for _ in range(_ROUNDS):
        gradient = problem.gradient(theta)
        norm, before = float(gradient.norm()), float(problem.loss(theta))
        if norm <= enough:
            return theta
        step = torch.linalg.solve(problem.hessian(theta), gradient)
        size, fall = 1.0, float(gradient @ step)
        while size > 1e-10 and float(problem.loss(theta - size * step)) > before - 1e-4 * size * fall:
            if float(problem.gradient(theta - size * step).norm()) < norm / 2:
                break  # near the minimum, doubles cannot tell the losses apart, but the gradients
            size /= 2
        theta = theta - size * step
    return _slowly(problem, theta, enough)


def _slowly(problem: Problem, theta: Tensor, enough: float) -> Tensor:
    """Return the end of gradient steps of the safe length: each shortens the distance by 1 − λ/β or more."""
    beta = float((problem.x**2).sum()) / 2 / problem.normaliser + problem.weight_decay
    while True:
        gradient = problem.gradient(theta)
        if float(gradient.norm()) <= enough:
            return theta
        theta = theta - gradient / beta
