"""Output perturbation: the minimum of a convex loss, plus noise (`trainables.convex.output`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from trainables.errors import HyperparameterError
from trainables.hyperparameters import Hyperparameters

LEAST_WEIGHT_DECAY: Final = 1e-8
"""Least weight decay. Below it, a solver in double precision may not find the minimum."""


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(Hyperparameters):
    """Hyper-parameters of a perturbed minimum. No gradient is clipped; inputs are.

    Attributes:
        weight_decay: λ of the L2 term λ/2·‖θ‖² of the loss, at least LEAST_WEIGHT_DECAY.
        feature_clip: C, the largest norm of an input.
    """

    at_once: ClassVar[bool] = True
    weight_decay: float = 1e-4
    feature_clip: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay < LEAST_WEIGHT_DECAY:
            raise HyperparameterError(
                "convex-not-strong",
                f"`weight_decay` must be at least {LEAST_WEIGHT_DECAY:g} for output and objective perturbation (got "
                f"{self.weight_decay!r}). Without weight decay, one record can move the minimum without limit.",
            )


METHOD = OutputPerturbation
