"""Input perturbation: training on one noisy copy of the records (`trainables.release`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainables.hyperparameters import Hyperparameters


@dataclass(frozen=True, kw_only=True)
class InputPerturbation(Hyperparameters):
    """Hyper-parameters of a training on a release. No gradient is clipped or noised.

    Attributes:
        weight_decay: λ of the L2 term λ/2·‖θ‖² of the loss.
        feature_gain: factor of the first layer's weights after training. Noise on the features shrinks these weights.
    """

    on_release: ClassVar[bool] = True
    weight_decay: float = 1e-4
    feature_gain: float = 1.0


METHOD = InputPerturbation
