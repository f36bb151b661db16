"""Per-sample gradients by book-keeping (Bu et al. 2023): one forward and one backward pass per evaluation point.

Hooks record the inputs and outputs of each layer with parameters. The backward pass computes the gradients of the loss
with respect to these outputs. Each row of these gradients belongs to one sample. A layer's inputs and output gradients
determine its per-sample norms and, with the clip factors, the weighted sum of its gradients (docs/engine.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables.engine.accelerator import is_full_float32
from trainables.engine.layers import MakeCollector, rule_for
from trainables.engine.layers.common import Call, Collector, Decay, Explicit, LayerGradients, Work
from trainables.engine.layers.linear import LinearTap, linear_tap
from trainables.engine.layers.written_out import any_layer
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
from trainables.engine.rows import EvenLinear

__all__ = ["BookkeepingSource", "LayerGroup", "UnknownLayerError", "layers_of"]

_LOG = logging.getLogger(__name__)


class UnknownLayerError(Exception):
    """Error of a model that hooks cannot follow. `per_sample_source` catches it and tries torch.func."""


@dataclass(frozen=True, eq=False)
class LayerGroup:
    """Layer that gets a hook.

    `names` maps each trainable parameter's name in the layer to its name in the layout. `make` creates the collector of
    the layer's gradients.
    """

    layer: nn.Module
    names: Mapping[str, str]
    make: MakeCollector


@dataclass(frozen=True, eq=False)
class BookkeepingSource:
    """Source of the per-sample gradients of a model whose parameters all belong to hooked layers.

    Attributes:
        module: model. The parameters of the evaluation points replace its own parameters.
        layout: trainable parameters of the model.
        layers: result of `layers_of`.
        loss: function that returns the sum of the samples' losses.
        chunk_bytes: approximate memory of a chunk, in bytes.
        guard: whether layers return copies of their outputs, for models that change outputs in place (`out += x`).
        autocast: dtype of the forward and backward passes in mixed precision, or None. It does not apply to norms and
            sums.
        gpu_pass: largest number of samples of a pass on a GPU, where all passes have the same size.
    """

    module: nn.Module
    layout: Layout
    layers: tuple[LayerGroup, ...]
    loss: Loss = cross_entropy
    chunk_bytes: int = CHUNK_BYTES
    guard: bool = False
    autocast: torch.dtype | None = None
    gpu_pass: int = PASS
    _sizes: dict[tuple[int, int, torch.Size], int] = field(default_factory=dict, init=False)

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        """Yield the gradients of the batch, a chunk of samples at a time."""
        if len(targets) == 0:
            return
        samples = self._chunk_size(points, inputs, targets, copies)
        for x, y in in_passes(inputs, targets, samples=samples, gpu_pass=self.gpu_pass, copies=copies):
            yield self._chunk(points, _channels_last(x) if x.dim() == 4 else x, y, copies)

    def _chunk(self, points: Points, x: Tensor, y: Tensor, copies: int) -> PerSampleGradients:
        work = Work(samples=len(y) // copies, points=len(points))
        collectors = [group.make(group.layer, work) for group in self.layers]
        first: list[list[Tensor]] = []
        used = [False] * len(self.layers)
        for index in range(len(points)):
            views = self.layout.views(points.theta(index))
            calls = self._pass(views, x, y, points.scale / copies, first)
            for place, (group, collector) in enumerate(zip(self.layers, collectors, strict=True)):
                if calls[place]:
                    used[place] = True
                    collector.add(calls[place], {local: views[name] for local, name in group.names.items()})
        return PerSampleGradients(tuple(self._finished(points, collectors, used, work)), self.layout)

    def _finished(
        self, points: Points, collectors: list[Collector], used: list[bool], work: Work
    ) -> Iterator[tuple[LayerGradients, Mapping[str, str]]]:
        views = self.layout.views(points.centre)
        for group, collector, was_used in zip(self.layers, collectors, used, strict=True):
            centre = {local: views[name] for local, name in group.names.items()}
            if was_used:
                decay = Decay(points.decay, centre, at_centre=points.at_centre) if points.decay else None
                yield collector.finish(decay), group.names
            else:
                nothing = {k: (points.decay * v).expand(work.samples, *v.shape) for k, v in centre.items()}
                yield Explicit(nothing), group.names

    def _pass(
        self, views: Mapping[str, Tensor], x: Tensor, y: Tensor, scale: float, first: list[list[Tensor]]
    ) -> list[list[Call]]:
        """Run one forward and backward pass, and return the calls of each layer in order."""
        seen: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.layers]
        versions: list[tuple[Tensor, int]] = []
        places = {group.layer: place for place, group in enumerate(self.layers)}

        def note(layer: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object], given: object) -> Tensor:
            inputs, output = _one_in_one_out(layer, arguments, keywords, given)
            if not output.requires_grad:
                output.requires_grad_()  # the backward pass ends here, because no parameter requires a gradient
            seen[places[layer]].append((inputs, output))
            versions.extend((tensor, tensor._version) for tensor in (inputs, output))
            return output.clone() if self.guard else output

        handles = [group.layer.register_forward_hook(note, with_kwargs=True) for group in self.layers]
        try:
            mixed = torch.autocast(x.device.type, self.autocast, enabled=self.autocast is not None)
            with EvenLinear(), torch.enable_grad(), mixed:
                outputs = functional_call(self.module, dict(views), (x,))
            with torch.enable_grad():
                loss = self.loss(outputs if self.autocast is None else outputs.float(), y) * scale
        finally:
            for handle in handles:
                handle.remove()
        if not is_full_float32():  # weight decay takes a norm from the outputs, whose rounding it must know
            raise UnknownLayerError("the model switches to float32 products with reduced precision")
        if any(tensor._version != version for tensor, version in versions):
            raise UnknownLayerError("the input or output of a layer is changed in place")
        flat = [output for calls in seen for _, output in calls]
        deltas = iter(torch.autograd.grad(loss, flat, materialize_grads=True))
        dtype = next(iter(views.values())).dtype
        if not first:
            first.extend([inputs.detach() for inputs, _ in calls] for calls in seen)
        return [
            [
                Call(
                    inputs=_as(inputs.detach(), dtype),
                    outputs=output.detach(),
                    deltas=_as(next(deltas), dtype),
                    fixed=not inputs.requires_grad and index < len(known) and _same(inputs, known[index]),
                )
                for index, (inputs, output) in enumerate(calls)
            ]
            for calls, known in zip(seen, first, strict=True)
        ]

    def _chunk_size(self, points: Points, inputs: Tensor, targets: Tensor, copies: int) -> int:
        """Return the number of samples in a chunk, from the memory of a sample, which depends only on public shapes."""
        key = (len(points), copies, inputs.shape[1:])
        if key not in self._sizes:
            views = self.layout.views(points.centre)
            work = Work(samples=1, points=len(points))
            calls = self._pass(views, inputs[:copies], targets[:copies], 1.0, [])
            numbers = 0
            for group, of_layer in zip(self.layers, calls, strict=True):
                parameters = {local: views[name] for local, name in group.names.items()}
                numbers += 3 * sum(call.inputs.numel() + call.outputs.numel() for call in of_layer)
                if of_layer:
                    numbers += group.make(group.layer, work).numbers(of_layer, parameters)
            self._sizes[key] = even_chunk(max(1, self.chunk_bytes // (numbers * points.centre.element_size())))
        return self._sizes[key]


def layers_of(module: nn.Module, layout: Layout) -> tuple[LayerGroup, ...]:
    """Return the layers to hook. Every trainable parameter belongs to exactly one of them.

    For a layer without a rule, torch.func computes the gradients, and a warning is logged.

    Raises:
        UnknownLayerError: two modules share a parameter, or a module without a rule has both parameters and submodules.
    """
    everything = [name for name, value in module.named_parameters(remove_duplicate=False) if value.requires_grad]
    if len(everything) != len(layout.names):
        raise UnknownLayerError("two modules share a parameter")
    trainable = set(layout.names)
    found: list[LayerGroup] = []
    tapped: set[str] = set()
    for prefix, layer in module.named_modules():
        if isinstance(layer, LinearTap):
            owner = prefix.rpartition(".")[0]
            locals_ = [name for name in (layer.weight_name, layer.bias_name) if name is not None]
            names = {name: f"{owner}.{name}" if owner else name for name in locals_}
            if trainable.isdisjoint(names.values()):
                continue
            if not set(names.values()) <= trainable:
                raise UnknownLayerError(f"{owner or 'the model'} has both frozen and trainable parameters")
            found.append(LayerGroup(layer, names, linear_tap))
            tapped |= set(names.values())
    for prefix, layer in module.named_modules():
        own = {name: f"{prefix}.{name}" if prefix else name for name, _ in layer.named_parameters(recurse=False)}
        names = {local: name for local, name in own.items() if name in trainable and name not in tapped}
        if not names:
            continue
        rule = rule_for(layer) if len(names) == len(own) else None
        if rule is None and any(True for _ in layer.children()):
            raise UnknownLayerError(
                f"{prefix or 'the model'} ({type(layer).__name__}) has both parameters and submodules"
            )
        if rule is None:
            _say_once(type(layer).__name__)
        found.append(LayerGroup(layer, names, rule or any_layer))
    claimed = [name for group in found for name in group.names.values()]
    if sorted(claimed) != sorted(layout.names):
        raise UnknownLayerError("a parameter is used in several places")
    return tuple(found)


def _one_in_one_out(
    layer: nn.Module, arguments: tuple[object, ...], keywords: Mapping[str, object], output: object
) -> tuple[Tensor, Tensor]:
    """Return the single input and the single output of a layer. Raise UnknownLayerError if there are several."""
    taken = arguments[:1] if isinstance(layer, LinearTap) else arguments  # a tap's other arguments are parameters
    kind = type(layer).__name__
    if keywords or len(taken) != 1 or not isinstance(taken[0], Tensor):
        raise UnknownLayerError(f"{kind} is not called with exactly one positional tensor")
    if not isinstance(output, Tensor):
        raise UnknownLayerError(f"{kind} returns a {type(output).__name__} instead of one tensor")
    return taken[0], output


@cache
def _say_once(kind: str) -> None:
    _LOG.warning(
        "%s has no rule for per-sample gradients. Its gradients are computed one by one, which is slower.", kind
    )


def _channels_last(images: Tensor) -> Tensor:
    """Return the images in channels-last memory order. This halves the time of convolution and pooling on a CPU."""
    if images.shape[1] > 1:
        return images.contiguous(memory_format=torch.channels_last)
    height, width = images.shape[2:]
    # With one channel, both orders are the same in memory, and torch decides by the strides.
    return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))


def _as(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert floating-point values to `dtype`. Return integers, which are inputs of an embedding, unchanged."""
    return values.to(dtype) if values.is_floating_point() else values


def _same(inputs: Tensor, known: Tensor) -> bool:
    """Return whether a layer's inputs at an evaluation point equal `known`, its inputs at the first point."""
    if inputs.shape != known.shape:
        return False
    return (inputs.data_ptr() == known.data_ptr() and inputs.stride() == known.stride()) or torch.equal(inputs, known)
