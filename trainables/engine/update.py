"""Updates of the parameters from the noised gradient: SGD with momentum, Adam, and decoupled weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Adam", "Sgd", "Update", "decoupled_decay"]


class Update(Protocol):
    """Optimizer over one flat vector."""

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the direction, shape (d,). The caller subtracts η times the direction from θ."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""


class Sgd:
    """SGD with momentum m. The direction is v ← m·v + g̃, as in torch.optim.SGD without dampening."""

    def __init__(self, like: Tensor, *, momentum: float = 0.0) -> None:
        self._momentum = momentum
        self._velocity = torch.zeros_like(like) if momentum else None

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the velocity after this gradient."""
        if self._velocity is None:
            return gradient
        self._velocity = torch.add(gradient, self._velocity, alpha=self._momentum)
        return self._velocity

    def state_dict(self) -> dict[str, Tensor]:
        """Return the velocity. Without momentum, the state is empty."""
        return {} if self._velocity is None else {"velocity": self._velocity}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the velocity."""
        if self._velocity is not None:
            self._velocity = state["velocity"].to(self._velocity)


class Adam:
    """Adam (Kingma & Ba 2015), with the constants of torch.optim.Adam."""

    MEAN_DECAY = 0.9
    SQUARE_DECAY = 0.999
    FLOOR = 1e-8

    def __init__(self, like: Tensor) -> None:
        self._mean = torch.zeros_like(like)
        self._square = torch.zeros_like(like)
        self._count = 0

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the bias-corrected mean divided by the root of the bias-corrected mean square."""
        self._count += 1
        self._mean = self.MEAN_DECAY * self._mean + (1 - self.MEAN_DECAY) * gradient
        self._square = self.SQUARE_DECAY * self._square + (1 - self.SQUARE_DECAY) * gradient**2
        mean = self._mean / (1 - self.MEAN_DECAY**self._count)
        square = self._square / (1 - self.SQUARE_DECAY**self._count)
        return mean / (square.sqrt() + self.FLOOR)

    def state_dict(self) -> dict[str, Tensor]:
        """Return both moments and the number of steps."""
        return {"mean": self._mean, "square": self._square, "count": torch.tensor(self._count)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the moments and the number of steps."""
        self._mean = state["mean"].to(self._mean)
        self._square = state["square"].to(self._square)
        self._count = int(state["count"])


def decoupled_decay(theta: Tensor, direction: Tensor, *, learning_rate: float, weight_decay: float) -> Tensor:
    """Return (1 - ηλ)·θ - η·direction, all of shape (d,), with the learning rate η and the weight decay λ."""
    kept = (1.0 - learning_rate * weight_decay) * theta if weight_decay else theta
    return torch.sub(kept, direction, alpha=learning_rate)
