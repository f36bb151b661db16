"""Stage 2, per-sample gradients: of every sample by itself, in chunks, as something that can be measured and summed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.layout import Layout, flat
from trainables.engine.objective import Points

__all__ = ["DenseGradients", "Loss", "PerSampleGradients", "PerSampleSource", "TorchFuncSource", "cross_entropy"]

# What the per-sample gradients of one chunk may take, in bytes.
CHUNK_BYTES = 256 * 2**20

_NORM_BLOCK = 4096

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of shape (B, ...), targets of shape (B, ...)) -> the SUM of the samples' losses, shape ()."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Σ_i of the cross-entropy of sample i, from logits of shape (B, classes) and labels of shape (B,)."""
    return nn.functional.cross_entropy(outputs, targets, reduction="sum")


class PerSampleGradients(Protocol):
    """The gradients g_i, each one vector over ALL parameters, of the B samples of one chunk."""

    def shifted(self, vector: Tensor) -> PerSampleGradients:
        """g_i + vector, for a vector of shape (d,) that depends on no sample."""
        ...

    def norms(self) -> Tensor:
        """‖g_i‖₂, shape (B,)."""
        ...

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Σ_i weights_i · g_i, shape (d,), float64; a sample of weight 0 is left out, even a NaN.

        Args:
            weights: shape (B,).
        """
        ...


class PerSampleSource(Protocol):
    """Computes the per-sample gradients of one model and one loss."""

    def chunks(self, points: Points, inputs: Tensor, targets: Tensor) -> Iterator[PerSampleGradients]:
        """The gradients of the whole batch, a chunk of samples at a time; nothing for an empty batch.

        Args:
            points: where the loss is taken.
            inputs: shape (B, *input_shape).
            targets: shape (B, ...).
        """
        ...


@dataclass(frozen=True)
class DenseGradients:
    """Per-sample gradients as they are: for each parameter a tensor of shape (B, *shape)."""

    parts: tuple[Tensor, ...]

    def shifted(self, vector: Tensor) -> DenseGradients:
        """g_i + vector."""
        pieces = torch.split(vector, [part[0].numel() for part in self.parts])
        return DenseGradients(
            tuple(part + piece.view(part.shape[1:]) for part, piece in zip(self.parts, pieces, strict=True))
        )

    def norms(self) -> Tensor:
        """‖g_i‖₂ over all parameters together, shape (B,)."""
        by_parameter = torch.stack([_norms(part.flatten(1)) for part in self.parts])
        return by_parameter.square().sum(0).sqrt().to(self.parts[0].dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Σ_i weights_i · g_i, shape (d,), float64."""
        kept = weights > 0
        parts = self.parts if bool(kept.all()) else tuple(part[kept] for part in self.parts)
        return flat(weights[kept].double() @ part.flatten(1).double() for part in parts)


def _norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row, float64.

    By blocks, whose norms are taken together in float64: one float32 accumulator over millions of entries loses the
    small ones, and a norm that comes out too small is a clip that lets too much through.
    """
    whole = rows.shape[1] // _NORM_BLOCK * _NORM_BLOCK
    blocks = torch.linalg.vector_norm(rows[:, :whole].reshape(len(rows), -1, _NORM_BLOCK), dim=2)
    rest = torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True)
    return torch.cat([blocks, rest], dim=1).double().square().sum(1).sqrt()


@dataclass(frozen=True)
class TorchFuncSource:
    """vmap(grad) over samples, for any model in which one sample is computed by itself.

    Attributes:
        module: the model; its own parameters are not used, the points are.
        layout: its trainable parameters.
        loss: of one sample when it is given a batch of one.
        chunk_bytes: memory of the per-sample gradients of a chunk; it changes the speed and nothing else.
    """

    module: nn.Module
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES

    def chunks(self, points: Points, inputs: Tensor, targets: Tensor) -> Iterator[DenseGradients]:
        """The gradients of the whole batch, a chunk of samples at a time."""
        # A chunk is held twice while the next point's gradients are added to it, and once more by the backward pass.
        size = max(1, self.chunk_bytes // (3 * self.layout.dimension * points.theta.element_size()))
        per_sample = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        for x, y in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            if len(x) == 0:
                return
            total: dict[str, Tensor] = {}
            for theta in points.theta:
                for name, part in per_sample(self.layout.views(theta), x, y).items():
                    total[name] = total[name].add_(part) if name in total else part
            yield DenseGradients(tuple(total[name].mul_(points.scale) for name in self.layout.names))

    def _loss_of_one(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.module, parameters, (x[None],)), y[None])
