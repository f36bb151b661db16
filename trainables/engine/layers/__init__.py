"""Rules for the per-sample gradients of layers, by layer type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from torch import nn

from trainables.engine.layers.common import Collector, Work
from trainables.engine.layers.convolution import convolution, is_plain_convolution
from trainables.engine.layers.embedding import EmbeddingCollector, is_plain_embedding
from trainables.engine.layers.linear import linear
from trainables.engine.layers.written_out import group_norm, layer_norm, rms_norm

__all__ = ["RULES", "MakeCollector", "rule_for"]

MakeCollector: TypeAlias = Callable[[Any, Work], Collector]
"""(layer, sizes of the chunk) → collector of the layer's calls."""

RULES: Final[Mapping[type[nn.Module], tuple[MakeCollector, Callable[[Any], bool] | None]]] = {
    nn.Linear: (linear, None),
    nn.modules.linear.NonDynamicallyQuantizableLinear: (linear, None),
    nn.Conv1d: (convolution, is_plain_convolution),
    nn.Conv2d: (convolution, is_plain_convolution),
    nn.Embedding: (EmbeddingCollector, is_plain_embedding),
    nn.LayerNorm: (layer_norm, None),
    nn.RMSNorm: (rms_norm, None),
    nn.GroupNorm: (group_norm, None),
}
"""Layer type → (collector, condition that a layer must meet, or None).

A subclass of these types has no rule, because it may compute something else.
"""


def rule_for(layer: nn.Module) -> MakeCollector | None:
    """Return the function that makes the collector of a layer; None if no rule applies to the layer."""
    make, applies = RULES.get(type(layer), (None, None))
    return make if applies is None or applies(layer) else None
