"""Rules with explicit per-sample gradients, for normalisation layers and for layers without another rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.layers.common import Call, Decay, Explicit, LayerGradients, Work
from trainables.engine.rows import EvenLinear

__all__ = ["any_layer", "group_norm", "layer_norm", "rms_norm"]

PerSample = Callable[[Call, Mapping[str, Tensor]], dict[str, Tensor]]
"""(call, the layer's parameters) → the gradients of each parameter by name, shape (B·copies, *parameter_shape)."""


class ExplicitCollector:
    """Collector that sums explicit per-sample gradients over calls, copies and points."""

    def __init__(self, per_sample: PerSample, work: Work) -> None:
        self._per_sample = per_sample
        self._work = work
        self._parts: dict[str, Tensor] = {}

    def add(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> None:
        """Add the gradients of these calls."""
        for call in calls:
            for name, part in self._per_sample(call, parameters).items():
                part = part.view(self._work.samples, -1, *part.shape[1:]).sum(1)  # over the copies
                self._parts[name] = self._parts[name].add_(part) if name in self._parts else part

    def finish(self, decay: Decay | None) -> LayerGradients:
        """Return the sums, with weight decay unless `decay` is None."""
        if decay is not None:
            for name, part in self._parts.items():
                part.add_(decay.centre[name], alpha=decay.strength)
        return Explicit(self._parts)

    def numbers(self, calls: Sequence[Call], parameters: Mapping[str, Tensor]) -> int:
        """Estimate the number of values in memory: gradients of one call, their copy, and the sums."""
        copies = max((len(call.inputs) for call in calls), default=0)
        return sum(value.numel() for value in parameters.values()) * (2 * copies + self._work.samples)


def layer_norm(layer: nn.LayerNorm, work: Work) -> ExplicitCollector:
    """Return a collector for z = weight · x̂ + bias, in which x̂ is x normalised over the last axes."""

    def per_sample(call: Call, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        normal = nn.functional.layer_norm(call.inputs, layer.normalized_shape, eps=layer.eps)
        return _scale_and_shift(normal, call.deltas, parameters, keep=len(layer.normalized_shape))

    return ExplicitCollector(per_sample, work)


def rms_norm(layer: nn.RMSNorm, work: Work) -> ExplicitCollector:
    """Return a collector for z = weight · x̂, in which x̂ is x divided by its root mean square over the last axes."""

    def per_sample(call: Call, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        normal = nn.functional.rms_norm(call.inputs, list(layer.normalized_shape), eps=layer.eps)
        return _scale_and_shift(normal, call.deltas, parameters, keep=len(layer.normalized_shape))

    return ExplicitCollector(per_sample, work)


def group_norm(layer: nn.GroupNorm, work: Work) -> ExplicitCollector:
    """Return a collector for z = weight · x̂ + bias, in which x̂ is x normalised within each group of channels."""

    def per_sample(call: Call, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        normal = nn.functional.group_norm(call.inputs, layer.num_groups, eps=layer.eps)
        return _scale_and_shift(normal.movedim(1, -1), call.deltas.movedim(1, -1), parameters, keep=1)

    return ExplicitCollector(per_sample, work)


def any_layer(layer: nn.Module, work: Work) -> ExplicitCollector:
    """Return a collector that uses torch.func, for any layer with one input and one output."""

    def per_sample(call: Call, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        def inner(parameters: dict[str, Tensor], x: Tensor, delta: Tensor) -> Tensor:
            outputs: Tensor = functional_call(layer, parameters, (x[None],))
            return (outputs[0] * delta).sum()

        per_row = vmap(grad(inner), in_dims=(None, 0, 0))
        with EvenLinear():
            found: dict[str, Tensor] = per_row(dict(parameters), call.inputs, call.deltas)
        return found

    return ExplicitCollector(per_sample, work)


def _scale_and_shift(
    normal: Tensor, deltas: Tensor, parameters: Mapping[str, Tensor], *, keep: int
) -> dict[str, Tensor]:
    """Return the gradients of the weight and bias in z = weight · x̂ + bias. Both gradients keep the last `keep` axes.

    All other axes, except the first, are summed.
    """
    between = tuple(range(1, deltas.dim() - keep))
    found = {"weight": normal * deltas, "bias": deltas}
    return {name: found[name].sum(between) if between else found[name].clone() for name in parameters if name in found}
