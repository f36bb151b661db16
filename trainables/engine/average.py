"""The exponential moving average of the weights: post-processing of what was released, so it is free."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainables.errors import HyperparameterError

__all__ = ["WeightAverage"]


class WeightAverage:
    """ā ← d_t ā + (1 - d_t) θ_t with d_t = min(decay, (1 + t) / (10 + t)), t = 0, 1, … (De et al. 2022).

    The warm-up lets go of the first weights: until t is about 9 / (1 - decay), the average reaches over a share of the
    steps that were taken, and not over 1 / (1 - decay) steps that never were.

    Attributes:
        decay: d, in [0, 1); 0 is the last weights themselves.
        updates: t, how many weights have entered.

    Raises:
        HyperparameterError: decay is out of its range.
    """

    def __init__(self, like: Tensor, *, decay: float) -> None:
        if not 0 <= decay < 1:
            raise HyperparameterError(
                f"the decay of the weight average must be at least 0 and below 1; got {decay!r}; 0.999 is usual"
            )
        self.decay = decay
        self.updates = 0
        # In float64: with a decay of 0.9999 a step adds 1e-4 of a difference, which float32 would round away.
        self._average = like.detach().to(torch.float64, copy=True)
        self._dtype = like.dtype

    def update(self, theta: Tensor) -> None:
        """Takes in the weights after one more step.

        Args:
            theta: θ, shape (d,).
        """
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self._average.mul_(decay).add_(theta.detach(), alpha=1.0 - decay)
        self.updates += 1

    def value(self) -> Tensor:
        """The average, shape (d,), in the dtype of the weights; before the first update, what it was made like."""
        return self._average.to(self._dtype, copy=True)

    def state_dict(self) -> dict[str, Any]:
        """Plain values and one tensor from which the average continues bit for bit."""
        return {"updates": self.updates, "average": self._average.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues a stored average."""
        self.updates = state["updates"]
        self._average = state["average"].to(self._average, copy=True)
