"""Per-sample gradients that are sums of outer products, for linear layers and convolutions.

The gradient of sample i with respect to the weight is Σ_p dz_ip a_ipᵀ, with the inputs a and the output gradients dz.
The sum is over positions p: elements of a sequence or an image, copies of the sample, and the K points of a smoothed
loss. The squared norm is Σ_{p,q} (dz_ip·dz_iq)(a_ip·a_iq + 1), without the 1 if there is no bias (Gram form, or ghost
norm: Goodfellow 2015, Li et al. 2022). A weighted sum over samples is one matrix product (book-keeping: Bu et al.
2023). The alternative is to compute each sample's gradient explicitly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainables.engine.layers.common import Decay, Explicit, by_sample, zeroed
from trainables.engine.sums import add_weighted_outer, in_cache, not_negative, row_squares

__all__ = ["Factored", "FactoredDecay", "Geometry", "WrittenOut", "gram_squares", "prefer_factors", "written_out"]

# `python -m benchmarks.engine` shows whether these costs lead to the right choices.
_ENTRY_COST = 60  # cost of one entry of an explicit gradient, in multiply-adds of a matrix product
_DOUBLE_COST = 2  # cost of a product in float64, in products in float32


def prefer_factors(positions: int, inputs: int, outputs: int) -> bool:
    """Return whether the Gram form is likely to be cheaper than explicit gradients, for these lengths of a and dz."""
    entries = inputs * outputs
    if positions == 1:
        return True
    gram = _DOUBLE_COST * (positions**2 * (inputs + outputs) + positions * entries)
    return gram <= positions * entries + _ENTRY_COST * entries


def gram_squares(left: Tensor, right: Tensor, width: int) -> Tensor:
    """Return Σ_{p,q} left_pq · right_pq, plus a bound of its rounding error, shape (B,).

    `left` and `right` are Gram matrices in float64, whose entries are sums of products. `width` is the number
    of products in an entry of `left` plus the number in an entry of `right`.
    """
    longest = (left.diagonal(dim1=1, dim2=2) * right.diagonal(dim1=1, dim2=2)).sqrt().sum(1).square()
    terms = left.shape[1] ** 2 + width + 4
    return not_negative((left * right).sum((1, 2)).add_(longest, alpha=terms * torch.finfo(torch.float64).eps))


@dataclass(frozen=True)
class Geometry(ABC):
    """Conversion of a layer's inputs, output gradients and parameters to the matrices of a linear map.

    Attributes:
        weight: name of the weight in the layer.
        bias: name of the bias in the layer, or None.
        groups: number of channel groups of a convolution; else 1.
    """

    weight: str = "weight"
    bias: str | None = None
    groups: int = 1

    def left(self, values: Tensor, samples: int) -> Tensor:
        """Reshape outputs, or output gradients, to (B, positions, out)."""
        return by_sample(values, samples)

    def prepared(self, inputs: Tensor) -> Tensor:
        """Return the inputs in the form that `right` needs, padded if necessary."""
        return inputs

    @abstractmethod
    def right(self, prepared: Tensor, samples: int) -> Tensor:
        """Reshape prepared inputs to (B, positions, groups · in)."""

    @abstractmethod
    def columns(self, weight: Tensor) -> Tensor:
        """Reshape the weight to (out, in), with the inputs in the order of `right`."""

    @abstractmethod
    def add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add a gradient of shape (out, in) to `total`, which has the shape of the weight."""


@dataclass(frozen=True)
class FactoredDecay:
    """Weight decay of factored gradients: ‖g + λθ‖² = ‖g‖² + 2λ⟨g, θ⟩ + λ²‖θ‖².

    Attributes:
        strength: λ.
        centre: θ of the layer, by name.
        squares: ‖g_i‖², shape (B,), float64.
        products: ⟨g_i, θ⟩ plus a bound of its rounding error, shape (B,), float64. With this bound, cancellation never
            makes a norm too small.
    """

    strength: float
    centre: Mapping[str, Tensor]
    squares: Tensor
    products: Tensor

    def squared_norms(self) -> Tensor:
        """Return ‖g_i + λθ‖², shape (B,)."""
        square = torch.stack([value.double().square().sum() for value in self.centre.values()]).sum()
        return not_negative(self.squares + self.strength * (2.0 * self.products + self.strength * square))


@dataclass(frozen=True)
class Factored:
    """Per-sample gradients as factors: `left` is dz, shape (B, P, out), and `right` is a, shape (B, P, in)."""

    left: Tensor
    right: Tensor
    geometry: Geometry
    decay: FactoredDecay | None = None

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,). It is computed in float64, because the terms of a Gram form may cancel."""
        if self.decay is not None:
            return self.decay.squared_norms()
        bias = float(self.geometry.bias is not None)
        if self.left.shape[1] == 1:
            return row_squares(self.left) * (row_squares(self.right) + bias)
        squares = torch.empty(len(self.left), dtype=torch.float64, device=self.left.device)
        widest = self.left.shape[1] * max(self.left.shape[2], self.right.shape[2])
        for part in in_cache(len(self.left), widest, self.left.device):
            left, right = self.left[part].double(), self.right[part].double()
            squares[part] = gram_squares(left @ left.mT, right @ right.mT + bias, left.shape[2] + right.shape[2])
        return squares

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`. The sum for the weight is one matrix product."""
        geometry, total = self.geometry, totals[self.geometry.weight]
        columns = geometry.columns(total)
        if columns is total:
            add_weighted_outer(total, weights, self.left, self.right, block=block)
        else:
            columns = torch.zeros_like(columns)
            add_weighted_outer(columns, weights, self.left, self.right, block=block)
            geometry.add_columns(total, columns)
        if geometry.bias is not None:
            left = self.left[:, 0].double() if self.left.shape[1] == 1 else self.left.sum(1, dtype=torch.float64)
            totals[geometry.bias].add_(weights @ left)
        if self.decay is not None:
            scale = float(weights.sum()) * self.decay.strength
            for name, centre in self.decay.centre.items():
                totals[name].add_(centre, alpha=scale)

    def masked(self, kept: Tensor) -> Factored:
        """Return these gradients with 0 for samples that are not `kept`."""
        return replace(self, left=zeroed(self.left, kept), right=zeroed(self.right, kept))


@dataclass(frozen=True)
class WrittenOut:
    """Explicit per-sample gradients of a linear map: of shape (B, out, in) for the weight, (B, out) for the bias."""

    gradients: Explicit
    geometry: Geometry

    @classmethod
    def of(cls, parts: dict[str, Tensor], geometry: Geometry, decay: Decay | None) -> WrittenOut:
        """Return the gradients in `parts`, after adding the weight decay to them in place."""
        if decay is not None:
            for name, part in parts.items():
                centre = decay.centre[name]
                part.add_(geometry.columns(centre) if name == geometry.weight else centre, alpha=decay.strength)
        return cls(Explicit(parts), geometry)

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64."""
        return self.gradients.squared_norms()

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`."""
        name = self.geometry.weight
        columns = torch.zeros_like(self.geometry.columns(totals[name]))
        self.gradients.add_weighted_sum({**totals, name: columns}, weights, block=block)
        self.geometry.add_columns(totals[name], columns)

    def masked(self, kept: Tensor) -> WrittenOut:
        """Return these gradients with 0 for samples that are not `kept`."""
        return replace(self, gradients=self.gradients.masked(kept))


def written_out(factored: Factored, decay: Decay | None) -> WrittenOut:
    """Return the explicit gradients for the factors of a linear map, with weight decay added."""
    geometry, left = factored.geometry, factored.left
    parts = {geometry.weight: left.mT @ factored.right}
    if geometry.bias is not None:
        parts[geometry.bias] = left.sum(1)
    return WrittenOut.of(parts, geometry, decay)
