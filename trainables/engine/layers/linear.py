"""nn.Linear and LinearTap: the factors are the layer's inputs and output gradients themselves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from trainables.engine.layers.collecting import OuterCollector
from trainables.engine.layers.common import Work, by_sample
from trainables.engine.layers.outer import Geometry
from trainables.engine.taps import LinearTap

__all__ = ["linear", "linear_tap"]


@dataclass(frozen=True)
class LinearGeometry(Geometry):
    """Geometry of z = W a + b at every position."""

    in_order: bool = True

    def right(self, prepared: Tensor, samples: int) -> Tensor:
        """Return the inputs as (B, positions, in)."""
        return by_sample(prepared, samples)

    def columns(self, weight: Tensor) -> Tensor:
        """Return the weight."""
        return weight

    def add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add them."""
        total += columns


@dataclass(frozen=True)
class TapGeometry(LinearGeometry):
    """Geometry of a tap: a parameter that is not a matrix is one column, as of a bias with the input 1."""

    in_order: bool = False

    def columns(self, weight: Tensor) -> Tensor:
        """Return the weight as (out, in)."""
        return weight if weight.dim() == 2 else weight.reshape(-1, 1)

    def add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add in the parameter's own shape."""
        total += columns.view(total.shape)


def linear(layer: nn.Linear, work: Work) -> OuterCollector:
    """Return a collector for nn.Linear."""
    return OuterCollector(LinearGeometry(bias=None if layer.bias is None else "bias"), work)


def linear_tap(layer: LinearTap, work: Work) -> OuterCollector:
    """Return a collector for a product in another module, with the names of the parameters there."""
    return OuterCollector(TapGeometry(weight=layer.weight_name, bias=layer.bias_name), work)
