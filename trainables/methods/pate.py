"""PATE's student: training on public inputs with labels that teachers voted for (`trainables.release.votes`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trainables.hyperparameters import Hyperparameters
from trainables.promotion import Promotion

if TYPE_CHECKING:
    from trainables.engine.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Student(Hyperparameters):
    """Hyper-parameters of a student. No gradient is clipped or noised.

    Attributes:
        smoothing_sigma: standard deviation of the perturbations of each weight (DPLIS, appendix D); 0 is none. It is
            absolute, because a student's step has no noise that could scale it.
        smoothing_samples: K, as one number or as levels that rise within the trial.
        weight_decay: λ of the L2 term λ/2·‖θ‖² of the loss.
    """

    on_release: ClassVar[bool] = True
    on_votes: ClassVar[bool] = True
    smoothing_sigma: float = 0.0
    smoothing_samples: int | Promotion = 10
    weight_decay: float = 1e-4

    def objective(self, step: int) -> Objective:
        """Return the loss's points at this step: L(θ) → (1/K) Σ_j L(θ + σ·z_j), with the K of the step's level."""
        from trainables.engine.objective import Plain, Smoothed

        if self.smoothing_sigma == 0:
            return Plain()
        samples = self.smoothing_samples
        if isinstance(samples, Promotion):
            samples = [level for start, level in zip(samples.from_step, samples.levels, strict=True) if start <= step][
                -1
            ]
        return Smoothed(radius=self.smoothing_sigma, samples=samples)


METHOD = Student
