"""Copy of a model with rewritten recurrent and attention layers, so that hooks see each product with a parameter."""

from __future__ import annotations

import copy
from itertools import chain

from torch import nn

from trainables.engine.layers.linear import LinearTap
from trainables.engine.unrolled_attention import UnrolledMultiheadAttention, attention_taps
from trainables.engine.unrolled_recurrent import UnrolledGRU, UnrolledLSTM, UnrolledRNN, recurrent_taps
from trainables.errors import GateError

__all__ = ["dropout_problem", "unrolled"]

_REWRITTEN: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTM: UnrolledLSTM,
    nn.GRU: UnrolledGRU,
    nn.RNN: UnrolledRNN,
    nn.MultiheadAttention: UnrolledMultiheadAttention,
}


def unrolled(module: nn.Module) -> nn.Module:
    """Return a copy in which every LSTM, GRU, RNN and MultiheadAttention is rewritten.

    A model without such layers is returned as it is.

    The copy computes the same outputs from the same parameters and buffers, with the same names in the same order. Each
    product with a parameter is a LinearTap, or an nn.Linear of the original (`out_proj` of attention). Subclasses of
    these layers, and layers with computed parameters (weight_norm), are not changed. So the caller must still check for
    parameters that no tap uses.

    Raises:
        GateError: a rewritten layer has dropout. The message names all such layers.
    """
    layers = {name: layer for name, layer in module.named_modules() if _taps(layer)}
    GateError.raise_any(dropout_problem(name, layer) for name, layer in layers.items())
    if not layers:
        return module
    own = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    twin = copy.deepcopy(module, own)
    for layer in list(twin.modules()):
        _rewrite(layer)
    return twin


def _rewrite(layer: nn.Module) -> None:
    """Add the taps to a layer of the copy, and replace its forward pass."""
    if isinstance(layer, nn.TransformerEncoder):
        # In evaluation mode, nested tensors would bypass the rewritten attention.
        layer.use_nested_tensor = False
    if not (taps := _taps(layer)):
        return
    # The class of the object is changed, as in torch's parametrizations, so that every reference to the layer is to the
    # rewritten layer.
    layer.__class__ = _REWRITTEN[type(layer)]
    for name, tap in taps.items():
        layer.add_module(name, tap)
    if isinstance(layer, nn.MultiheadAttention):
        # If true, nn.TransformerEncoderLayer in evaluation mode would bypass the rewritten attention.
        layer._qkv_same_embed_dim = False


def _taps(layer: nn.Module) -> dict[str, LinearTap]:
    """Return the taps by name, one for each product with a parameter. A layer that is not rewritten has no taps."""
    if type(layer) not in _REWRITTEN:
        return {}
    taps: dict[str, LinearTap] = {}
    if isinstance(layer, nn.RNNBase):
        taps = recurrent_taps(layer)
    elif isinstance(layer, nn.MultiheadAttention):
        taps = attention_taps(layer)
    seen = {name for tap in taps.values() for name in (tap.weight_name, tap.bias_name) if name is not None}
    return taps if seen == {name for name, _ in layer.named_parameters(recurse=False)} else {}


def dropout_problem(name: str, layer: nn.Module) -> tuple[str, str] | None:
    """Return the error code and message for a layer with dropout above 0; None for any other layer."""
    if isinstance(layer, nn.RNNBase):
        # torch applies dropout between stacked layers, so a single layer has no dropout.
        option, probability = "dropout", layer.dropout if layer.num_layers > 1 else 0.0
    elif isinstance(layer, nn.MultiheadAttention):
        option, probability = "dropout", layer.dropout
    elif isinstance(layer, nn.modules.dropout._DropoutNd):
        option, probability = "p", layer.p
    else:
        return None
    if probability == 0:
        return None
    # A layer such as TransformerEncoderLayer passes its `dropout` to the nn.Dropout inside it.
    fix = (
        "Set dropout=0" if option == "dropout" else "Remove this layer, or set dropout=0 in the layer that contains it"
    )
    return (
        "layer-draws-random",
        f"Layer {name!r} is {type(layer).__name__} with {option}={probability}, which draws random numbers from a "
        f"generator that no checkpoint stores. {fix}.",
    )
