"""Layers whose gradient is a sum of outer products: linear maps and, on patches of their input, convolutions.

The gradient of sample i by the weight is Σ_p dz_ip a_ipᵀ over its positions p: of a sequence or an image, of the copies
of the sample, and of the K points of a smoothed loss. Its squared norm is Σ_{p,q} (dz_ip·dz_iq)(a_ip·a_iq + 1),
the 1 where there is a bias (the Gram form, or ghost norm: Goodfellow 2015, Li et al. 2022), and a weighted sum over
samples is one matrix product (book-keeping: Bu et al. 2023). The alternative is to compute the products per sample.
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

# The cost to write, measure and sum one entry of an explicit gradient, in multiply-adds of a matrix product; and the
# slowdown of a product in float64. `python -m benchmarks.engine` shows whether the choice is right.
_ENTRY_COST = 60
_DOUBLE_COST = 2


def prefer_factors(positions: int, inputs: int, outputs: int) -> bool:
    """Return whether the Gram form is expected to be cheaper than explicit gradients.

    Args:
        positions: of one sample, over all points and copies.
        inputs: length of a.
        outputs: length of dz.
    """
    entries = inputs * outputs
    if positions == 1:
        return True
    gram = _DOUBLE_COST * (positions**2 * (inputs + outputs) + positions * entries)
    return gram <= positions * entries + _ENTRY_COST * entries


def gram_squares(left: Tensor, right: Tensor, width: int) -> Tensor:
    """Return Σ_{p,q} left_pq · right_pq plus a bound of its rounding, which dominates if the terms cancel.

    Args:
        left: Gram matrices, shape (B, P, P), float64.
        right: Gram matrices, shape (B, P, P), float64.
        width: number of products in the sums of an entry of each together.

    Returns:
        Shape (B,).
    """
    longest = (left.diagonal(dim1=1, dim2=2) * right.diagonal(dim1=1, dim2=2)).sqrt().sum(1).square()
    terms = left.shape[1] ** 2 + width + 4
    return not_negative((left * right).sum((1, 2)).add_(longest, alpha=terms * torch.finfo(torch.float64).eps))


@dataclass(frozen=True)
class Geometry(ABC):
    """Conversion of a layer's calls to factors.

    Attributes:
        weight: name of the weight in the layer.
        bias: name of the bias, None where there is none.
        groups: of a convolution; the output channels of a group see its input channels only.
        in_order: whether `columns` returns the weight unchanged.
    """

    weight: str = "weight"
    bias: str | None = None
    groups: int = 1
    in_order: bool = False

    def left(self, values: Tensor, samples: int) -> Tensor:
        """Return outputs or their gradients as dz, (B, positions, out)."""
        return by_sample(values, samples)

    def prepared(self, inputs: Tensor) -> Tensor:
        """Return the inputs for `right`, padded if necessary, for any number of samples."""
        return inputs

    @abstractmethod
    def right(self, prepared: Tensor, samples: int) -> Tensor:
        """Return prepared inputs as a, (B, positions, groups · in)."""

    @abstractmethod
    def columns(self, weight: Tensor) -> Tensor:
        """Return the weight as (out, in), in the order of `right`."""

    @abstractmethod
    def add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add a gradient (out, in) to a total of the weight's own shape."""


@dataclass(frozen=True)
class FactoredDecay:
    """Weight decay of factored gradients: ‖g + λθ‖² = ‖g‖² + 2λ⟨g, θ⟩ + λ²‖θ‖².

    Attributes:
        strength: λ.
        centre: θ of the layer, by name.
        squares: ‖g_i‖², shape (B,), float64.
        products: ⟨g_i, θ⟩ plus a bound of its rounding, shape (B,), float64: without the bound, cancellation could make
            a norm far too small.
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
    """Per-sample gradients as factors.

    Attributes:
        left: dz, shape (B, P, out).
        right: a, shape (B, P, in).
        geometry: of the layer.
        decay: weight decay before the clip, if any.
    """

    left: Tensor
    right: Tensor
    geometry: Geometry
    decay: FactoredDecay | None = None

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64: a Gram form subtracts, and float32 would clip too little."""
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
        """Add the weighted sum by one product for the weight, with no gradient of a single sample."""
        geometry, total = self.geometry, totals[self.geometry.weight]
        if geometry.in_order:
            add_weighted_outer(total, weights, self.left, self.right, block=block)
        else:
            columns = torch.zeros_like(geometry.columns(total))
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
        """Return the same with zeros where `kept` is False."""
        return replace(self, left=zeroed(self.left, kept), right=zeroed(self.right, kept))


@dataclass(frozen=True)
class WrittenOut:
    """Outer products summed over the positions of each sample, in the order of the factors.

    Attributes:
        gradients: the weight's as (B, out, in), the bias' as (B, out).
        geometry: of the layer.
    """

    gradients: Explicit
    geometry: Geometry

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64."""
        return self.gradients.squared_norms()

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add the weighted sum in the parameters' own order."""
        name = self.geometry.weight
        columns = torch.zeros_like(self.geometry.columns(totals[name]))
        self.gradients.add_weighted_sum({**totals, name: columns}, weights, block=block)
        self.geometry.add_columns(totals[name], columns)

    def masked(self, kept: Tensor) -> WrittenOut:
        """Return the same with zeros where `kept` is False."""
        return replace(self, gradients=self.gradients.masked(kept))


def written_out(factored: Factored, decay: Decay | None) -> WrittenOut:
    """Return the products of a linear map's factors, summed over each sample's positions: cheaper if these are many.

    Args:
        factored: without decay.
        decay: weight decay before the clip, if any.
    """
    geometry, left = factored.geometry, factored.left
    parts = {geometry.weight: left.mT @ factored.right}
    if geometry.bias is not None:
        parts[geometry.bias] = left.sum(1)
    if decay is not None:
        for name, part in parts.items():
            centre = decay.centre[name]
            part.add_(geometry.columns(centre) if name == geometry.weight else centre, alpha=decay.strength)
    return WrittenOut(Explicit(parts), geometry)
