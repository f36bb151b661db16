"""(C_ε, A)-sharpness: the largest rise of the loss over PUBLIC records in a small box around the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, nn

from search_spaces import Limits
from trainables.checks import refuse_illegal
from trainables.errors import TrainableError
from trainables.landscape.loss import PublicLoss

__all__ = ["Sharpness", "check_box", "sharpness"]

_HALVINGS = 12  # the shortest step is 1/4096 of the box
_SUFFICIENT = 1e-4  # a step is halved if the loss rises by less than this fraction of the predicted rise


@dataclass(frozen=True, kw_only=True)
class Sharpness:
    """Sharpness at θ, as found by a search for the largest loss in a box around θ.

    Attributes:
        value: (highest − loss) / (1 + loss) · 100, a LOWER bound of the sharpness.
        loss: L(θ).
        highest: largest loss found in the box, a lower bound of the maximum.
        by_start: sharpness found from each starting point; the first is θ. If the values differ much, the search may
            have missed the maximum.
    """

    value: float
    loss: float
    highest: float
    by_start: tuple[float, ...]


def sharpness(
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    radius: float = 0.0045,
    iterations: int = 20,
    restarts: int = 4,
    seed: int = 0,
    chunk: int = 2048,
) -> Sharpness:
    """Return the (C_ε, A)-sharpness with A = I (Keskar et al. 2017; DPLIS, definition 5) of the mean cross-entropy.

    It is 100 · (max L(θ+z) − L(θ)) / (1 + L(θ)) over the box |z_i| ≤ ε_s (|θ_i| + 1). The maximum is searched by
    conditional gradient ascent (Frank-Wolfe). A step goes towards the corner of the box that has the gradient's signs,
    and is halved until the loss rises. The result is at least 0 and at most the true sharpness, and the same in every
    run.

    The first arguments are those of `PublicLoss`. `radius` is ε_s. The search starts at θ and at `restarts` random
    corners of the box, chosen by the public `seed`, because the gradient may vanish at θ. It takes at most `iterations`
    gradient steps from each start.
    """
    check_box(radius, iterations=iterations, restarts=restarts)
    loss = PublicLoss(module, inputs, targets, chunk=chunk)
    theta = loss.theta
    reach = radius * (theta.abs() + 1)
    base = loss.loss(theta)
    if not isfinite(base):
        raise TrainableError("parameters-not-finite", f"The loss of the model must be finite (got {base}).")
    generator = torch.Generator().manual_seed(seed)
    tops = []
    for start in range(1 + restarts):
        signs = torch.zeros_like(theta) if start == 0 else _random_signs(theta, generator)
        tops.append(_climb(loss, theta, signs * reach, reach, iterations=iterations))
    highest = max(base, *tops)  # θ itself is in the box

    def value(top: float) -> float:
        return (max(base, top) - base) / (1 + base) * 100

    return Sharpness(value=value(highest), loss=base, highest=highest, by_start=tuple(value(top) for top in tops))


def check_box(radius: float, *, iterations: int, restarts: int) -> None:
    """Raise HyperparameterError for numbers that `sharpness` cannot use."""
    refuse_illegal("radius", radius, Limits())
    refuse_illegal("iterations", iterations, Limits(low=1, integer=True))
    refuse_illegal("restarts", restarts, Limits(integer=True))


def _random_signs(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, like.shape, generator=generator).to(like).mul_(2).sub_(1)


def _climb(loss: PublicLoss, theta: Tensor, start: Tensor, reach: Tensor, *, iterations: int) -> float:
    """Return the largest loss that gradient ascent in the box finds from θ + start."""
    z, height = start, loss.loss(theta + start)
    for _ in range(iterations):
        gradient = loss.gradient(theta + z)
        towards = torch.where(gradient == 0, z, gradient.sign() * reach) - z
        promised = float(gradient @ towards)
        if not promised > 0:
            break
        for step in (0.5**halving for halving in range(_HALVINGS + 1)):
            there = loss.loss(theta + z + step * towards)
            if there >= height + _SUFFICIENT * step * promised:
                break
        else:
            break
        if not there > height:  # the rise is below the rounding error
            break
        z, height = z + step * towards, there
    return height
