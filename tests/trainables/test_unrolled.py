"""The rewritten layers compute what torch's do; that every gradient is seen is tested in `test_layers.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from errors_helper import raises_code
from gradient_checks import attentions, generator, randn, recurrent_layers, redrawn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.bookkeeping import BookkeepingSource
from trainables.engine.layers.linear import LinearTap
from trainables.engine.layout import Layout
from trainables.engine.sources import per_sample_source
from trainables.engine.unrolled import unrolled
from trainables.errors import GateError
from trainables.models import build

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def tensors_of(outputs: Any) -> list[Tensor]:  # noqa: ANN401 - whatever nest a layer returns
    if isinstance(outputs, Tensor):
        return [outputs]
    return [] if outputs is None else [tensor for part in outputs for tensor in tensors_of(part)]


def assert_same_layer(module: nn.Module, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """Same outputs, same gradients of parameters and inputs, same names in the same order; the original untouched."""
    twin = unrolled(module)
    assert twin is not module
    assert list(twin.state_dict()) == list(module.state_dict())
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert not any(isinstance(layer, LinearTap) for layer in module.modules())

    inputs = [x for x in tensors_of(args) if x.dtype.is_floating_point]
    results = []
    for which in (module, twin):
        for x in inputs:
            x.requires_grad_()
        outputs = tensors_of(which(*args, **options))
        projection = sum((out * randn(*out.shape, seed=9)).sum() for out in outputs)
        wanted = [*which.parameters(), *inputs]
        results.append((outputs, torch.autograd.grad(projection, wanted, materialize_grads=True)))
    (expected, expected_gradients), (outputs, gradients) = results
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-11, atol=1e-12)


# -- recurrent layers ------------------------------------------------------------------------------------------------


def sequence_for(layer: nn.RNNBase, batch: int, length: int) -> Tensor:
    x = randn(batch, length, layer.input_size, seed=1)
    return x if layer.batch_first else x.transpose(0, 1).contiguous()


def states_for(layer: nn.RNNBase, batch: int) -> Any:  # noqa: ANN401 - a tensor or two
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = randn(count, batch, layer.proj_size or layer.hidden_size, seed=2)
    return (hidden, randn(count, batch, layer.hidden_size, seed=3)) if isinstance(layer, nn.LSTM) else hidden


@settings(max_examples=50)
@given(layer=recurrent_layers(), batch=st.integers(0, 4), length=st.integers(1, 5), started=st.booleans())
def test_recurrent_layers_compute_what_torch_does(layer: nn.RNNBase, batch: int, length: int, started: bool) -> None:
    states = (states_for(layer, batch),) if started else ()
    assert_same_layer(layer, sequence_for(layer, batch, length), *states)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_refuse_samples_without_an_axis_and_states_of_another_batch(kind: str) -> None:
    twin = unrolled(getattr(nn, kind)(3, 4, batch_first=True))
    packed = nn.utils.rnn.pack_sequence([torch.zeros(2, 3), torch.zeros(1, 3)])
    for without_axis in (torch.zeros(6, 3), packed):
        with raises_code(GateError, "samples-axis-missing"):
            twin(without_axis)
    fitting, broadcasting = torch.zeros(1, 5, 4), torch.zeros(1, 1, 4)
    pairs = [(broadcasting, fitting), (fitting, broadcasting)]
    for states in pairs if kind == "LSTM" else [broadcasting]:
        with pytest.raises(RuntimeError, match="Expected hidden size"):
            twin(torch.zeros(5, 2, 3), states)


# -- attention -------------------------------------------------------------------------------------------------------


SHARED = ("all", "key and value", "query and key", "none")


def inputs_for(layer: nn.MultiheadAttention, shared: str, batch: int, lengths: tuple[int, int]) -> list[Tensor]:
    """Query, key and value, some of them the same tensor where the widths allow it."""
    if shared in ("all", "query and key"):
        lengths = (lengths[0], lengths[0])
    sizes = ((lengths[0], layer.embed_dim), (lengths[1], layer.kdim), (lengths[1], layer.vdim))
    parts = [randn(batch, *size, seed=20 + number) for number, size in enumerate(sizes)]
    if not layer.batch_first:
        parts = [part.transpose(0, 1).contiguous() for part in parts]
    if shared in ("all", "query and key") and layer.kdim == layer.embed_dim:
        parts[1] = parts[0]
    if shared in ("all", "key and value") and layer.vdim == layer.kdim:
        parts[2] = parts[1]
    return parts


def masks_for(
    kinds: tuple[str, str], layer: nn.MultiheadAttention, batch: int, lengths: tuple[int, int]
) -> dict[str, Tensor]:
    """No mask hides the first key: torch gives NaN for a query that may look at nothing."""
    options = {}
    attention, padding = kinds
    if attention == "2-d Boolean":
        options["attn_mask"] = torch.rand(lengths, generator=generator(30)) < 0.4
        options["attn_mask"][:, 0] = False
    elif attention == "2-d":
        options["attn_mask"] = randn(*lengths, seed=31)
    elif attention == "3-d":
        options["attn_mask"] = randn(batch * layer.num_heads, *lengths, seed=32)
    if padding == "Boolean":
        options["key_padding_mask"] = torch.rand((batch, lengths[1]), generator=generator(33)) < 0.4
        options["key_padding_mask"][:, 0] = False
    elif padding == "float":
        options["key_padding_mask"] = randn(batch, lengths[1], seed=34)
    return options


# torch warns when one mask is Boolean and the other is not.
MASKS = [("", ""), ("2-d Boolean", ""), ("2-d", "float"), ("3-d", ""), ("", "Boolean"), ("2-d Boolean", "Boolean")]


@given(
    layer=attentions(),
    batch=st.integers(1, 3),
    lengths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    shared=st.sampled_from(SHARED),
    masks=st.sampled_from(MASKS),
    need_weights=st.booleans(),
    average=st.booleans(),
)
def test_attention_computes_what_torch_does(
    layer: nn.MultiheadAttention,
    batch: int,
    lengths: tuple[int, int],
    shared: str,
    masks: tuple[str, str],
    need_weights: bool,
    average: bool,
) -> None:
    inputs = inputs_for(layer, shared, batch, lengths)
    axis = 1 if layer.batch_first else 0
    options = masks_for(masks, layer, batch, (inputs[0].shape[axis], inputs[1].shape[axis]))
    assert_same_layer(layer, *inputs, need_weights=need_weights, average_attn_weights=average, **options)


@pytest.mark.parametrize(("padded", "need_weights"), [(False, True), (True, False)])
def test_attention_takes_the_causal_hint_as_torch_does(padded: bool, need_weights: bool) -> None:
    layer = redrawn(nn.MultiheadAttention(4, 2, batch_first=True))
    x = randn(2, 3, 4)
    options = {"key_padding_mask": torch.tensor([[False, False, True], [False, True, True]])} if padded else {}
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    assert_same_layer(layer, x, x, x, attn_mask=causal, is_causal=True, need_weights=need_weights, **options)
    with raises_code(GateError, "attention-mask-missing"):
        unrolled(layer)(x, x, x, is_causal=True)


def test_attention_refuses_what_has_no_axis_of_samples() -> None:
    twin = unrolled(nn.MultiheadAttention(4, 2, batch_first=True))
    x, one = torch.zeros(3, 4), torch.zeros(1, 3, 4)
    nested = torch.nested.nested_tensor([x, x], layout=torch.jagged)
    broadcasting = (torch.zeros(5, 2, 4), one, one)  # one sample in the gradient of all
    for inputs in ((x, x, x), broadcasting, (nested, nested, nested)):
        with raises_code(GateError, "samples-axis-missing"):
            twin(*inputs)


# -- whole models ----------------------------------------------------------------------------------------------------


def test_transformers_with_encoder_and_decoder_keep_their_outputs_and_gradients() -> None:
    model = redrawn(nn.Transformer(4, 2, 1, 1, 5, dropout=0.0, batch_first=True))
    assert_same_layer(model, randn(3, 2, 4), randn(3, 4, 4, seed=1))


@pytest.mark.parametrize("padded", [False, True])
def test_no_fused_path_of_torch_goes_past_the_taps_in_evaluation_mode(padded: bool) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=5, dropout=0.0, batch_first=True)
    encoder = redrawn(nn.TransformerEncoder(layer, num_layers=2)).requires_grad_(False)
    padding = torch.tensor([[False, False, False], [False, False, True]]) if padded else None
    x = randn(2, 3, 4)
    expected = encoder.train()(x, src_key_padding_mask=padding)
    twin = unrolled(encoder.eval())
    passes = []
    for name, module in twin.named_modules():
        if isinstance(module, LinearTap):  # no hook: torch takes its fused path only where there is none
            forward = module.forward
            module.forward = lambda *args, forward=forward, name=name: (passes.append(name), forward(*args))[1]
    torch.testing.assert_close(twin(x, src_key_padding_mask=padding), expected, rtol=1e-12, atol=1e-12)
    assert passes == ["layers.0.self_attn.tap_in", "layers.1.self_attn.tap_in"]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_rewritten_recurrent_layers_work_under_vmap(kind: type[nn.RNNBase]) -> None:
    layer = redrawn(kind(3, 4, num_layers=2, batch_first=True))
    twin, inputs = unrolled(layer), randn(5, 6, 3)
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(module: nn.Module, given: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(module, given, (x,))[0].square().sum()

    each = vmap(grad(lambda given, one: loss(twin, given, one[None])), in_dims=(None, 0))(parameters, inputs)
    for name, total in grad(lambda given: loss(layer, given, inputs))(parameters).items():
        torch.testing.assert_close(each[name].sum(0), total, rtol=1e-10, atol=1e-11)


# -- what is copied, and what is not ---------------------------------------------------------------------------------


def test_the_original_keeps_its_layers_and_shares_its_tensors() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.GRU(3, 4))
    model.register_buffer("table", torch.zeros(2))
    twin = unrolled(model)
    assert type(model[1]) is nn.GRU
    assert list(dict(model.named_modules())) == ["", "0", "1"]
    assert all(a is b for a, b in zip(twin.parameters(), model.parameters(), strict=True))
    assert twin.table is model.table
    nothing = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    assert unrolled(nothing) is nothing


def test_a_layer_with_two_names_is_rewritten_once_and_stays_one() -> None:
    model = nn.Module()
    model.first = nn.LSTM(3, 4)
    model.second = model.first
    model.listed = [model.first]
    twin = unrolled(model)
    assert twin.first is twin.second is twin.listed[0]
    assert twin.first.tap_ih_l0.weight_name == "weight_ih_l0"
    assert twin.first.hidden_size == 4


def test_layers_that_are_more_than_torchs_are_left_as_they_are() -> None:
    class Own(nn.LSTM):
        pass

    model = nn.ModuleList(
        [
            Own(3, 4),
            nn.utils.parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0"),
            nn.utils.parametrizations.weight_norm(nn.MultiheadAttention(4, 2), "in_proj_weight"),
        ]
    )
    assert unrolled(model) is model
    extra = nn.GRU(3, 4)
    extra.scale = nn.Parameter(torch.ones(()))
    assert unrolled(extra) is extra


def test_dropout_of_their_own_is_refused_and_every_layer_is_named() -> None:
    attention = nn.TransformerEncoderLayer(4, 2, dropout=0.2, batch_first=True)
    model = nn.ModuleDict({"text": nn.LSTM(3, 4, num_layers=2, dropout=0.1), "heads": attention})
    with pytest.raises(GateError) as caught:
        unrolled(model)
    first, second = str(caught.value).splitlines()
    assert "'text'" in first
    assert "'heads.self_attn'" in second


@pytest.mark.parametrize("frozen", [["1", "2"], ["1", "2.lstm.weight_hh_l0", "2.lstm.bias_hh_l0"]])
def test_a_frozen_recurrent_layer_is_no_reason_to_go_one_by_one(frozen: list[str]) -> None:
    """The source is compared with autograd before it is returned."""
    model = build("next_word_lstm", input_shape=(4,), classes=9, seed=0, freeze=frozen)
    source = per_sample_source(model, Layout.of(model), example=9 * torch.rand(3, 4))
    assert isinstance(source, BookkeepingSource)
