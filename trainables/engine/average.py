"""Exponential moving average of the weights. It is post-processing of noised weights and costs no privacy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["WeightAverage"]


class WeightAverage:
    """Average ā ← d_t ā + (1 - d_t) θ_t with d_t = min(decay, (1 + t) / (10 + t)), t = 0, 1, … (De et al. 2022).

    θ_t are the weights after step t + 1. d_t is small at first, so that the first weights soon lose their influence.

    The extrapolated average is ā + a·(ā - ā_half), where ā_half is the average after half of the steps. Few noisy steps
    do not reach the minimum, and the way that the average moved in the second half points to it. Extrapolation from
    iterates is known from optimization without noise (Scieur, d'Aspremont & Bach 2016).

    Attributes:
        decay: largest d_t, in [0, 1); with 0, the average equals the last weights.
        steps: number of steps of the whole training.
        updates: t, the number of weight vectors that were averaged.
    """

    def __init__(self, like: Tensor, *, decay: float, steps: int) -> None:
        self.decay = decay
        self.steps = steps
        self.updates = 0
        # At a decay of 0.9999, an update adds 1e-4 of a difference, which float32 would lose.
        self._average = like.detach().to(torch.float64, copy=True)
        self._half = self._average.clone()
        self._dtype = like.dtype

    def update(self, theta: Tensor) -> None:
        """Include the weights θ, shape (d,), in the average. Called after each step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self._average.mul_(decay).add_(theta.detach(), alpha=1.0 - decay)
        self.updates += 1
        if self.updates == self.steps // 2:
            self._half.copy_(self._average)

    def value(self, extrapolation: float = 0.0) -> Tensor:
        """Return ā + a·(ā - ā_half), shape (d,), in the weights' dtype; `extrapolation` is a.

        Before any update, the average is the initial weights. Up to half of the steps, ā_half is the initial weights.
        """
        if extrapolation == 0:
            return self._average.to(self._dtype, copy=True)
        return self._average.lerp(self._half, -extrapolation).to(self._dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the average continues bit for bit."""
        return {"updates": self.updates, "average": self._average.clone(), "half": self._half.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a stored state."""
        self.updates = state["updates"]
        self._average = state["average"].to(self._average, copy=True)
        self._half = state["half"].to(self._half, copy=True)
