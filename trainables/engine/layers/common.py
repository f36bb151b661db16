"""Protocols of the layers: from inputs and output gradients to norms and sums of per-sample gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from trainables.engine.sums import add_weighted_rows, row_squares

__all__ = ["Call", "Collector", "Decay", "Explicit", "LayerGradients", "Work", "by_sample", "zeroed"]


@dataclass(frozen=True)
class Call:
    """One use of a layer in one pass.

    Attributes:
        inputs: shape (B·copies, ...), copies of a sample next to each other.
        outputs: shape (B·copies, ...).
        deltas: gradient of the scaled loss by the outputs, of their shape.
        fixed: whether the input is the same at all points: then K gradients by the output add up to one.
    """

    inputs: Tensor
    outputs: Tensor
    deltas: Tensor
    fixed: bool


@dataclass(frozen=True)
class Work:
    """Sizes of a chunk, by which a layer chooses its algorithm and memory is estimated.

    Attributes:
        samples: B.
        points: K.
    """

    samples: int
    points: int


@dataclass(frozen=True)
class Decay:
    """Weight decay λ · (a layer's parameters at the centre), added to each sample's gradient.

    Attributes:
        strength: λ.
        centre: the layer's parameters by their name in the layer.
        at_centre: whether the loss was evaluated only at these parameters.
    """

    strength: float
    centre: Mapping[str, Tensor]
    at_centre: bool


class LayerGradients(Protocol):
    """Gradients of B samples by one layer's parameters."""

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64, never too small."""
        ...

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`.

        Args:
            totals: for each parameter, by its name in the layer, a view of its shape into one vector.
            weights: shape (B,), float64.
            block: see `trainables.engine.sums`.
        """
        ...

    def masked(self, kept: Tensor) -> LayerGradients:
        """Return the same with zeros, even for NaN, where `kept`, shape (B,), is False."""
        ...


class Collector(Protocol):
    """Collector of the calls of a layer, point by point."""

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Add the calls of the layer in the pass at one point.

        Args:
            calls: in order; none when the pass did not use the layer.
            parameters: of the layer at that point, by their name in the layer.
        """
        ...

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Return the gradients of all calls."""
        ...

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Return about how many numbers such calls at all points keep in memory, for choosing the chunk."""
        ...


@dataclass(frozen=True)
class Explicit:
    """Explicit per-sample gradients: for each parameter a tensor of shape (B, ...) in the parameter's own order."""

    parts: dict[str, Tensor]

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64."""
        return torch.stack([row_squares(part) for part in self.parts.values()]).sum(0)

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add the weighted sum."""
        for name, part in self.parts.items():
            add_weighted_rows(totals[name].view(-1), weights, part.reshape(len(part), -1), block=block)

    def masked(self, kept: Tensor) -> Explicit:
        """Return the same with zeros where `kept` is False."""
        return replace(self, parts={name: zeroed(part, kept) for name, part in self.parts.items()})


def zeroed(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the rows with zeros where `kept` is False."""
    return torch.where(kept.view(-1, *[1] * (rows.dim() - 1)), rows, 0.0)


def by_sample(values: Tensor, samples: int) -> Tensor:
    """Return (B·copies, ..., width) as (B, positions, width); the copies of a sample are positions too."""
    positions = values.shape[:-1].numel() // samples if samples else 0
    return values.reshape(samples, positions, values.shape[-1])
