"""Stage 5, post-processing of the noised gradient, free of charge: Laplacian smoothing (DP-LSSGD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainables.engine.circulant import laplacian_eigenvalues, solve_into
from trainables.errors import HyperparameterError

__all__ = ["Identity", "LaplacianSmoothing", "Postprocess", "laplacian_eigenvalues"]


class Postprocess(Protocol):
    """A function of the noised gradient alone."""

    def __call__(self, gradient: Tensor) -> Tensor:
        """The direction of the update, shape (d,) as the gradient."""
        ...


@dataclass(frozen=True)
class Identity:
    """The noised gradient as it is."""

    def __call__(self, gradient: Tensor) -> Tensor:
        """The argument."""
        return gradient


@dataclass(frozen=True, kw_only=True)
class LaplacianSmoothing:
    """g̃ ← A_σ⁻¹ g̃ within each segment by itself.

    Attributes:
        sigma: smoothing strength, 0 = off.
        sizes: lengths of the consecutive segments: one a parameter tensor (the authors' code), or d alone (the paper).

    Raises:
        HyperparameterError: sigma is not finite or negative.
    """

    sigma: float
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf:
            raise HyperparameterError(
                f"laplacian_sigma must be finite and at least 0; got {self.sigma!r}; 0 switches it off"
            )

    def __call__(self, gradient: Tensor) -> Tensor:
        """The smoothed gradient, shape (d,)."""
        if self.sigma == 0:
            return gradient
        gradient = gradient.contiguous()
        smoothed = torch.empty_like(gradient)
        sizes = list(self.sizes)
        for target, part in zip(torch.split(smoothed, sizes), torch.split(gradient, sizes), strict=True):
            solve_into(target, part, self.sigma)
        return smoothed
