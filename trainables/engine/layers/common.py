"""What every kind of layer offers: from its inputs and output gradients to measured and summed per-sample gradients."""

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
        inputs: what went in, shape (B·copies, ...), copies of a sample side by side.
        outputs: what came out, shape (B·copies, ...).
        deltas: gradient of the scaled loss by the outputs, of their shape.
        fixed: whether the input is the same at all points: then K gradients by the output add up to one.
    """

    inputs: Tensor
    outputs: Tensor
    deltas: Tensor
    fixed: bool


@dataclass(frozen=True)
class Work:
    """What a chunk is: sizes that a layer chooses its way by, and memory is counted with.

    Attributes:
        samples: B.
        points: K.
    """

    samples: int
    points: int


@dataclass(frozen=True)
class Decay:
    """λ · (a layer's parameters at the centre), added to each sample's gradient.

    Attributes:
        strength: λ.
        centre: the layer's parameters by their name in the layer.
        at_centre: whether the loss was taken at these parameters and nowhere else.
    """

    strength: float
    centre: Mapping[str, Tensor]
    at_centre: bool


class LayerGradients(Protocol):
    """The gradients of B samples by one layer's parameters."""

    def squared_norms(self) -> Tensor:
        """Shape (B,), float64, never too small."""
        ...

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Adds Σ_i weights_i · g_i to `totals`.

        Args:
            totals: for each parameter, by its name in the layer, a view of its shape into one vector.
            weights: shape (B,), float64.
            block: see `trainables.engine.sums`.
        """
        ...

    def masked(self, kept: Tensor) -> LayerGradients:
        """The same with zeros for the samples where `kept`, shape (B,), is False, even where there was a NaN."""
        ...


class Collector(Protocol):
    """Takes the calls of a layer point by point."""

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """The calls of the layer in the pass at one point.

        Args:
            calls: in order; none when the pass did not use the layer.
            parameters: of the layer at that point, by their name in the layer.
        """
        ...

    def finish(self, decay: Decay | None) -> LayerGradients:
        """What all calls come to."""
        ...

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """About how many numbers are held at once for calls like these at all points; for choosing the chunk."""
        ...


@dataclass(frozen=True)
class Explicit:
    """Per-sample gradients as they are: for each parameter a tensor of shape (B, ...) in the parameter's own order."""

    parts: dict[str, Tensor]

    def squared_norms(self) -> Tensor:
        """Shape (B,), float64."""
        return torch.stack([row_squares(part) for part in self.parts.values()]).sum(0)

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Adds them up."""
        for name, part in self.parts.items():
            add_weighted_rows(totals[name].view(-1), weights, part.reshape(len(part), -1), block=block)

    def masked(self, kept: Tensor) -> Explicit:
        """With zeros."""
        return replace(self, parts={name: zeroed(part, kept) for name, part in self.parts.items()})


def zeroed(rows: Tensor, kept: Tensor) -> Tensor:
    """The rows with zeros where `kept` is False."""
    return torch.where(kept.view(-1, *[1] * (rows.dim() - 1)), rows, 0.0)


def by_sample(values: Tensor, samples: int) -> Tensor:
    """(B·copies, ..., width) as (B, positions, width); the copies of a sample are positions too."""
    positions = values.shape[:-1].numel() // samples if samples else 0
    return values.reshape(samples, positions, values.shape[-1])
