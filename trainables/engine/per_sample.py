"""Stage 2, per-sample gradients: in chunks, as objects that can be measured and summed."""

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
"""Label that adds nothing to the loss or to a gradient; it fills up a sample with fewer copies than others."""

# Kernels round a row differently in batches of few and of many rows, and a rounding of 1e-7 can switch a ReLU or a
# maximum, and with it another record's whole gradient. So a pass has a multiple of ROWS samples, some of which only
# fill it. On the tested CPUs a row is then rounded in the same way at every place and next to any other rows.
ROWS: Final = 16

# Memory of the per-sample gradients of one chunk, in bytes.
CHUNK_BYTES = 256 * 2**20

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of shape (B, ...), targets of shape (B, ...)) -> the SUM of the samples' losses, shape ()."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the summed cross-entropy of logits of shape (B, classes) and labels of shape (B,); IGNORED adds 0."""
    return nn.functional.cross_entropy(outputs, targets, reduction="sum", ignore_index=IGNORED)


def even_chunk(samples: int) -> int:
    """Return the largest chunk of at most `samples` that divides, or is a multiple of, ROWS."""
    return samples // ROWS * ROWS if samples >= ROWS else 1 << (samples.bit_length() - 1)


class PerSampleGradients(Protocol):
    """Gradients g_i of the B samples of one chunk, each one vector over ALL parameters.

    A group is the parameters of one module; there are G of them, in the order of their first occurrence.
    """

    def group_norms(self) -> Tensor:
        """Return ‖g_i‖₂ within each group, shape (G, B), float64."""
        ...

    def add_weighted_sum(self, total: Tensor, factors: Tensor, *, block: int | None) -> None:
        """Add Σ_i of g_i, each group multiplied by its factor, to `total`.

        Args:
            total: shape (d,), float64 unless there are blocks.
            factors: shape (G, B), float64; a sample with a factor of 0 is left out, even a NaN.
            block: samples of a float32 block, or None for float64 (`trainables.engine.sums`).
        """
        ...


class PerSampleSource(Protocol):
    """Source of the per-sample gradients of one model and one loss."""

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the whole batch, a chunk of samples at a time; nothing for an empty batch.

        Args:
            points: where the loss is evaluated.
            inputs: shape (B·copies, *input_shape), the copies of a sample next to each other; its gradient is the
                sum of theirs divided by `copies`, even if some are IGNORED.
            targets: shape (B·copies, ...), in the same order.
            copies: of each sample: augmented views of one record, or the records of one user.
        """
        ...


@dataclass(frozen=True)
class DenseGradients:
    """Per-sample gradients as tensors.

    Attributes:
        parts: for each parameter a tensor of shape (B, *shape).
        groups: for each parameter the name of its group.
    """

    parts: tuple[Tensor, ...]
    groups: tuple[str, ...]

    def group_norms(self) -> Tensor:
        """Return ‖g_i‖₂ within each group, shape (G, B), float64."""
        squares: dict[str, Tensor] = {}
        for group, part in zip(self.groups, self.parts, strict=True):
            square = row_squares(part)
            squares[group] = squares[group] + square if group in squares else square
        return torch.stack(list(squares.values())).sqrt()

    def add_weighted_sum(self, total: Tensor, factors: Tensor, *, block: int | None) -> None:
        """Add the weighted sum of the per-sample gradients to `total`, one parameter at a time."""
        of_group = dict(zip(dict.fromkeys(self.groups), factors, strict=True))
        kept = (factors > 0).all(0)
        parts = self.parts if bool(kept.all()) else tuple(zeroed(part, kept) for part in self.parts)
        pieces = torch.split(total, [part.shape[1:].numel() for part in parts])
        for group, part, piece in zip(self.groups, parts, pieces, strict=True):
            add_weighted_rows(piece, of_group[group], part.reshape(len(part), -1), block=block)


@dataclass(frozen=True)
class TorchFuncSource:
    """Source by vmap(grad) over samples, for any model that computes each sample by itself.

    The attributes are those of `BookkeepingSource`; `loss` is that of one sample for a batch of one.
    """

    module: nn.Module
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES

    def chunks(self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1) -> Iterator[DenseGradients]:
        """Yield the gradients of the whole batch, a chunk of samples at a time."""
        # A chunk is in memory twice while gradients of the next point are added, and once more in the backward pass.
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
                    warnings.simplefilter("ignore")  # the log has already warned of operations without a batching rule
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
