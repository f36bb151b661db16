"""Stage 1, the objective: at which points the loss is taken. DPLIS smooths it with public randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Objective", "Plain", "Points", "Smoothed"]


@dataclass(frozen=True)
class Points:
    """The gradient of a sample is `scale` times the sum of its gradients at these parameter vectors.

    Attributes:
        theta: shape (K, d).
        scale: 1/K for a mean, 1 for a sum.
    """

    theta: Tensor
    scale: float = 1.0


class Objective(Protocol):
    """Chooses the points; sees no record."""

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """The points of one step.

        Args:
            theta: the parameters, shape (d,).
            noise_scale: standard deviation per coordinate of what the step's noise adds to the parameters,
                learning rate · noise_multiplier · C / b.
            public: data-independent randomness that need not be secret.
        """
        ...


@dataclass(frozen=True)
class Plain:
    """The loss itself, at θ."""

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """One point, θ; nothing is drawn."""
        del noise_scale, public
        return Points(theta[None])


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """DPLIS (equation 6): L(θ) → (1/K) Σ_j L(θ + R·(η/b)·ν_j), ν_j ~ N(0, noise_multiplier²·C²·I).

    η is the scheduled rate of the step. One ν_j serves all samples of the batch, so before the clip each sample's
    gradient still depends on that sample alone.

    Attributes:
        radius: R; 0 is the plain loss, K times over.
        samples: K.
        reduction: 'mean' as in the paper, 'sum' as in the authors' code.
    """

    radius: float
    samples: int
    reduction: str = "mean"

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """K points around θ, from K·d public Gaussians drawn once for the step."""
        directions = torch.randn(self.samples, theta.numel(), generator=public, dtype=theta.dtype)
        scale = 1.0 / self.samples if self.reduction == "mean" else 1.0
        return Points(theta + directions.to(theta.device).mul_(self.radius * noise_scale), scale)
