"""Protocols of the layer rules, which turn inputs and output gradients into norms and sums of per-sample gradients."""

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
    """One call of a layer in a forward pass, and its output gradients.

    Attributes:
        inputs: shape (B·copies, ...), with the copies of a sample next to each other.
        outputs: shape (B·copies, ...).
        deltas: gradient of the scaled loss with respect to the outputs, in the shape of the outputs.
        fixed: whether the inputs are the same at all K points. Then only the sum of the K output gradients is needed.
    """

    inputs: Tensor
    outputs: Tensor
    deltas: Tensor
    fixed: bool


@dataclass(frozen=True)
class Work:
    """Sizes of a chunk: B `samples` and K evaluation `points`. The sizes decide the algorithm and memory of a layer."""

    samples: int
    points: int


@dataclass(frozen=True)
class Decay:
    """Weight decay of a layer: `strength` · `centre` is added to each sample's gradient.

    `centre` has the layer's unperturbed parameters, by name in the layer. `at_centre` is true if the loss was evaluated
    at these parameters only.
    """

    strength: float
    centre: Mapping[str, Tensor]
    at_centre: bool


class LayerGradients(Protocol):
    """Gradients g_i of B samples with respect to the parameters of one layer."""

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64, never smaller than the true value."""

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`, which has a tensor for each parameter, by name in the layer.

        `weights` has the shape (B,). `block` is the number of samples in a float32 block (`trainables.engine.sums`).
        None sums in float64.
        """

    def masked(self, kept: Tensor) -> LayerGradients:
        """Return these gradients with 0, even in place of NaN, for samples that are False in `kept`, shape (B,)."""


class Collector(Protocol):
    """Collector of one layer's calls for a chunk. It gets the calls of one evaluation point at a time."""

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Add the calls at one point. `parameters` has the layer's parameters at this point, by name in the layer."""

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Return the per-sample gradients, summed over all calls, with weight decay unless `decay` is None."""

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Estimate the number of values in memory. It is assumed that `calls` are repeated at each evaluation point."""


@dataclass(frozen=True)
class Explicit:
    """Explicit per-sample gradients: a tensor of shape (B, *shape) for each parameter by name."""

    parts: dict[str, Tensor]

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖², shape (B,), float64."""
        return torch.stack([row_squares(part) for part in self.parts.values()]).sum(0)

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`."""
        for name, part in self.parts.items():
            add_weighted_rows(totals[name].view(-1), weights, part.reshape(len(part), -1), block=block)

    def masked(self, kept: Tensor) -> Explicit:
        """Return these gradients with 0 for samples that are not `kept`."""
        return replace(self, parts={name: zeroed(part, kept) for name, part in self.parts.items()})


def zeroed(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the rows, with 0 for the rows that are not `kept`."""
    return torch.where(kept.view(-1, *[1] * (rows.dim() - 1)), rows, 0.0)


def by_sample(values: Tensor, samples: int) -> Tensor:
    """Reshape values from (B·copies, ..., width) to (B, positions, width). Copies count as positions too."""
    return values.reshape(samples, values.shape[:-1].numel() // samples, values.shape[-1])
