"""Taps: submodules that multiply a parameter with the data, inside modules that hooks cannot follow."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["LinearTap"]


class LinearTap(nn.Module):
    """Product x Wᵀ + b with parameters of the parent module; it may be called many times in a pass.

    Attributes:
        weight_name: name of W in the parent.
        bias_name: name of b there, or None.
    """

    def __init__(self, weight_name: str, bias_name: str | None = None) -> None:
        super().__init__()
        self.weight_name = weight_name
        self.bias_name = bias_name

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x Wᵀ + b.

        Args:
            x: shape (B, ..., in).
            weight: W, shape (out, in).
            bias: b, shape (out,).

        Returns:
            Shape (B, ..., out).
        """
        return nn.functional.linear(x, weight, bias)
