"""Rules for nn.Linear and LinearTap. Their gradients are outer products of output gradients and inputs."""

from __future__ import annotations

from torch import Tensor, nn

from trainables.engine.layers.collecting import OuterCollector
from trainables.engine.layers.common import Work, by_sample
from trainables.engine.layers.outer import Geometry

__all__ = ["LinearTap", "linear", "linear_tap"]


class LinearTap(nn.Module):
    """Product x Wᵀ + b with the parameters `weight_name` and `bias_name` of the parent module.

    Hooks can observe a LinearTap, but not a plain product. A forward pass may call it many times.
    """

    def __init__(self, weight_name: str, bias_name: str | None = None) -> None:
        super().__init__()
        self.weight_name = weight_name
        self.bias_name = bias_name

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x Wᵀ + b, shape (B, ..., out), from x, shape (B, ..., in), W, shape (out, in), and b, shape (out,)."""
        return nn.functional.linear(x, weight, bias)


class LinearGeometry(Geometry):
    """Geometry of z = W a + b at every position. If W is not a matrix, it is treated as one column with the input 1."""

    def right(self, prepared: Tensor, samples: int) -> Tensor:
        """Reshape the inputs to (B, positions, in)."""
        return by_sample(prepared, samples)

    def columns(self, weight: Tensor) -> Tensor:
        """Reshape the weight to (out, in)."""
        return weight if weight.dim() == 2 else weight.reshape(-1, 1)

    def add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add `columns` to `total`, which has the shape of the weight."""
        total += columns.view(total.shape)


def linear(layer: nn.Linear, work: Work) -> OuterCollector:
    """Return a collector for nn.Linear."""
    return OuterCollector(LinearGeometry(bias=None if layer.bias is None else "bias"), work)


def linear_tap(layer: LinearTap, work: Work) -> OuterCollector:
    """Return a collector for a LinearTap. It uses the names of the parameters in the parent module."""
    return OuterCollector(LinearGeometry(weight=layer.weight_name, bias=layer.bias_name), work)
