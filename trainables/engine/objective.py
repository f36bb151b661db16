"""Stage 1, the objective: the points at which the loss is evaluated. DPLIS perturbs θ with public randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Objective", "Plain", "Points", "Smoothed"]


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points at which the loss is evaluated.

    A sample's gradient is `scale` · (sum of its gradients at all points) + `decay` · `centre`. Perturbed points are
    computed from their seeds on each request, so that K vectors need not be stored.

    Attributes:
        centre: θ, shape (d,).
        scale: 1/K for a mean, 1 for a sum.
        seeds: seed of each perturbed point; empty if θ itself is the only point.
        spread: standard deviation of the perturbations, per coordinate.
        decay: λ of weight decay before the clip, which uses the unperturbed θ.
    """

    centre: Tensor
    scale: float = 1.0
    seeds: tuple[int, ...] = ()
    spread: float = 0.0
    decay: float = 0.0

    def __len__(self) -> int:
        """Return K, the number of points."""
        return max(len(self.seeds), 1)

    @property
    def at_centre(self) -> bool:
        """Whether θ itself is the only point."""
        return not self.seeds

    def theta(self, index: int) -> Tensor:
        """Return the parameters of one point, shape (d,)."""
        return self.stacked(index, index + 1)[0]

    def stacked(self, start: int, stop: int) -> Tensor:
        """Return the parameters of consecutive points, shape (stop - start, d)."""
        if not self.seeds:
            return self.centre[None]
        if self.spread == 0:
            return self.centre.expand(stop - start, -1)
        # The CPU draws for every device: what a GPU's generator draws depends on the number of its multiprocessors.
        drawn = torch.empty(stop - start, *self.centre.shape, dtype=self.centre.dtype)
        public = torch.Generator()
        for row, seed in zip(drawn, self.seeds[start:stop], strict=True):
            row.normal_(generator=public.manual_seed(seed))
        points = drawn.to(self.centre.device)
        return torch.add(self.centre, points, alpha=self.spread, out=points)


class Objective(Protocol):
    """Rule that chooses the points at which the loss is evaluated. The choice is independent of the records."""

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """Return the points of one step.

        Args:
            theta: θ, shape (d,).
            noise_scale: standard deviation of the step's noise in θ, per coordinate: η · noise_multiplier · C / b.
            public: randomness that is independent of the records and need not be secret.
        """


@dataclass(frozen=True)
class Plain:
    """Plain loss at θ."""

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """Return θ as the only point. No random number is drawn."""
        del noise_scale, public
        return Points(centre=theta)


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """Smoothed loss of DPLIS (equation 6): L(θ) → (1/K) Σ_j L(θ + R·(η/b)·ν_j), ν_j ~ N(0, noise_multiplier²·C²·I).

    η is the scheduled rate of the step. Each ν_j is the same for all samples and independent of them, so a sample's
    gradient still depends on no other sample.

    Attributes:
        radius: R.
        samples: K.
        reduction: 'mean' divides by K (the paper's equation), 'sum' does not (the authors' code).
    """

    radius: float
    samples: int
    reduction: str = "mean"

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """Return θ + R · noise_scale · z_j for j = 1..K. `public` draws z_j ~ N(0, I)."""
        seeds = torch.randint(2**63 - 1, (self.samples,), generator=public)
        return Points(
            centre=theta,
            scale=1.0 / self.samples if self.reduction == "mean" else 1.0,
            seeds=tuple(seeds.tolist()),
            spread=self.radius * noise_scale,
        )
