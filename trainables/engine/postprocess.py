"""Stage 5, post-processing of the noised gradient, free of charge: Laplacian smoothing (DP-LSSGD)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Identity", "LaplacianSmoothing", "Postprocess", "laplacian_eigenvalues", "laplacian_smoothing"]


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
    """

    sigma: float
    sizes: tuple[int, ...]

    def __call__(self, gradient: Tensor) -> Tensor:
        """The smoothed gradient, shape (d,)."""
        if self.sigma == 0:
            return gradient
        return torch.cat([laplacian_smoothing(part, self.sigma) for part in torch.split(gradient, list(self.sizes))])


def laplacian_smoothing(vector: Tensor, sigma: float) -> Tensor:
    """A_σ⁻¹ v for A_σ = I - σL, L the periodic one-dimensional Laplacian, by FFT: û_k = v̂_k / eigenvalue_k.

    Args:
        vector: v, shape (d,).
        sigma: σ, at least 0.

    Returns:
        Shape (d,); with the mean of v, and no longer than v.
    """
    size = vector.numel()
    eigenvalues = laplacian_eigenvalues(size, sigma).to(device=vector.device, dtype=vector.dtype)
    smoothed: Tensor = torch.fft.irfft(torch.fft.rfft(vector) / eigenvalues, n=size)
    return smoothed


@lru_cache(maxsize=64)
def laplacian_eigenvalues(size: int, sigma: float) -> Tensor:
    """The first d // 2 + 1 eigenvalues of A_σ, 1 + 2σ - 2σ cos(2πk/d), float64; the others mirror them."""
    frequencies = torch.arange(size // 2 + 1, dtype=torch.float64) / size
    return 1.0 + 2.0 * sigma - 2.0 * sigma * torch.cos(2.0 * torch.pi * frequencies)
