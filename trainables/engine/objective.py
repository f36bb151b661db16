"""Stage 1, the objective: at which points the loss is taken. DPLIS smooths it with public randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Objective", "Plain", "Points", "Smoothed"]


@dataclass(frozen=True, kw_only=True)
class Points:
    """Where the loss is taken: a sample's gradient is `scale` · (sum over the points) + `decay` · `centre`.

    The perturbed parameters are made when they are asked for, and the same each time, so that K of them need not be
    held at once.

    Attributes:
        centre: θ, shape (d,).
        scale: 1/K for a mean, 1 for a sum.
        seeds: one a perturbed point; none means the centre alone.
        spread: standard deviation of the perturbations, per coordinate.
        decay: λ of weight decay before the clip, which knows nothing of the perturbations.
    """

    centre: Tensor
    scale: float = 1.0
    seeds: tuple[int, ...] = ()
    spread: float = 0.0
    decay: float = 0.0

    def __len__(self) -> int:
        """K."""
        return max(len(self.seeds), 1)

    @property
    def at_centre(self) -> bool:
        """Whether the loss is taken at θ itself and nowhere else."""
        return not self.seeds

    def theta(self, index: int) -> Tensor:
        """The parameters of one point, shape (d,)."""
        return self.stacked(index, index + 1)[0]

    def stacked(self, start: int, stop: int) -> Tensor:
        """The parameters of some points in a row, shape (stop - start, d)."""
        if not self.seeds:
            return self.centre[None]
        if self.spread == 0:
            return self.centre.expand(stop - start, -1)
        points = torch.empty(stop - start, *self.centre.shape, dtype=self.centre.dtype, device=self.centre.device)
        public = torch.Generator(self.centre.device)
        for row, seed in zip(points, self.seeds[start:stop], strict=True):
            row.normal_(generator=public.manual_seed(seed))
        return torch.add(self.centre, points, alpha=self.spread, out=points)


class Objective(Protocol):
    """Chooses the points; sees no record."""

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """The points of one step.

        Args:
            theta: the parameters, shape (d,).
            noise_scale: standard deviation per coordinate of what the step's noise adds to the parameters,
                learning rate · noise_multiplier · C / b.
            public: data-independent randomness that need not be secret.
        """
        ...


@dataclass(frozen=True)
class Plain:
    """The loss itself, at θ."""

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """One point, θ; nothing is drawn."""
        del noise_scale, public
        return Points(centre=theta)


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """DPLIS (equation 6): L(θ) → (1/K) Σ_j L(θ + R·(η/b)·ν_j), ν_j ~ N(0, noise_multiplier²·C²·I).

    η is the scheduled rate of the step. One ν_j serves all samples of the batch, so before the clip each sample's
    gradient still depends on that sample alone.

    Attributes:
        radius: R.
        samples: K.
        reduction: 'mean' divides by K (the paper's equation), 'sum' does not (the authors' code).
    """

    radius: float
    samples: int
    reduction: str = "mean"

    def points(self, theta: Tensor, *, noise_scale: float, public: torch.Generator) -> Points:
        """θ + R · noise_scale · z_j with z_j ~ N(0, I) of `public`, j = 1..K."""
        seeds = torch.randint(2**63 - 1, (self.samples,), generator=public)
        return Points(
            centre=theta,
            scale=1.0 / self.samples if self.reduction == "mean" else 1.0,
            seeds=tuple(seeds.tolist()),
            spread=self.radius * noise_scale,
        )
