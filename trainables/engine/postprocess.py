"""Stage 5, post-processing of the noised gradient, which is free: Laplacian smoothing (DP-LSSGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainables.checks import refuse_illegal
from trainables.engine.circulant import laplacian_eigenvalues, solve_into

__all__ = ["Identity", "LaplacianSmoothing", "Postprocess", "laplacian_eigenvalues"]


class Postprocess(Protocol):
    """Function of the noised gradient alone."""

    def __call__(self, gradient: Tensor) -> Tensor:
        """Return the direction of the update, shape (d,)."""
        ...


@dataclass(frozen=True)
class Identity:
    """No post-processing."""

    def __call__(self, gradient: Tensor) -> Tensor:
        """Return the gradient."""
        return gradient


@dataclass(frozen=True, kw_only=True)
class LaplacianSmoothing:
    """Laplacian smoothing g̃ ← A_σ⁻¹ g̃ within each segment.

    Attributes:
        sigma: smoothing strength, 0 = off.
        sizes: lengths of the consecutive segments: one per parameter tensor (the authors' code), or d (the paper).

    Raises:
        HyperparameterError: sigma is illegal.
    """

    sigma: float
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        refuse_illegal("laplacian_sigma", self.sigma)

    def __call__(self, gradient: Tensor) -> Tensor:
        """Return the smoothed gradient, shape (d,)."""
        if self.sigma == 0:
            return gradient
        gradient = gradient.contiguous()
        smoothed = torch.empty_like(gradient)
        sizes = list(self.sizes)
        for target, part in zip(torch.split(smoothed, sizes), torch.split(gradient, sizes), strict=True):
            solve_into(target, part, self.sigma)
        return smoothed
