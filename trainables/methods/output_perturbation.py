"""Output perturbation: the minimum of a convex loss, plus noise (`trainables.convex.output`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainables.errors import HyperparameterError
from trainables.hyperparameters import Hyperparameters


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(Hyperparameters):
    """Hyper-parameters of a perturbed minimum. No gradient is clipped; inputs are.

    Attributes:
        weight_decay: λ of the L2 term λ/2·‖θ‖² of the loss, above 0.
        feature_clip: C, the largest norm of an input.
    """

    at_once: ClassVar[bool] = True
    weight_decay: float = 1e-4
    feature_clip: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay == 0:
            raise HyperparameterError(
                "convex-not-strong",
                f"`weight_decay` must be above 0 for a minimum that is perturbed (got {self.weight_decay!r}). Without "
                "it, one record can move the minimum without limit.",
            )


METHOD = OutputPerturbation
