"""Mechanism of one private training step, and checks of ε, δ and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from tuner.errors import InputError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["SampledGaussian", "is_real_number", "require_delta", "require_epsilon", "require_steps"]


@dataclass(frozen=True, order=True)
class SampledGaussian:
    """The Poisson-sampled Gaussian mechanism: the sampling and the noise of one step of DP-SGD.

    Formal guarantees:
        Adjacency is add-or-remove-one. Every record enters the batch independently with probability `sample_rate`. The
        sum of vectors of norm at most C gets Gaussian noise of standard deviation `noise_multiplier` · C per
        coordinate. The sum is then divided by a public number. Nothing is claimed for shuffled or fixed-size batches.

    Args:
        sample_rate: expected batch size divided by the public number of training records, in (0, 1].
        noise_multiplier: standard deviation of the noise divided by the clipping norm, positive and finite.

    Raises:
        InputError: a value is out of range, NaN or infinite. Accounting libraries may return ε = 0 for NaN.
    """

    sample_rate: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not (is_real_number(self.sample_rate) and 0 < self.sample_rate <= 1):
            raise InputError(
                "sample-rate-out-of-range",
                f"The sample rate must be above 0 and at most 1 (got {self.sample_rate!r}). "
                "Choose a batch size between 1 and the public number of training records.",
            )
        if not (
            is_real_number(self.noise_multiplier) and isfinite(self.noise_multiplier) and self.noise_multiplier > 0
        ):
            raise InputError(
                "noise-out-of-range",
                f"The noise multiplier must be finite and above 0 (got {self.noise_multiplier!r}). "
                "Write a positive number, or `auto` to calibrate it.",
            )
        # 1 and 1.0 must be the same mechanism in every hash and cache.
        object.__setattr__(self, "sample_rate", float(self.sample_rate))
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))

    def event(self, steps: int) -> DpEvent:
        """Return the dp_accounting event of `steps` adaptively composed steps; `steps` must be at least 1."""
        require_steps(steps, minimum=1)
        import dp_accounting

        return dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(self.sample_rate, dp_accounting.GaussianDpEvent(self.noise_multiplier)),
            steps,
        )

    def body(self) -> dict[str, float]:
        """Return the mechanism as plain JSON, for the ledger."""
        return {"sample_rate": self.sample_rate, "noise_multiplier": self.noise_multiplier}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the mechanism from its JSON."""
        return cls(body["sample_rate"], body["noise_multiplier"])


def require_steps(steps: int, *, minimum: int, name: str = "steps") -> None:
    """Raise `InputError` unless `steps` is a whole number of at least `minimum`."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < minimum:
        raise InputError(
            "count-out-of-range", f"`{name}` must be a whole number of at least {minimum} (got {steps!r})."
        )


def require_epsilon(epsilon: float, *, name: str = "epsilon") -> None:
    """Raise `InputError` unless `epsilon` is finite and above 0."""
    if not (is_real_number(epsilon) and isfinite(epsilon) and epsilon > 0):
        raise InputError("epsilon-out-of-range", f"`{name}` must be finite and above 0, such as 1.0 (got {epsilon!r}).")


def require_delta(delta: float, *, name: str = "delta") -> None:
    """Raise `InputError` unless `delta` is above 0 and below 1."""
    if not (is_real_number(delta) and 0 < delta < 1):
        raise InputError(
            "delta-out-of-range",
            f"`{name}` must be above 0 and below 1 (got {delta!r}). For n records, write less than 1/n, such as 1e-6.",
        )


def is_real_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float; False for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)
