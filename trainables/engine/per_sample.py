"""Stage 2, per-sample gradients: their protocols, and a source that uses torch.func for any model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.layers.common import Explicit, LayerGradients
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.rows import EvenLinear

__all__ = [
    "IGNORED",
    "PASS",
    "ROWS",
    "Loss",
    "PerSampleGradients",
    "PerSampleSource",
    "TorchFuncSource",
    "cross_entropy",
    "even_chunk",
    "filled",
    "in_passes",
    "pass_samples",
]

IGNORED: Final = -100
"""Label that adds 0 to the loss and to the gradient. It pads samples that have fewer copies than others."""

# A kernel may round a row differently in passes with few and with many rows. A difference of 1e-7 can switch a ReLU or
# a maximum and so change a record's whole gradient. Therefore the number of samples in a pass is a multiple of ROWS,
# if necessary with padding samples. On the tested CPUs, the rounding of a row then does not depend on other rows, and
# with `rows.linear` not on its place among them.
ROWS: Final = 16

PASS: Final = 1024
"""Largest number of samples in a pass on a GPU, unless the expected batch size gives another (`pass_samples`)."""

CHUNK_BYTES = 256 * 2**20  # memory for the per-sample gradients of a chunk

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of shape (B, ...), targets of shape (B, ...)) → the SUM of the samples' losses, shape ()."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the summed cross-entropy of logits, shape (B, classes), and labels, shape (B,). IGNORED labels add 0."""
    return nn.functional.cross_entropy(outputs, targets, reduction="sum", ignore_index=IGNORED)


def even_chunk(samples: int) -> int:
    """Return the largest multiple of ROWS up to `samples`; if `samples` < ROWS, the largest power of 2 up to it."""
    return samples // ROWS * ROWS if samples >= ROWS else 1 << (samples.bit_length() - 1)


def pass_samples(expected_batch_size: float) -> int:
    """Return the number of samples in each pass on a GPU: most batches of this public expected size fit in one pass."""
    return ceil((expected_batch_size + 4.0 * sqrt(expected_batch_size)) / ROWS) * ROWS


def in_passes(
    inputs: Tensor, targets: Tensor, *, samples: int, gpu_pass: int, copies: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Split a batch into passes of `samples` samples; on a GPU of at most `gpu_pass`, ALL filled to the same size.

    A GPU chooses its kernels by the shape of a pass, and other kernels round a row differently. There a multiple of
    ROWS is not enough: one record more could change how the passes of all others are rounded. The caller must count no
    sample that fills a pass.
    """
    even = inputs.device.type != "cpu"
    if even:
        samples = min(samples, gpu_pass)
    for x, y in zip(*(torch.split(each, samples * copies) for each in (inputs, targets)), strict=True):
        fill = samples - len(y) // copies
        yield filled(x, y, copies=copies, fill=fill) if fill and even else (x, y)


def filled(inputs: Tensor, targets: Tensor, *, copies: int, fill: int) -> tuple[Tensor, Tensor]:
    """Add `fill` copies of the first sample to a pass, because other inputs might be invalid for the model."""
    x, y = (torch.cat([each, each[:copies].repeat(fill, *[1] * (each.ndim - 1))]) for each in (inputs, targets))
    return x, y


@dataclass(frozen=True)
class PerSampleGradients:
    """Gradients g_i of the B samples of one chunk with respect to ALL parameters.

    The parameters of one module form a group. The G groups are in the order of the layout.

    Attributes:
        layers: (gradients, names) for each layer. `names` maps parameter names in the layer to names in the layout.
        layout: trainable parameters of the model.
    """

    layers: tuple[tuple[LayerGradients, Mapping[str, str]], ...]
    layout: Layout

    def group_norms(self) -> Tensor:
        """Return ‖g_i‖₂ within each group, shape (G, B), float64."""
        squares: dict[str, Tensor] = {}
        for gradients, names in self.layers:
            group, square = _group(names), gradients.squared_norms()
            squares[group] = squares[group] + square if group in squares else square
        return torch.stack([squares[group] for group in dict.fromkeys(self.layout.groups)]).sqrt()

    def add_weighted_sum(self, total: Tensor, factors: Tensor, *, finite: Tensor, block: int | None) -> None:
        """Add Σ_i g_i to `total`, with each group of g_i multiplied by its factor.

        Args:
            total: shape (d,), float64 if `block` is None.
            factors: shape (G, B), float64. A sample with a factor of 0 adds 0, even if its gradient is NaN.
            finite: whether the norms of a sample's groups are finite, shape (B,). If they are, so are the values whose
                products are its gradient, and a factor of 0 makes them 0. The others must have a factor of 0.
            block: number of samples in a float32 block, or None for float64 (`trainables.engine.sums`).
        """
        of_group = dict(zip(dict.fromkeys(self.layout.groups), factors, strict=True))
        kept = None if bool(finite.all()) else finite
        views = self.layout.views(total)
        for gradients, names in self.layers:
            sound = gradients if kept is None else gradients.masked(kept)
            totals = {local: views[name] for local, name in names.items()}
            sound.add_weighted_sum(totals, of_group[_group(names)], block=block)


class PerSampleSource(Protocol):
    """Source of the per-sample gradients of one model and one loss."""

    @property
    def module(self) -> nn.Module:
        """The model."""

    @property
    def layout(self) -> Layout:
        """The trainable parameters of the model."""

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the batch, a chunk of samples at a time. An empty batch yields nothing.

        On a GPU, the last chunk may have samples after those of the batch, which fill it (`in_passes`).

        Args:
            points: parameters at which the loss is evaluated.
            inputs: shape (B·copies, *input_shape), with the copies of a sample next to each other. A sample's gradient
                is the sum over its copies divided by `copies`, even if some labels are IGNORED.
            targets: shape (B·copies, ...), in the same order.
            copies: number of copies of a sample: views of a record times records of a user.
        """


@dataclass(frozen=True)
class TorchFuncSource:
    """Source that uses vmap(grad) over samples, for any model that computes each sample alone.

    `BookkeepingSource` describes the attributes.
    """

    module: nn.Module
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES
    gpu_pass: int = PASS

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the batch, a chunk of samples at a time."""
        # A chunk's gradients are in memory three times: the sum, those at the next point, and those being computed.
        size = even_chunk(max(1, self.chunk_bytes // (3 * self.layout.dimension * points.centre.element_size())))
        per_sample = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        decay = self.layout.views(points.decay * points.centre) if points.decay else {}
        if len(targets) == 0:
            return
        for rows, labels in in_passes(inputs, targets, samples=size, gpu_pass=self.gpu_pass, copies=copies):
            x, y = (each.view(-1, copies, *each.shape[1:]) for each in (rows, labels))
            total: dict[str, Tensor] = {}
            for index in range(len(points)):
                with EvenLinear(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the log already has a warning that torch.func is slow
                    found = per_sample(self.layout.views(points.theta(index)), x, y)
                for name, part in found.items():
                    if name in total:
                        total[name].add_(part)
                    else:  # copy, because autograd may return an expanded tensor, or one tensor for two parameters
                        total[name] = part.clone(memory_format=torch.contiguous_format)
            for name, part in total.items():
                part.mul_(points.scale / copies)
                if name in decay:
                    part.add_(decay[name])
            yield self._finished(total)

    def _finished(self, total: dict[str, Tensor]) -> PerSampleGradients:
        """Return the gradients of a chunk from those of each parameter, shape (B, *shape), by name."""
        layers = tuple((Explicit({name: total[name]}), {name: name}) for name in self.layout.names)
        return PerSampleGradients(layers, self.layout)

    def _loss_of_one(self, parameters: dict[str, Tensor], copies: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.module, parameters, (copies,)), y)


@dataclass(frozen=True)
class _ChangedSource(TorchFuncSource):
    """Source whose per-sample gradients are changed by a function, each alone."""

    change: Callable[[Tensor], Tensor] = lambda gradient: gradient

    def _finished(self, total: dict[str, Tensor]) -> PerSampleGradients:
        rows = torch.cat([total[name].flatten(1) for name in self.layout.names], dim=1)
        parts = torch.split(each_alone(self.change, rows), list(self.layout.sizes), dim=1)
        shapes = zip(self.layout.names, self.layout.shapes, parts, strict=True)
        return super()._finished({name: part.reshape(len(rows), *shape) for name, shape, part in shapes})


def each_alone(change: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return `change` of each row of a (B, d) matrix. The function sees one row, and draws no random numbers.

    Raises:
        RuntimeError: the function asks for a value, draws random numbers or returns another shape.
    """
    changed = vmap(change)(rows)
    if not isinstance(changed, Tensor) or changed.shape != rows.shape:
        raise RuntimeError(f"the gradient of a sample must keep its shape {tuple(rows.shape[1:])}")
    return changed


def changed_before_clip(source: PerSampleSource, change: Callable[[Tensor], Tensor]) -> PerSampleSource:
    """Return a source of the same model whose gradients `change` replaces, one sample at a time, before the clip."""
    return _ChangedSource(
        source.module,
        source.layout,
        loss=getattr(source, "loss", cross_entropy),
        gpu_pass=getattr(source, "gpu_pass", PASS),
        change=change,
    )


def _group(names: Mapping[str, str]) -> str:
    return next(iter(names.values())).rpartition(".")[0]
