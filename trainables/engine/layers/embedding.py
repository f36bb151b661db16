"""Rule for nn.Embedding. The gradient of a sample is zero except in the rows that the sample looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from trainables.engine.layers.common import Call, Decay, LayerGradients, Work, by_sample, zeroed
from trainables.engine.layers.outer import gram_squares
from trainables.engine.sums import add_looked_up, in_cache, not_negative

__all__ = ["EmbeddingCollector", "is_plain_embedding"]


@dataclass(frozen=True)
class LookedUp:
    """Per-sample gradients of an embedding, stored for the P looked-up rows of each sample.

    Attributes:
        rows: indices of the looked-up rows, shape (B, P).
        deltas: gradients with respect to the looked-up vectors, shape (B, P, width); zero for padding rows.
        size: V, the number of rows of the embedding.
        decay: weight decay before the clip, or None.
    """

    rows: Tensor
    deltas: Tensor
    size: int
    decay: Decay | None

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖² = Σ_{p,q} [row_p = row_q] dz_p · dz_q, shape (B,), float64."""
        deltas = self.deltas.double()
        if prefer_pairs(self.rows.shape[1], self.size):
            same = (self.rows[:, :, None] == self.rows[:, None, :]).double()
            squares = gram_squares(deltas @ deltas.mT, same, deltas.shape[2])
        else:
            squares = self._squares_of_sums(deltas)
        if self.decay is None:
            return squares
        weight = self.decay.centre["weight"]
        theta = weight.double().square().sum()
        lengths = deltas.square().sum(2).sqrt().sum(1)
        error = (deltas[0].numel() + 4) * torch.finfo(torch.float64).eps * lengths * theta.sqrt()
        products = (deltas * weight[self.rows]).sum((1, 2)) + error
        return not_negative(squares + self.decay.strength * (2.0 * products + self.decay.strength * theta))

    def _squares_of_sums(self, deltas: Tensor) -> Tensor:
        """Return ‖g_i‖², plus a bound of the rounding error. The gradients of each embedding row are summed first."""
        samples, positions, width = deltas.shape
        squares = deltas.new_empty(samples)
        for part in in_cache(samples, self.size * width, deltas.device):
            sums = deltas.new_zeros(part.stop - part.start, self.size, width)
            rows = self.rows[part, :, None].expand(-1, -1, width)
            squares[part] = sums.scatter_add_(1, rows, deltas[part]).square().sum((1, 2))
        longest = deltas.square().sum(2).sqrt().sum(1)
        terms = positions + self.size * width + 4
        return not_negative(squares.sqrt_().add_(longest, alpha=terms * torch.finfo(torch.float64).eps).square_())

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor, *, block: int | None) -> None:
        """Add Σ_i weights_i · g_i to `totals`, row by row."""
        del block  # one sample may look up a row several times, so float64 is needed
        add_looked_up(totals["weight"], weights, self.rows, self.deltas)
        if self.decay is not None:
            totals["weight"].add_(self.decay.centre["weight"], alpha=float(weights.sum()) * self.decay.strength)

    def masked(self, kept: Tensor) -> LookedUp:
        """Return these gradients with 0 for samples that are not `kept`."""
        return replace(self, deltas=zeroed(self.deltas, kept))


class EmbeddingCollector:
    """Collector for one embedding and one chunk."""

    def __init__(self, layer: nn.Embedding, work: Work) -> None:
        self._layer = layer
        self._work = work
        self._fixed: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows: list[Tensor] = []
        self._deltas: list[Tensor] = []

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Store the indices of the looked-up rows, and the gradients with respect to these rows."""
        del parameters
        for index, call in enumerate(calls):
            rows = call.inputs.reshape(self._work.samples, -1)
            deltas = by_sample(call.deltas, self._work.samples)
            if not call.fixed:
                self._rows.append(rows)
                self._deltas.append(deltas)
            elif index in self._fixed:
                self._fixed[index][1].add_(deltas)
            else:
                self._fixed[index] = (rows, deltas.clone())

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Return the gradients of all lookups."""
        rows = torch.cat([*(rows for rows, _ in self._fixed.values()), *self._rows], dim=1)
        deltas = torch.cat([*(deltas for _, deltas in self._fixed.values()), *self._deltas], dim=1)
        if self._layer.padding_idx is not None:
            deltas = torch.where((rows == self._layer.padding_idx)[:, :, None], 0.0, deltas)
        return LookedUp(rows, deltas, self._layer.num_embeddings, decay)

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Estimate the number of values in memory: gradients, copies for a norm, and terms of the norm."""
        width = parameters["weight"].shape[1]
        points = [1 if call.fixed else self._work.points for call in calls]
        positions = sum(call.inputs.numel() * k for call, k in zip(calls, points, strict=True)) // self._work.samples
        pairs = prefer_pairs(positions, self._layer.num_embeddings)
        norms = 3 * positions**2 if pairs else 2 * self._layer.num_embeddings * width
        return (3 * width * positions + norms) * self._work.samples


def prefer_pairs(positions: int, size: int) -> bool:
    """Return whether a norm is cheaper to compute from all pairs of lookups than from a sum for each embedding row.

    `positions` is the number of lookups of a sample, and `size` is the number of rows of the embedding.
    """
    return positions**2 <= size + positions


def is_plain_embedding(layer: nn.Embedding) -> bool:
    """Return whether the gradient is the plain sum over the lookups, without renormalising or scaling."""
    return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
