"""Stage 2, per-sample gradients: their protocols, and a source for any model by torch.func."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.layers.common import Explicit, LayerGradients
from trainables.engine.layout import Layout
from trainables.engine.objective import Points

__all__ = [
    "IGNORED",
    "ROWS",
    "Loss",
    "PerSampleGradients",
    "PerSampleSource",
    "TorchFuncSource",
    "cross_entropy",
    "even_chunk",
]

IGNORED: Final = -100
"""Label that adds 0 to the loss and to the gradient. It fills samples with fewer copies than others."""

# Kernels round a row differently in passes of few and of many rows. A rounding of 1e-7 can switch a ReLU or a maximum,
# and so change another record's whole gradient. So every pass has a multiple of ROWS samples, some of which only fill
# it. On the tested CPUs the other rows of a pass then do not change how a row is rounded.
ROWS: Final = 16

CHUNK_BYTES = 256 * 2**20  # of the per-sample gradients of a chunk

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of shape (B, ...), targets of shape (B, ...)) → the SUM of the samples' losses, shape ()."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the summed cross-entropy of logits, shape (B, classes), and labels, shape (B,); IGNORED adds 0."""
    return nn.functional.cross_entropy(outputs, targets, reduction="sum", ignore_index=IGNORED)


def even_chunk(samples: int) -> int:
    """Return the largest chunk of at most `samples` that divides ROWS or is a multiple of ROWS."""
    return samples // ROWS * ROWS if samples >= ROWS else 1 << (samples.bit_length() - 1)


@dataclass(frozen=True)
class PerSampleGradients:
    """Gradients g_i of the B samples of one chunk by ALL parameters.

    The parameters of a module are a group; the G groups have the order of the layout.

    Attributes:
        layers: (gradients of a layer, name in the layer → name in the layout) for each layer.
        layout: trainable parameters of the model.
    """

    layers: tuple[tuple[LayerGradients, Mapping[str, str]], ...]
    layout: Layout

    def group_norms(self) -> Tensor:
        """Return ‖g_i‖₂ within each group, shape (G, B), float64."""
        squares: dict[str, Tensor] = {group: torch.zeros(0) for group in self.layout.groups}
        for gradients, names in self.layers:
            group, square = _group(names), gradients.squared_norms()
            squares[group] = squares[group] + square if len(squares[group]) else square
        return torch.stack(list(squares.values())).sqrt()

    def add_weighted_sum(self, total: Tensor, factors: Tensor, *, block: int | None) -> None:
        """Add Σ_i g_i to `total`, with each group of g_i multiplied by its factor.

        Args:
            total: shape (d,), float64 unless there are blocks.
            factors: shape (G, B), float64; a sample with a factor of 0 adds 0, even if its gradient is NaN.
            block: samples of a float32 block, or None for float64 (`trainables.engine.sums`).
        """
        of_group = dict(zip(dict.fromkeys(self.layout.groups), factors, strict=True))
        usable = factors > 0
        kept = None if bool(usable.all()) else usable.all(0)
        views = self.layout.views(total)
        for gradients, names in self.layers:
            sound = gradients if kept is None else gradients.masked(kept)
            totals = {local: views[name] for local, name in names.items()}
            sound.add_weighted_sum(totals, of_group[_group(names)], block=block)


class PerSampleSource(Protocol):
    """Source of the per-sample gradients of one model and one loss."""

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the batch, a chunk of samples at a time; nothing for an empty batch.

        Args:
            points: parameters at which the loss is evaluated.
            inputs: shape (B·copies, *input_shape), the copies of a sample next to each other. A sample's gradient is
                the sum over its copies divided by `copies`, even if some are IGNORED.
            targets: shape (B·copies, ...), in the same order.
            copies: number of augmented views of a record times the number of records of a user.
        """


@dataclass(frozen=True)
class TorchFuncSource:
    """Source by vmap(grad) over samples, for any model that computes each sample alone.

    The attributes are those of `BookkeepingSource`.
    """

    module: nn.Module
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the batch, a chunk of samples at a time."""
        # A chunk is in memory three times: the sum, the next point, and the backward pass.
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
                    warnings.simplefilter("ignore")  # the log already has a warning that torch.func is slow
                    found = per_sample(self.layout.views(points.theta(index)), x, y)
                for name, part in found.items():
                    if name in total:
                        total[name].add_(part)
                    else:  # copy, because autograd may return one tensor for two parameters (a + b), or an expanded one
                        total[name] = part.clone(memory_format=torch.contiguous_format)
            for name, part in total.items():
                part.mul_(points.scale / copies)
                if name in decay:
                    part.add_(decay[name])
            layers = tuple((Explicit({name: total[name]}), {name: name}) for name in self.layout.names)
            yield PerSampleGradients(layers, self.layout)

    def _loss_of_one(self, parameters: dict[str, Tensor], copies: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.module, parameters, (copies,)), y)


def _group(names: Mapping[str, str]) -> str:
    return next(iter(names.values())).rpartition(".")[0]
