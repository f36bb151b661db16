"""Per-sample gradients of a stack of linear layers. One pass computes several evaluation points of a smoothed loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainables.engine.layers.collecting import factored_decay
from trainables.engine.layers.common import Decay, LayerGradients
from trainables.engine.layers.linear import LinearGeometry
from trainables.engine.layers.outer import Factored, prefer_factors, written_out
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import (
    CHUNK_BYTES,
    PASS,
    Loss,
    PerSampleGradients,
    cross_entropy,
    even_chunk,
    in_passes,
)
from trainables.engine.rows import linear as even_linear

__all__ = ["LinearStackSource", "is_linear_stack"]

_POINTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)
_STACK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class _Record:
    """Tensors of one linear layer, with one tensor for each pass.

    For a pass over k points the shape is (k, B·copies, width), or (B·copies, width) if k = 1.
    """

    inputs: list[Tensor]
    deltas: list[Tensor]
    outputs: list[Tensor]


@dataclass(frozen=True)
class LinearStackSource:
    """Source for a module that `is_linear_stack` accepts.

    `stack_bytes` limits the memory for the parameters of all evaluation points of one pass. So a pass has
    several points if the model is small, and one point if it is large. `BookkeepingSource` describes the other
    attributes.
    """

    module: nn.Sequential
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES
    stack_bytes: int = _STACK_BYTES
    gpu_pass: int = PASS

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the batch, a chunk of samples at a time."""
        if len(targets) == 0:
            return
        samples = even_chunk(max(1, self.chunk_bytes // self._bytes_of_a_sample(len(points), copies)))
        for x, y in in_passes(inputs.flatten(1), targets, samples=samples, gpu_pass=self.gpu_pass, copies=copies):
            yield self._chunk(points, x, y, copies)

    def points_at_once(self, points: Points) -> int:
        """Return the number of evaluation points that one forward and backward pass computes together."""
        return max(1, self.stack_bytes // (points.centre.numel() * points.centre.element_size()))

    @cached_property
    def _linears(self) -> list[nn.Linear]:
        return [layer for layer in self.module if isinstance(layer, nn.Linear)]

    def _bytes_of_a_sample(self, points: int, copies: int) -> int:
        numbers = 0
        for place, layer in enumerate(self._linears):
            numbers += points * copies * (layer.in_features + layer.out_features)
            if not prefer_factors(copies if place == 0 else points * copies, layer.in_features, layer.out_features):
                numbers += layer.in_features * layer.out_features
        return numbers * (4 + 8)  # bytes of a float32, and of its float64 copy for a norm

    def _chunk(self, points: Points, rows: Tensor, y: Tensor, copies: int) -> PerSampleGradients:
        records = [_Record([], [], []) for _ in self._linears]
        at_once = self.points_at_once(points)
        for start in range(0, len(points), at_once):
            stop = min(start + at_once, len(points))
            theta, scale = points.stacked(start, stop), points.scale / copies
            self._pass(theta, rows, y, scale, records, keep_outputs=points.at_centre and points.decay > 0)
        return PerSampleGradients(tuple(self._finished(points, records, len(y) // copies)), self.layout)

    def _pass(
        self, theta: Tensor, rows: Tensor, labels: Tensor, scale: float, records: list[_Record], *, keep_outputs: bool
    ) -> None:
        """Run one forward and backward pass for all k points in `theta`, shape (k, d). Store tensors in `records`."""
        parameters = iter(torch.split(theta, list(self.layout.sizes), dim=1))
        count, hidden = len(theta), rows
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        for layer in list(self.module)[1:]:  # without nn.Flatten
            if not isinstance(layer, nn.Linear):
                hidden = layer(hidden)
                continue
            inputs.append(hidden.detach())
            weight = next(parameters).view(count, layer.out_features, layer.in_features)
            bias = next(parameters) if layer.bias is not None else None
            hidden = _first(hidden, weight, bias) if not outputs else _inner(hidden, weight, bias)
            if not outputs:
                hidden.requires_grad_()  # the backward pass ends here, because no parameter requires a gradient
            outputs.append(hidden)
        loss = self.loss(hidden.flatten(0, -2), labels.repeat(count) if count > 1 else labels)
        deltas = torch.autograd.grad(loss if scale == 1 else loss * scale, outputs)
        for place, record in enumerate(records):
            if place == 0:  # the first layer has the same input at all points, so the deltas are added
                delta = deltas[0].sum(0) if count > 1 else deltas[0]
                record.inputs[:] = [rows]
                record.deltas[:] = [delta if not record.deltas else record.deltas[0] + delta]
            else:
                record.inputs.append(inputs[place])
                record.deltas.append(deltas[place])
            if keep_outputs:
                record.outputs.append(outputs[place].detach())

    def _finished(
        self, points: Points, records: list[_Record], samples: int
    ) -> Iterator[tuple[LayerGradients, dict[str, str]]]:
        views, names = self.layout.views(points.centre), iter(self.layout.names)
        for record, linear in zip(records, self._linears, strict=True):
            local = {name: next(names) for name in (["weight"] if linear.bias is None else ["weight", "bias"])}
            geometry = LinearGeometry(bias=None if linear.bias is None else "bias")
            factored = Factored(_by_sample(record.deltas, samples), _by_sample(record.inputs, samples), geometry)
            record.deltas.clear()
            record.inputs.clear()
            centre = {name: views[full] for name, full in local.items()}
            decay = Decay(points.decay, centre, at_centre=points.at_centre) if points.decay else None
            if not prefer_factors(factored.left.shape[1], linear.in_features, linear.out_features):
                yield written_out(factored, decay), local
                continue
            if decay is not None:
                outputs = _by_sample(record.outputs, samples) if points.at_centre else None
                factored = replace(factored, decay=factored_decay(factored, decay, outputs))
            yield factored, local


def _first(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the output of the first layer at all k points, shape (k, B, out), or (B, out) for k = 1."""
    count, width, _ = weight.shape
    together = even_linear(rows, weight.flatten(0, 1), None if bias is None else bias.flatten())
    return together if count == 1 else together.view(len(rows), count, width).transpose(0, 1).contiguous()


def _inner(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the output of a later layer, which has a different input at each point."""
    if len(weight) == 1:
        return even_linear(hidden, weight[0], None if bias is None else bias[0])
    return even_linear(hidden, weight, bias)


def _by_sample(parts: list[Tensor], samples: int) -> Tensor:
    """Return the parts as one tensor (B, positions, width). Points and copies of a sample are its positions."""
    if len(parts) == 1 and parts[0].dim() == 2:
        return parts[0].view(samples, -1, parts[0].shape[-1])
    whole = torch.cat([part if part.dim() == 3 else part[None] for part in parts])
    points, rows, width = whole.shape
    return whole.view(points, samples, rows // samples, width).movedim(0, 1).flatten(1, 2)


def is_linear_stack(module: nn.Module) -> bool:
    """Return whether the module is a sequence of nn.Flatten, trainable linear layers and pointwise activations.

    A hook could change what a layer computes, or store something.
    """
    if type(module) is not nn.Sequential or len(module) < 2 or any(map(_is_changed, module.modules())):
        return False
    flatten, *rest = module
    linears = [layer for layer in rest if type(layer) is nn.Linear]
    parameters = [parameter for layer in linears for parameter in layer.parameters()]
    return (
        bool(linears)
        and type(rest[0]) is nn.Linear
        and type(flatten) is nn.Flatten
        and (flatten.start_dim == 1 and flatten.end_dim == -1)
        and all(type(layer) is nn.Linear or type(layer) in _POINTWISE for layer in rest)
        and not any(getattr(layer, "inplace", False) for layer in rest)
        and all({name for name, _ in layer.named_parameters()} <= {"weight", "bias"} for layer in linears)
        and len({id(parameter) for parameter in parameters}) == len(parameters) == len([*module.parameters()])
        and all(parameter.requires_grad for parameter in parameters)
        and all(a.out_features == b.in_features for a, b in pairwise(linears))
    )


def _is_changed(layer: nn.Module) -> bool:
    """Return whether a layer has hooks, or a forward pass that is not its type's."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)
