"""Stage 2, per-sample gradients: of every sample by itself, in chunks, as something that can be measured and summed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.layers.common import zeroed
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.sums import add_weighted_rows, row_squares

__all__ = [
    "IGNORED",
    "ROWS",
    "DenseGradients",
    "Loss",
    "PerSampleGradients",
    "PerSampleSource",
    "TorchFuncSource",
    "cross_entropy",
    "even_chunk",
]

IGNORED: Final = -100
# Kernels round a row otherwise in a batch of few rows than in one of many, and a rounding of 1e-7 can turn a ReLU or a
# maximum, and with it another record's whole gradient. So a pass has a multiple of so many samples, some of which only
# fill it; on the CPUs that this was tried on, a row is then rounded alike wherever it stands and whatever is beside it.
ROWS: Final = 16
"""A label that adds nothing to the loss or to a gradient: it fills up a sample that has fewer copies than others."""

# What the per-sample gradients of one chunk may take, in bytes.
CHUNK_BYTES = 256 * 2**20

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of shape (B, ...), targets of shape (B, ...)) -> the SUM of the samples' losses, shape ()."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Σ_i of the cross-entropy of row i, from logits of shape (B, classes) and labels of shape (B,); IGNORED adds 0."""
    return nn.functional.cross_entropy(outputs, targets, reduction="sum", ignore_index=IGNORED)


def even_chunk(samples: int) -> int:
    """The largest chunk of at most `samples` that leaves no short one over from a multiple of ROWS."""
    return samples // ROWS * ROWS if samples >= ROWS else 1 << (samples.bit_length() - 1)


class PerSampleGradients(Protocol):
    """The gradients g_i, each one vector over ALL parameters, of the B samples of one chunk.

    A group is the parameters of one module; there are G of them, in the order in which they first occur.
    """

    def group_norms(self) -> Tensor:
        """‖g_i‖₂ within each group, shape (G, B), float64."""
        ...

    def add_weighted_sum(self, total: Tensor, factors: Tensor, *, block: int | None) -> None:
        """Adds Σ_i of g_i, each group multiplied by its factor, to `total`.

        Args:
            total: shape (d,), float64 unless there are blocks.
            factors: shape (G, B), float64; a sample with a factor of 0 is left out, even a NaN.
            block: samples of a float32 block, or None for float64 (`trainables.engine.sums`).
        """
        ...


class PerSampleSource(Protocol):
    """Computes the per-sample gradients of one model and one loss."""

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """The gradients of the whole batch, a chunk of samples at a time; nothing for an empty batch.

        Args:
            points: where the loss is taken.
            inputs: shape (B·copies, *input_shape), the copies of a sample side by side; its gradient is the sum of
                theirs divided by `copies`, also where some are IGNORED.
            targets: shape (B·copies, ...), in the same order.
            copies: of each sample: augmented views of one record, or the records of one user.
        """
        ...


@dataclass(frozen=True)
class DenseGradients:
    """Per-sample gradients as they are.

    Attributes:
        parts: for each parameter a tensor of shape (B, *shape).
        groups: for each parameter the name of its group.
    """

    parts: tuple[Tensor, ...]
    groups: tuple[str, ...]

    def group_norms(self) -> Tensor:
        """‖g_i‖₂ within each group, shape (G, B), float64."""
        squares: dict[str, Tensor] = {}
        for group, part in zip(self.groups, self.parts, strict=True):
            square = row_squares(part)
            squares[group] = squares[group] + square if group in squares else square
        return torch.stack(list(squares.values())).sqrt()

    def add_weighted_sum(self, total: Tensor, factors: Tensor, *, block: int | None) -> None:
        """Parameter by parameter."""
        of_group = dict(zip(dict.fromkeys(self.groups), factors, strict=True))
        kept = (factors > 0).all(0)
        parts = self.parts if bool(kept.all()) else tuple(zeroed(part, kept) for part in self.parts)
        pieces = torch.split(total, [part.shape[1:].numel() for part in parts])
        for group, part, piece in zip(self.groups, parts, pieces, strict=True):
            add_weighted_rows(piece, of_group[group], part.reshape(len(part), -1), block=block)


@dataclass(frozen=True)
class TorchFuncSource:
    """vmap(grad) over samples, for any model in which one sample is computed by itself.

    Attributes:
        module: the model; its own parameters are not used, the points are.
        layout: its trainable parameters.
        loss: of one sample when it is given a batch of one.
        chunk_bytes: memory of the per-sample gradients of a chunk; it changes the speed, and the rounding within its
            bound.
    """

    module: nn.Module
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES

    def chunks(self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1) -> Iterator[DenseGradients]:
        """The gradients of the whole batch, a chunk of samples at a time."""
        # A chunk is held twice while the next point's gradients are added to it, and once more by the backward pass.
        size = even_chunk(max(1, self.chunk_bytes // (3 * self.layout.dimension * points.centre.element_size())))
        per_sample = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        decay = self.layout.views(points.decay * points.centre) if points.decay else {}
        if len(targets) == 0:
            return
        by_sample = (each.view(-1, copies, *each.shape[1:]) for each in (inputs, targets))
        for x, y in zip(*(torch.split(each, size) for each in by_sample), strict=True):
            total: dict[str, Tensor] = {}
            for index in range(len(points)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # operations without a rule for batches: the log has said "slower"
                    found = per_sample(self.layout.views(points.theta(index)), x, y)
                for name, part in found.items():
                    if name in total:
                        total[name].add_(part)
                    else:  # a copy: autograd may give two parameters one tensor (a + b), or all entries one number
                        total[name] = part.clone(memory_format=torch.contiguous_format)
            for name, part in total.items():
                part.mul_(points.scale / copies)
                if name in decay:
                    part.add_(decay[name])
            yield DenseGradients(tuple(total[name] for name in self.layout.names), self.layout.groups)

    def _loss_of_one(self, parameters: dict[str, Tensor], copies: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.module, parameters, (copies,)), y)
