"""A place where a parameter meets the data, inside a module that uses it in its own way: what hooks can see."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["LinearTap"]


class LinearTap(nn.Module):
    """The product x Wᵀ + b with parameters that belong to the module around it; it may be called many times a pass.

    Attributes:
        weight_name: name of W in the module around this one.
        bias_name: name of b there; None where there is none.
    """

    def __init__(self, weight_name: str, bias_name: str | None = None) -> None:
        super().__init__()
        self.weight_name = weight_name
        self.bias_name = bias_name

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product x Wᵀ + b.

        Args:
            x: shape (B, ..., in).
            weight: W, shape (out, in).
            bias: b, shape (out,).

        Returns:
            Shape (B, ..., out).
        """
        return nn.functional.linear(x, weight, bias)
