"""Per-sample gradients in closed form for stacks of linear layers: measured and summed, never written out.

In a layer z = W a + b the gradient of sample i is (Σ_j dz_ij a_ijᵀ, Σ_j dz_ij), j over the K points. So its squared
norm is Σ_{j,k} (dz_ij · dz_ik)(a_ij · a_ik + 1), and a weighted sum over samples is one matrix product. Norms are taken
in float64: the Gram form subtracts, and a norm that came out too small would be a clip that lets too much through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainables.engine.layout import Layout, flat
from trainables.engine.objective import Points
from trainables.engine.per_sample import CHUNK_BYTES, Loss, PerSampleSource, TorchFuncSource, cross_entropy

__all__ = ["LinearStackGradients", "LinearStackSource", "per_sample_source"]

# Activations that keep each sample, and each entry, to itself.
_POINTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)


@dataclass(frozen=True)
class _Layer:
    """One linear layer of one chunk.

    Attributes:
        inputs: a, shape (B, K, in); K is 1 where the input is the same at all points.
        deltas: scale · dz, gradient of the loss by the layer's output, shape (B, K, out).
        bias: whether there is one.
    """

    inputs: Tensor
    deltas: Tensor
    bias: bool

    def squared_norms(self) -> Tensor:
        """Shape (B,), float64."""
        inputs, deltas = self.inputs.double(), self.deltas.double()
        return ((deltas @ deltas.mT) * (inputs @ inputs.mT + self.bias)).sum((1, 2))

    def inner_products(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """⟨gradient of sample i, (weight, bias)⟩, shape (B,), float64."""
        outputs = nn.functional.linear(self.inputs.double(), weight.double(), None if bias is None else bias.double())
        return (self.deltas.double() * outputs).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """Σ_i weights_i · (gradient of the weight, gradient of the bias), float64."""
        deltas = weights.double()[:, None, None] * self.deltas
        weight = deltas.flatten(0, 1).mT @ self.inputs.flatten(0, 1).double()
        return (weight, deltas.sum((0, 1))) if self.bias else (weight,)


@dataclass(frozen=True)
class LinearStackGradients:
    """Per-sample gradients of a stack of linear layers, as the factors of their outer products."""

    layers: tuple[_Layer, ...]
    layout: Layout
    shift: Tensor | None = None

    def shifted(self, vector: Tensor) -> LinearStackGradients:
        """g_i + vector."""
        return replace(self, shift=vector if self.shift is None else self.shift + vector)

    def norms(self) -> Tensor:
        """‖g_i‖₂, shape (B,), in the dtype of the gradients."""
        squared = torch.stack([layer.squared_norms() for layer in self.layers]).sum(0)
        if self.shift is not None:
            squared += 2.0 * self._inner_products(self.shift) + self.shift.double().square().sum()
        return squared.clamp(min=0.0).sqrt().to(self.layers[0].deltas.dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Σ_i weights_i · g_i, shape (d,), float64."""
        kept = weights > 0
        layers = self.layers
        if not bool(kept.all()):
            weights = weights[kept]
            layers = tuple(replace(layer, inputs=layer.inputs[kept], deltas=layer.deltas[kept]) for layer in layers)
        total = flat(part for layer in layers for part in layer.weighted_sum(weights))
        return total if self.shift is None else total + weights.double().sum() * self.shift

    def _inner_products(self, vector: Tensor) -> Tensor:
        views = iter(self.layout.views(vector).values())
        products = [layer.inner_products(next(views), next(views) if layer.bias else None) for layer in self.layers]
        return torch.stack(products).sum(0)


@dataclass(frozen=True)
class LinearStackSource:
    """The closed form, for a module that `is_linear_stack` accepts."""

    module: nn.Sequential
    layout: Layout
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES

    def chunks(self, points: Points, inputs: Tensor, targets: Tensor) -> Iterator[LinearStackGradients]:
        """The gradients of the whole batch, a chunk of samples at a time."""
        size = max(1, self.chunk_bytes // (len(points.theta) * self._bytes_of_a_sample()))
        for x, y in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            if len(x) == 0:
                return
            passes = [self._pass(theta, x, y) for theta in points.theta]
            yield LinearStackGradients(tuple(self._layers(passes, points.scale)), self.layout)

    def _bytes_of_a_sample(self) -> int:
        widths = sum(layer.in_features + layer.out_features for layer in self._linears())
        return widths * (4 + 8)  # as float32, and as float64 while a norm is taken

    def _linears(self) -> list[nn.Linear]:
        return [layer for layer in self.module if isinstance(layer, nn.Linear)]

    def _pass(self, theta: Tensor, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """One forward and backward pass: (input, gradient by the output) of each linear layer."""
        views = iter(self.layout.views(theta).values())
        inputs, outputs, hidden = [], [], x
        for layer in self.module:
            if not isinstance(layer, nn.Linear):
                hidden = layer(hidden)
                continue
            inputs.append(hidden.detach())
            hidden = nn.functional.linear(hidden, next(views), next(views) if layer.bias is not None else None)
            if not hidden.requires_grad:
                hidden.requires_grad_()  # the first layer: what lies before it needs no gradient
            outputs.append(hidden)
        # Samples do not mix, so the gradient of the summed loss holds each sample's own in its row.
        return list(zip(inputs, torch.autograd.grad(self.loss(hidden, y), outputs), strict=True))

    def _layers(self, passes: list[list[tuple[Tensor, Tensor]]], scale: float) -> Iterator[_Layer]:
        for index, linear in enumerate(self._linears()):
            inputs = [each[index][0] for each in passes]
            deltas = torch.stack([each[index][1] for each in passes], dim=1) * scale
            if index == 0:  # its input is the sample itself at all points, so the K outer products are one
                yield _Layer(inputs[0][:, None], deltas.sum(1, keepdim=True), linear.bias is not None)
            else:
                yield _Layer(torch.stack(inputs, dim=1), deltas, linear.bias is not None)


def is_linear_stack(module: nn.Module) -> bool:
    """Whether the closed form is exact: flatten, then distinct trainable linear layers and pointwise activations."""
    if type(module) is not nn.Sequential or len(module) < 2:
        return False
    flatten, *rest = module
    linears = [layer for layer in rest if type(layer) is nn.Linear]
    parameters = [parameter for layer in linears for parameter in layer.parameters()]
    return (
        bool(linears)
        and type(flatten) is nn.Flatten
        and (flatten.start_dim == 1 and flatten.end_dim == -1)
        and all(type(layer) is nn.Linear or type(layer) in _POINTWISE for layer in rest)
        and not any(getattr(layer, "inplace", False) for layer in rest)
        and len({id(parameter) for parameter in parameters}) == len(parameters)
        and all(parameter.requires_grad for parameter in parameters)
        and all(a.out_features == b.in_features for a, b in pairwise(linears))
    )


def per_sample_source(module: nn.Module, layout: Layout, *, loss: Loss = cross_entropy) -> PerSampleSource:
    """The closed form where it is exact, torch.func for every other model."""
    if isinstance(module, nn.Sequential) and is_linear_stack(module):
        return LinearStackSource(module, layout, loss)
    return TorchFuncSource(module, layout, loss)
