"""Collector for layers whose gradient is a sum of outer products. It stores the factors, or adds up the products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trainables.engine.layers.common import Call, Decay, LayerGradients, Work
from trainables.engine.layers.outer import Factored, FactoredDecay, Geometry, WrittenOut, prefer_factors
from trainables.engine.sums import in_cache, row_squares

__all__ = ["OuterCollector", "factored_decay"]


class OuterCollector:
    """Collector for one layer and one chunk. The shapes decide whether it stores factors or sums of products."""

    def __init__(self, geometry: Geometry, work: Work) -> None:
        self._geometry = geometry
        self._work = work
        self._factored: bool | None = None
        self._fixed: dict[int, tuple[Tensor, Tensor]] = {}
        self._lefts: list[Tensor] = []
        self._rights: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._shape = torch.Size((0, 0))
        self._parts: dict[str, Tensor] = {}

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Store the factors of the calls, or add up their products.

        If a call has the same inputs at all points, its output gradients are summed first.
        """
        weight = parameters[self._geometry.weight]
        self._shape = self._geometry.columns(weight).shape
        if self._factored is None:
            self._factored = self._choose(calls, parameters)
        for index, call in enumerate(calls):
            left = self._geometry.left(call.deltas, self._work.samples)
            if not call.fixed or self._work.points == 1:
                self._put(left, call.inputs)
                self._outputs.append(call.outputs)
            elif index in self._fixed:
                self._fixed[index][0].add_(left)
            else:
                self._fixed[index] = (left.clone(), call.inputs)

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Return the factors of all points, or the sum of their products."""
        for left, inputs in self._fixed.values():
            self._put(left, inputs)
        if not self._factored:
            return WrittenOut.of(self._parts, self._geometry, decay)
        factored = Factored(_joined(self._lefts), _joined(self._rights), self._geometry)
        if decay is None:
            return factored
        known = decay.at_centre and len(self._outputs) == len(self._lefts)
        outputs = _joined([self._geometry.left(each, self._work.samples) for each in self._outputs]) if known else None
        return replace(factored, decay=factored_decay(factored, decay, outputs))

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Estimate the number of values in memory: factors and their copies for a norm, or explicit gradients."""
        weight = parameters[self._geometry.weight]
        positions, factored = self._positions(calls, weight), self._choose(calls, parameters)
        width, inputs = self._geometry.columns(weight).shape
        if not factored:
            return weight.numel() * self._work.samples
        return (3 * positions * (inputs + width) + 2 * positions**2) * self._work.samples

    def _positions(self, calls: Sequence[Call], weight: Tensor) -> int:
        """Return the number of positions of one sample, over all calls and points."""
        sizes = [call.deltas.numel() * (1 if call.fixed else self._work.points) for call in calls]
        return sum(sizes) // max(1, len(self._geometry.columns(weight)) * self._work.samples)

    def _choose(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> bool:
        if self._geometry.groups > 1:
            return False
        weight = parameters[self._geometry.weight]
        width, inputs = self._geometry.columns(weight).shape
        return prefer_factors(self._positions(calls, weight), inputs, width)

    def _put(self, left: Tensor, inputs: Tensor) -> None:
        geometry, samples = self._geometry, self._work.samples
        prepared = geometry.prepared(inputs)
        if self._factored:
            self._lefts.append(left)
            self._rights.append(geometry.right(prepared, samples))
            return
        groups, (width, columns), first = geometry.groups, self._shape, not self._parts
        if first:
            self._parts[geometry.weight] = left.new_empty(samples, width, columns)
            if geometry.bias is not None:
                self._parts[geometry.bias] = left.new_zeros(samples, width)
        if geometry.bias is not None:
            self._parts[geometry.bias] += left.sum(1)
        whole = self._parts[geometry.weight].view(samples * groups, width // groups, columns)
        # A few samples at a time, because the patches of all samples do not fit in the cache.
        copies = len(inputs) // samples
        for part in in_cache(samples, left.shape[1] * columns * groups, left.device):
            right = geometry.right(prepared[part.start * copies : part.stop * copies], part.stop - part.start)
            lefts, rights = _split(left[part], groups), _split(right, groups)
            weight = whole[part.start * groups : part.stop * groups]
            weight.baddbmm_(lefts.mT, rights, beta=0.0 if first else 1.0)


def factored_decay(factored: Factored, decay: Decay, outputs: Tensor | None) -> FactoredDecay:
    """Return the weight decay of factored gradients. It needs ⟨g_i, θ⟩ = Σ_p dz_ip · (W a_ip + b).

    `outputs` is W a + b at θ, shape (B, P, out). If it is None, this function computes W a + b.
    """
    geometry, (left, right) = factored.geometry, (factored.left, factored.right)
    columns = geometry.columns(decay.centre[geometry.weight])
    bias = decay.centre[geometry.bias] if geometry.bias is not None else None
    if outputs is None or outputs.dtype != columns.dtype:
        outputs = torch.nn.functional.linear(right, columns, bias)
    # The rounding error of each entry of W a + b is at most (in + 2)·u·(|W||a| + |b|) (Higham 2002, section 3.1).
    squares = factored.squared_norms()
    if left.shape[1] == 1:
        lengths = squares.sqrt()
    else:
        lengths = (_squares(left) * (_squares(right) + float(bias is not None))).sqrt().sum(1)
    theta = torch.stack([row_squares(value.reshape(1, -1)) for value in decay.centre.values()]).sum().sqrt()
    # The products with dz are added in float64.
    terms = (right.shape[2] + 2) * torch.finfo(outputs.dtype).eps
    error = (terms + (left[0].numel() + 4) * torch.finfo(torch.float64).eps) * lengths * theta
    inner = (left.double() * outputs).sum((1, 2)) + error
    return FactoredDecay(decay.strength, decay.centre, squares, inner)


def _squares(values: Tensor) -> Tensor:
    """Return the squared norm at each position, shape (B, P), float64."""
    return row_squares(values.flatten(0, 1)).view(values.shape[:2])


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _split(values: Tensor, groups: int) -> Tensor:
    """Reshape values from (B, P, groups · width) to (B · groups, P, width)."""
    if groups == 1:
        return values
    samples, positions, width = values.shape
    parts = values.view(samples, positions, groups, width // groups)
    return parts.transpose(1, 2).reshape(samples * groups, positions, width // groups)
