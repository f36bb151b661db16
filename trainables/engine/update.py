"""Updates of the parameters from the noised gradient: SGD with momentum, Adam, Adam without the noise's share, decay.

An update sees the noised gradient and public numbers only, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Adam", "CorrectedAdam", "Sgd", "Update", "decoupled_decay"]


class Update(Protocol):
    """Optimizer over one flat vector."""

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the direction, shape (d,). The caller subtracts η times the direction from θ."""

    def step_noise(self, *, noise: float, signal: float) -> float:
        """Return about the standard deviation of the noise in a direction, per coordinate.

        Args:
            noise: standard deviation of the noise in the gradient, per coordinate.
            signal: the largest root mean square of the gradient without noise.
        """

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

    def step_noise(self, *, noise: float, signal: float) -> float:
        """Return the noise of the gradient."""
        del signal
        return noise

    def state_dict(self) -> dict[str, Tensor]:
        """Return the velocity. Without momentum, the state is empty."""
        return {} if self._velocity is None else {"velocity": self._velocity}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the velocity."""
        if self._velocity is not None:
            self._velocity = state["velocity"].to(self._velocity)


class Adam:
    """Adam (Kingma & Ba 2015). The defaults are those of torch.optim.Adam.

    Args:
        like: vector with the shape, dtype and device of θ.
        beta1: decay of the mean, in [0, 1).
        beta2: decay of the mean square, in [0, 1).
        floor: number that is added to the root of the mean square.
    """

    def __init__(self, like: Tensor, *, beta1: float = 0.9, beta2: float = 0.999, floor: float = 1e-8) -> None:
        self._decays, self._floor = (beta1, beta2), floor
        self._mean = torch.zeros_like(like)
        self._square = torch.zeros_like(like)
        self._count = 0

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the bias-corrected mean divided by the root of the bias-corrected mean square."""
        self._count += 1
        beta1, beta2 = self._decays
        self._mean = beta1 * self._mean + (1 - beta1) * gradient
        self._square = beta2 * self._square + (1 - beta2) * gradient**2
        mean = self._mean / (1 - beta1**self._count)
        square = self._square / (1 - beta2**self._count)
        return mean / (self._second_moment(square).sqrt() + self._floor)

    def _second_moment(self, square: Tensor) -> Tensor:
        """Return the second moment by which the mean is divided, shape (d,)."""
        return square

    def step_noise(self, *, noise: float, signal: float) -> float:
        """Return noise / √(noise² + signal²): Adam divides by the root of the mean square of the noised gradient."""
        return noise / hypot(noise, signal) if noise else 0.0

    def state_dict(self) -> dict[str, Tensor]:
        """Return both moments and the number of steps."""
        return {"mean": self._mean, "square": self._square, "count": torch.tensor(self._count)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the moments and the number of steps."""
        self._mean = state["mean"].to(self._mean)
        self._square = state["square"].to(self._square)
        self._count = int(state["count"])


class CorrectedAdam(Adam):
    """Adam without the noise's share in the second moment (DP-AdamBC, Tang, Shpilevskiy & Lecuyer 2024).

    The mean square of a noised gradient is too large by the variance Φ of the noise, which is public. The direction is
    m̂ / (√max(v̂ - Φ, κ²Φ) + floor). The paper's floor γ′ is κ²Φ here, so it needs no new value for another noise, clip
    or batch size. Without noise, this is Adam.

    Args:
        like: vector with the shape, dtype and device of θ.
        variance: Φ, the variance of the noise in a gradient after post-processing: one number, or one for each
            coordinate, shape (d,).
        noise_floor: κ, above 0.
        **adam: arguments of `Adam`.
    """

    def __init__(self, like: Tensor, *, variance: float | Tensor, noise_floor: float, **adam: float) -> None:
        super().__init__(like, **adam)
        self._variance = torch.as_tensor(variance, dtype=like.dtype, device=like.device)
        self._noise_floor = noise_floor

    def _second_moment(self, square: Tensor) -> Tensor:
        return torch.maximum(square - self._variance, self._noise_floor**2 * self._variance)

    def step_noise(self, *, noise: float, signal: float) -> float:
        """Return noise / √max(signal², κ²·noise²)."""
        return noise / max(signal, self._noise_floor * noise) if noise else 0.0


def decoupled_decay(theta: Tensor, direction: Tensor, *, learning_rate: float, weight_decay: float) -> Tensor:
    """Return (1 - ηλ)·θ - η·direction, all of shape (d,), with the learning rate η and the weight decay λ."""
    kept = (1.0 - learning_rate * weight_decay) * theta if weight_decay else theta
    return torch.sub(kept, direction, alpha=learning_rate)
