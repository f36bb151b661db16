"""Stage 5, post-processing of the noised gradient by Laplacian smoothing (DP-LSSGD). This stage costs no privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from trainables.engine.circulant import laplacian_eigenvalues, solve_into

__all__ = ["LaplacianSmoothing", "Postprocess", "unchanged"]


Postprocess: TypeAlias = Callable[[Tensor], Tensor]
"""Noised gradient, shape (d,) → direction of the update, shape (d,)."""


def unchanged(gradient: Tensor) -> Tensor:
    """Return the gradient unchanged."""
    return gradient


@dataclass(frozen=True, kw_only=True)
class LaplacianSmoothing:
    """Laplacian smoothing g̃ ← A_σ⁻¹ g̃ within each segment (DP-LSSGD, Algorithm 1).

    Attributes:
        sigma: strength σ; 0 is no smoothing.
        sizes: lengths of the consecutive segments. A segment is a parameter tensor (the authors' code), or the whole
            vector (the paper).
    """

    sigma: float
    sizes: tuple[int, ...]

    def variance_gains(self) -> tuple[tuple[int, float], ...]:
        """Return (length, factor) of each segment: smoothing multiplies the variance of white noise by the factor.

        It is β of the paper's Lemma 5: E‖A_σ⁻¹x‖² = d·β for x ~ N(0, I), the same for each coordinate of a segment.
        """
        gains = {size: _variance_gain(size, self.sigma) for size in set(self.sizes)}
        return tuple((size, gains[size]) for size in self.sizes)

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


def _variance_gain(size: int, sigma: float) -> float:
    """Return β(σ, d) = (1/d) Σ_k 1 / (1 + 2σ - 2σ cos(2πk/d))², with the sum over k = 0, …, d - 1."""
    squares = laplacian_eigenvalues(size, sigma).pow(-2)
    once = squares[0] + (squares[-1] if size % 2 == 0 else 0.0)  # the other frequencies occur twice
    return float(2 * squares.sum() - once) / size
