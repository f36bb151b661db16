"""Sharpness and slices of one model as plain values, ready for a file."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainables.landscape import LossSurface

__all__ = ["measured"]


def measured(
    module: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    radius: float,
    iterations: int,
    restarts: int,
    extent: float,
    points: int,
    plane: int | None,
    seed: int,
) -> dict[str, Any]:
    """Measure one model, on a GPU if there is one.

    Args:
        module: the model.
        inputs: PUBLIC records.
        targets: labels of the records.
        radius: ε_s of the sharpness.
        iterations: gradient steps of each start of the search for the sharpness.
        restarts: random starts, in addition to the one at the model.
        extent: extent of the slices.
        points: points of the line.
        plane: points along each side of a plane; None draws none.
        seed: public seed.
    """
    import torch

    from trainables.landscape import loss_surface, sharpness

    module = module.to("cuda" if torch.cuda.is_available() else "cpu")
    found = sharpness(module, inputs, targets, radius=radius, iterations=iterations, restarts=restarts, seed=seed)

    def surface(points: int, dimensions: int) -> LossSurface:
        return loss_surface(module, inputs, targets, extent=extent, points=points, dimensions=dimensions, seed=seed)

    line = surface(points, 1)
    return {
        "loss": found.loss,
        "accuracy": float(line.accuracies[points // 2]),
        "sharpness": {"value": found.value, "highest_loss": found.highest, "by_start": list(found.by_start)},
        "line": _plain(line),
        "plane": None if plane is None else _plain(surface(plane, 2)),
    }


def _plain(surface: LossSurface) -> dict[str, Any]:
    """Return a surface as plain JSON values; values that are not finite become null."""

    def finite(value: Any) -> Any:  # noqa: ANN401 - nested lists of numbers
        if isinstance(value, list):
            return [finite(each) for each in value]
        return value if isfinite(value) else None

    return {
        "coordinates": surface.coordinates.tolist(),
        "losses": finite(surface.losses.tolist()),
        "accuracies": finite(surface.accuracies.tolist()),
    }
