"""Stage 5, post-processing of the noised gradient by Laplacian smoothing (DP-LSSGD). This stage costs no privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from trainables.engine.circulant import solve_into

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
