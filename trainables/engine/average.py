"""Exponential moving average of the weights; it is free because it is post-processing of released weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainables.checks import refuse_illegal

__all__ = ["WeightAverage"]


class WeightAverage:
    """Average ā ← d_t ā + (1 - d_t) θ_t with d_t = min(decay, (1 + t) / (10 + t)), t = 0, 1, … (De et al. 2022).

    The warm-up forgets the first weights: until t is about 9 / (1 - decay), the average covers a fraction of the steps
    taken, and not 1 / (1 - decay) steps.

    Attributes:
        decay: d, in [0, 1); 0 is the last weights themselves.
        updates: t, the number of weights in it.

    Raises:
        HyperparameterError: decay is illegal.
    """

    def __init__(self, like: Tensor, *, decay: float) -> None:
        refuse_illegal("ema_decay", decay)
        self.decay = decay
        self.updates = 0
        # In float64: with a decay of 0.9999 a step adds 1e-4 of a difference, which float32 would round away.
        self._average = like.detach().to(torch.float64, copy=True)
        self._dtype = like.dtype

    def update(self, theta: Tensor) -> None:
        """Add the weights after one more step.

        Args:
            theta: θ, shape (d,).
        """
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self._average.mul_(decay).add_(theta.detach(), alpha=1.0 - decay)
        self.updates += 1

    def value(self) -> Tensor:
        """Return the average, shape (d,), in the dtype of the weights; before the first update the initial weights."""
        return self._average.to(self._dtype, copy=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the average continues bit for bit."""
        return {"updates": self.updates, "average": self._average.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a stored average."""
        self.updates = state["updates"]
        self._average = state["average"].to(self._average, copy=True)
