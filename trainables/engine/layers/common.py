"""Protocols of the layers' rules: from inputs and output gradients to norms and sums of per-sample gradients."""

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
    """Use of a layer in a pass.

    Attributes:
        inputs: shape (B·copies, ...), the copies of a sample next to each other.
        outputs: shape (B·copies, ...).
        deltas: gradient of the scaled loss by the outputs, in their shape.
        fixed: whether the input is the same at all points, so that the K gradients by the output add up to one.
    """

    inputs: Tensor
    outputs: Tensor
    deltas: Tensor
    fixed: bool


@dataclass(frozen=True)
class Work:
    """Sizes of a chunk: B `samples` and K `points`. They decide the algorithm and the memory of a layer."""

    samples: int
    points: int


@dataclass(frozen=True)
class Decay:
    """Weight decay of a layer: `strength` · `centre` is added to each sample's gradient.

    `centre` is the layer's unperturbed θ by name in the layer. `at_centre` is true if the loss was evaluated at θ only.
    """

    strength: float
    centre: Mapping[str, Tensor]
    at_centre: bool


class LayerGradients(Protocol):
    """Gradients g_i of B samples by the parameters of one layer."""

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64, never smaller than the true value."""

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`, one tensor for each parameter by its name in the layer.

        Weights have the shape (B,). `block` is the samples of a float32 block, or None (`trainables.engine.sums`).
        """

    def masked(self, kept: Tensor) -> LayerGradients:
        """Return these gradients, with 0 even for NaN for the samples that are False in `kept`, shape (B,)."""


class Collector(Protocol):
    """Collector of the calls of a layer in a chunk, point by point."""

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Add the calls of the pass at one point, with the layer's parameters at this point by name in the layer."""

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Return the gradients of all calls."""

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Return an estimate of the numbers in memory, if such calls come at every point."""


@dataclass(frozen=True)
class Explicit:
    """Explicit per-sample gradients: a tensor of shape (B, *shape) for each parameter by name."""

    parts: dict[str, Tensor]

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64."""
        return torch.stack([row_squares(part) for part in self.parts.values()]).sum(0)

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add the weighted sum."""
        for name, part in self.parts.items():
            add_weighted_rows(totals[name].view(-1), weights, part.reshape(len(part), -1), block=block)

    def masked(self, kept: Tensor) -> Explicit:
        """Return these gradients with 0 for samples that are not `kept`."""
        return replace(self, parts={name: zeroed(part, kept) for name, part in self.parts.items()})


def zeroed(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the rows, with 0 for the rows that are not `kept`."""
    return torch.where(kept.view(-1, *[1] * (rows.dim() - 1)), rows, 0.0)


def by_sample(values: Tensor, samples: int) -> Tensor:
    """Return (B·copies, ..., width) as (B, positions, width), where copies are positions too."""
    positions = values.shape[:-1].numel() // samples if samples else 0
    return values.reshape(samples, positions, values.shape[-1])
