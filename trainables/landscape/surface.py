"""Slices through the loss over PUBLIC records, along random directions scaled to the model's filters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from search_spaces import Limits
from trainables.checks import refuse_illegal
from trainables.engine.layout import Layout, flat
from trainables.errors import HyperparameterError
from trainables.landscape.loss import PublicLoss

__all__ = ["LossSurface", "check_grid", "filter_normalised", "loss_surface"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LossSurface:
    """Loss on a grid around θ.

    Attributes:
        coordinates: rising coordinates α of the grid along a direction, shape (points,). The middle coordinate is 0,
            which is θ.
        losses: L(θ + Σ_k α_k d_k), shape (points,) for one direction, (points, points) for two.
        accuracies: accuracy at the same points.
    """

    coordinates: Tensor
    losses: Tensor
    accuracies: Tensor


def loss_surface(
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    extent: float = 0.8,
    points: int = 41,
    dimensions: int = 1,
    seed: int = 0,
    chunk: int = 2048,
) -> LossSurface:
    """Return loss and accuracy along one or two filter-normalised random directions (Li et al. 2018; DPLIS, 5.4).

    The first arguments are those of `PublicLoss`. The grid has `points` values of α from −extent to extent along each
    direction. `points` must be odd, so that θ is on the grid. `dimensions` is 1 for a line or 2 for a plane. With the
    same seed, models of the same shape get the same directions before scaling.
    """
    check_grid(extent, points=points, dimensions=dimensions)
    loss = PublicLoss(module, inputs, targets, chunk=chunk)
    generator = torch.Generator().manual_seed(seed)
    directions = [
        filter_normalised(torch.randn(loss.theta.shape, generator=generator).to(loss.theta), loss.theta, loss.layout)
        for _ in range(dimensions)
    ]
    if not all(bool(direction.any()) for direction in directions):
        raise HyperparameterError(
            "filters-missing",
            "The model must have a weight of two or more dimensions that is not zero everywhere.",
        )
    half = points // 2
    coordinates = torch.arange(-half, half + 1, dtype=torch.float64) * (extent / half)  # the middle one is exactly 0
    grid = torch.cartesian_prod(*[coordinates] * dimensions).reshape(-1, dimensions)
    scores = [
        loss.score(loss.theta + sum(float(a) * d for a, d in zip(place, directions, strict=True))) for place in grid
    ]
    shape = (points,) * dimensions
    return LossSurface(
        coordinates=coordinates,
        losses=torch.tensor([score.loss for score in scores], dtype=torch.float64).reshape(shape),
        accuracies=torch.tensor([score.accuracy for score in scores], dtype=torch.float64).reshape(shape),
    )


def check_grid(extent: float, *, points: int, dimensions: int) -> None:
    """Raise HyperparameterError for numbers that `loss_surface` cannot use."""
    refuse_illegal("extent", extent, Limits(low_open=True))
    refuse_illegal("points", points, Limits(low=3, integer=True))
    refuse_illegal("dimensions", dimensions, Limits(low=1, high=2, integer=True))
    if points % 2 == 0:
        raise HyperparameterError(
            "value-illegal", f"`points` must be odd (got {points}), so that the model itself is on the grid."
        )


def filter_normalised(direction: Tensor, theta: Tensor, layout: Layout) -> Tensor:
    """Return the direction, shape (d,), with each filter scaled to the norm of the model's filter: d_f ‖θ_f‖ / ‖d_f‖.

    A filter has the weights of one output: a row of a linear layer or a channel of a convolution. Biases and weights of
    normalisation layers have the direction 0, as in the plots of Li et al. The DPLIS paper prints the inverse of this
    factor, but its text asks for "the same norm as the corresponding filter".
    """
    parts = []
    for drawn, own in zip(layout.views(direction).values(), layout.views(theta).values(), strict=True):
        if own.dim() < 2:
            parts.append(torch.zeros_like(own))
            continue
        filters = drawn.flatten(1)
        norms = filters.norm(dim=1, keepdim=True)
        scale = torch.where(norms > 0, own.flatten(1).norm(dim=1, keepdim=True) / norms, 0.0)
        parts.append((filters * scale).reshape(own.shape))
    return flat(parts)
