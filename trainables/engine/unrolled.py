"""Recurrent and attention layers rewritten so that each use of a parameter is a product that a hook can see."""

from __future__ import annotations

import copy
from itertools import chain

from torch import nn

from trainables.engine.taps import LinearTap
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
    """A copy in which every LSTM, GRU, RNN and MultiheadAttention is rewritten; the module itself when it has none.

    The copy computes the same outputs. Its parameters have the same names in the same order, and are the very tensors
    of the original, as its buffers are: only the code that uses them differs. Each use passes through a LinearTap, or
    through the nn.Linear that was there before (`out_proj` of attention).

    A layer that is more than torch's own is left as it is: a subclass, or one whose parameters were rewritten
    (weight_norm). So whoever relies on the taps must still look for parameters that no tap uses.

    Args:
        module: the model; it is not changed.

    Raises:
        GateError: naming every layer with dropout of its own.
    """
    layers = {name: layer for name, layer in module.named_modules() if _taps(layer)}
    problems = [problem for name, layer in layers.items() if (problem := dropout_problem(name, layer))]
    if problems:
        raise GateError("\n".join(problems))
    if not layers:
        return module
    own = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    twin = copy.deepcopy(module, own)
    for layer in list(twin.modules()):
        _rewrite(layer)
    return twin


def _rewrite(layer: nn.Module) -> None:
    """Gives a layer of the copy its taps and the forward pass that uses them."""
    if isinstance(layer, nn.TransformerEncoder):
        # In evaluation mode it would hand nested tensors to its layers, whose attention is then not ours.
        layer.use_nested_tensor = False
    if not (taps := _taps(layer)):
        return
    # The layer stays the object it was, as torch's own parametrizations do it: whoever refers to it, by a second name
    # or from a list, finds the rewritten one, with all its attributes.
    layer.__class__ = _REWRITTEN[type(layer)]
    for name, tap in taps.items():
        layer.add_module(name, tap)
    if isinstance(layer, nn.MultiheadAttention):
        # In evaluation mode nn.TransformerEncoderLayer computes the attention itself, past our layer, if this is true.
        layer._qkv_same_embed_dim = False


def _taps(layer: nn.Module) -> dict[str, LinearTap]:
    """The taps by name that see each parameter of the layer; none for a layer that is not rewritten."""
    if type(layer) not in _REWRITTEN:
        return {}
    taps: dict[str, LinearTap] = {}
    if isinstance(layer, nn.RNNBase):
        taps = recurrent_taps(layer)
    elif isinstance(layer, nn.MultiheadAttention):
        taps = attention_taps(layer)
    seen = {name for tap in taps.values() for name in (tap.weight_name, tap.bias_name) if name is not None}
    return taps if seen == {name for name, _ in layer.named_parameters(recurse=False)} else {}


def dropout_problem(name: str, layer: nn.Module) -> str | None:
    """What is wrong with a layer that drops something, and the fix; None when it drops nothing."""
    if isinstance(layer, nn.RNNBase):
        # Between the layers of a stack: a single layer has no such place, whatever it was told.
        option, probability = "dropout", layer.dropout if layer.num_layers > 1 else 0.0
    elif isinstance(layer, nn.MultiheadAttention):
        option, probability = "dropout", layer.dropout
    elif isinstance(layer, nn.modules.dropout._DropoutNd):
        option, probability = "p", layer.p
    else:
        return None
    if probability == 0:
        return None
    # A layer of torch's own (a TransformerEncoderLayer) hands its `dropout` to the nn.Dropout inside it.
    fix = "set dropout=0" if option == "dropout" else "leave it out, or set dropout=0 in the layer that holds it"
    return (
        f"layer {name!r} is {type(layer).__name__} with {option}={probability}, which draws from a generator that no "
        f"checkpoint holds: {fix}"
    )
