"""Every kind of layer against autograd, one sample at a time, over random shapes, points, copies and micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from covering import pairs
from gradient_checks import (
    CLASSES,
    Net,
    attentions,
    by_autograd,
    check,
    expected_norms,
    last,
    recurrent_layers,
    small_images,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trainables.engine.bookkeeping import BookkeepingSource
from trainables.engine.layers import RULES
from trainables.engine.layers.embedding import LookedUp
from trainables.engine.layers.outer import prefer_factors
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource
from trainables.engine.objective import Points
from trainables.engine.per_sample import IGNORED, TorchFuncSource
from trainables.engine.sources import per_sample_source

Draw = Callable[..., Any]


class Head(nn.Module):
    """Any layers, then one linear map of all that they give."""

    def __init__(self, body: nn.Module, example: Tensor) -> None:
        super().__init__()
        self.body = body
        with torch.no_grad():
            width = _first(body(example[:1])).flatten(1).shape[1]
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(_first(self.body(x)).flatten(1))


def _first(output: Any) -> Tensor:  # noqa: ANN401 - a tensor, or a tuple that begins with one
    return output[0] if isinstance(output, tuple) else output


def a_linear(draw: Draw) -> tuple[nn.Module, Tensor]:
    width, out = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    shape = draw(st.sampled_from([(width,), (4, width), (2, 3, width)]))
    return nn.Linear(width, out, bias=draw(st.booleans())), torch.randn(6, *shape)


def a_convolution(draw: Draw, axes: int) -> tuple[nn.Module, Tensor]:
    groups = draw(st.integers(1, 3))
    channels, out = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    options: dict[str, Any] = {"dilation": tuple(draw(st.integers(1, 2)) for _ in range(axes))}
    padding = draw(st.sampled_from(["numbers", "same", "valid"]))
    if padding == "numbers":
        options |= {"padding": tuple(draw(st.integers(0, 2)) for _ in range(axes))}
    else:
        options |= {"padding": padding}
    if padding != "same":
        options |= {"stride": tuple(draw(st.integers(1, 3)) for _ in range(axes))}
    mode = draw(st.sampled_from(["zeros", "zeros", "zeros", "circular"]))
    kind = nn.Conv1d if axes == 1 else nn.Conv2d
    layer = kind(channels, out, kernel, groups=groups, bias=draw(st.booleans()), padding_mode=mode, **options)
    return layer, torch.randn(6, channels, *(draw(st.integers(5, 8)) for _ in range(axes)))


def an_embedding(draw: Draw) -> tuple[nn.Module, Tensor]:
    rows = draw(st.integers(2, 6))
    padding = draw(st.sampled_from([None, 0, 1]))
    layer = nn.Embedding(rows, draw(st.integers(1, 4)), padding_idx=padding)
    return layer, torch.randint(0, rows, draw(st.sampled_from([(6,), (6, 5), (6, 2, 3)])))


def a_group_norm(draw: Draw) -> tuple[nn.Module, Tensor]:
    groups = draw(st.integers(1, 3))
    channels = groups * draw(st.integers(1, 3))
    shape = draw(st.sampled_from([(), (4,), (3, 4)]))
    if channels == groups and shape == ():
        shape = (4,)  # one number in a group has no variance
    return _shaken(nn.GroupNorm(groups, channels)), torch.randn(6, channels, *shape)


def a_layer_norm(draw: Draw) -> tuple[nn.Module, Tensor]:
    shape = draw(st.sampled_from([(4,), (3, 4)]))
    before = draw(st.sampled_from([(), (2,), (2, 3)]))
    layer = nn.LayerNorm(shape, bias=draw(st.booleans())) if draw(st.booleans()) else nn.RMSNorm(shape)
    return _shaken(layer), torch.randn(6, *before, *shape)


def a_recurrent(draw: Draw) -> tuple[nn.Module, Tensor]:
    layer = draw(recurrent_layers()).float()

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        batch_first = net.layer.batch_first
        outputs = net.layer(x if batch_first else x.transpose(0, 1))[0]
        return outputs if batch_first else outputs.transpose(0, 1)

    return Net(run, layer=layer), torch.randn(6, draw(st.integers(1, 4)), layer.input_size)


def an_attention(draw: Draw) -> tuple[nn.Module, Tensor]:
    layer, cross = draw(attentions()).float(), draw(st.booleans())

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        keys = x.flip(1) * 2 if cross else x
        others = [keys if size == x.shape[2] else keys.repeat(1, 1, 3)[..., :size] for size in (layer.kdim, layer.vdim)]
        inputs = x, *others
        if net.layer.batch_first:
            return net.layer(*inputs)[0]
        return net.layer(*(part.transpose(0, 1) for part in inputs))[0].transpose(0, 1)

    return Net(run, layer=layer), torch.randn(6, draw(st.integers(1, 4)), layer.embed_dim)


def an_encoder(draw: Draw) -> tuple[nn.Module, Tensor]:
    options = {name: draw(st.booleans()) for name in ("bias", "norm_first")}
    activation = draw(st.sampled_from(["relu", "gelu"]))
    layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True, activation=activation, **options)
    return _shaken(layer), torch.randn(6, draw(st.integers(1, 4)), 4)


def a_layer_without_a_rule(draw: Draw) -> tuple[nn.Module, Tensor]:
    width = draw(st.integers(1, 4))
    scaled = Net(lambda net, x: torch.tanh(x * net.scale), scale=nn.Parameter(torch.tensor(0.7)))  # without axes
    layer = draw(st.sampled_from([nn.ConvTranspose1d(width, 2, 2), nn.PReLU(width), scaled]))
    return layer, torch.randn(6, width, 5)


def a_layer_used_twice(draw: Draw) -> tuple[nn.Module, Tensor]:
    """Its gradient is the sum over both uses."""
    width = draw(st.integers(2, 4))
    choices = [nn.Linear(width, width), nn.Conv1d(width, width, 3, padding=1), _shaken(nn.GroupNorm(1, width))]
    layer = draw(st.sampled_from(choices))
    return Net(lambda net, x: net.layer(torch.tanh(net.layer(x))), layer=layer), torch.randn(6, width, width)


def a_detached_input(draw: Draw) -> tuple[nn.Module, Tensor]:
    """An input that needs no gradient and still changes with the parameters."""
    width = draw(st.integers(1, 4))

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        hidden = net.one(x)
        return hidden + net.two(torch.tanh(hidden).detach())

    return Net(run, one=nn.Linear(width, width), two=nn.Linear(width, width)), torch.randn(6, width)


LAYERS: dict[str, Callable[[Draw], tuple[nn.Module, Tensor]]] = {
    "linear": a_linear,
    "convolution 1d": lambda draw: a_convolution(draw, 1),
    "convolution 2d": lambda draw: a_convolution(draw, 2),
    "embedding": an_embedding,
    "group norm": a_group_norm,
    "layer norm": a_layer_norm,
    "recurrent": a_recurrent,
    "attention": an_attention,
    "encoder": an_encoder,
    "no rule": a_layer_without_a_rule,
    "used twice": a_layer_used_twice,
    "detached": a_detached_input,
}


def _shaken(layer: nn.Module) -> nn.Module:
    """With parameters that are not all ones and zeros."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", LAYERS)
@given(data=st.data())
@settings(deadline=None, max_examples=16)
def test_each_layer_is_that_of_autograd(kind: str, data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**16)))
    body, inputs = LAYERS[kind](data.draw)
    # Something with parameters in front, so that the layer's own input changes from point to point, or nothing.
    in_front = inputs.is_floating_point() and data.draw(st.booleans())
    if in_front:
        body = nn.Sequential(nn.Linear(inputs.shape[-1], inputs.shape[-1]), nn.Tanh(), body)
    model = Head(body, inputs).double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    samples, copies = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 2))
    x = inputs.repeat(2, *[1] * (inputs.dim() - 1))[: samples * copies]
    # One label for all copies (augmented views), or one for each, some left out (the records of a user).
    y = torch.randint(0, CLASSES, (samples,)).repeat_interleave(copies)
    if data.draw(st.booleans()):
        y = torch.randint(0, CLASSES, (samples * copies,))
        y[1::3] = IGNORED
    layout = Layout.of(model)
    points = Points(
        centre=layout.flatten(model),
        scale=data.draw(st.sampled_from([1.0, 0.5])),
        seeds=data.draw(st.sampled_from([(), (1,), (2, 3, 4)])),
        spread=data.draw(st.sampled_from([0.0, 0.3])),
        decay=data.draw(st.sampled_from([0.0, 0.7])),
    )
    source = per_sample_source(model, layout, example=inputs[:3])
    assert isinstance(source, BookkeepingSource)
    assert len(list(source.chunks(points, x, y, copies=copies))) <= 1
    if samples == 0:
        assert list(source.chunks(points, x, y, copies=copies)) == []
        return
    check(model, source, points, x, y, copies)
    check(model, replace(source, chunk_bytes=1), points, x, y, copies)  # one sample at a time
    if kind not in ("recurrent", "detached"):
        check(model, TorchFuncSource(model, layout), points, x, y, copies)


def test_every_rule_has_a_case() -> None:
    """A layer that is added without a test of its own is noticed."""
    known = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm}
    assert set(RULES) == known | {nn.modules.linear.NonDynamicallyQuantizableLinear}


def assert_right(model: nn.Sequential, x: Tensor, y: Tensor, copies: int = 1) -> None:
    layout = Layout.of(model.double())
    for decay in (0.0, 0.4):
        points = Points(centre=layout.flatten(model), seeds=(1, 2), spread=0.2, decay=decay)
        check(model, per_sample_source(model, layout, example=x[:3]), points, x, y, copies)


@pytest.mark.parametrize("factored", [True, False])
def test_both_ways_of_a_convolution_are_the_same(factored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("trainables.engine.layers.collecting.prefer_factors", lambda *_: factored)
    layers = [nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.Flatten(), last(36)]
    assert_right(nn.Sequential(*layers), torch.randn(5, 2, 8, 8).double(), torch.randint(0, CLASSES, (5,)))


@pytest.mark.parametrize("by_pairs", [True, False])
def test_both_ways_of_an_embedding_are_the_same(by_pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("trainables.engine.layers.embedding.prefer_pairs", lambda *_: by_pairs)
    model = nn.Sequential(nn.Embedding(9, 3, padding_idx=2), nn.Flatten(), last(12))
    assert_right(model, torch.randint(0, 9, (12, 4)), torch.randint(0, CLASSES, (12,)), copies=4)


@pytest.mark.parametrize("by_pairs", [True, False])
def test_lookups_that_cancel_are_not_measured_too_short(by_pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of long terms come to a short sum; what rounding left of it must not be let through for shorter."""
    monkeypatch.setattr("trainables.engine.layers.embedding.prefer_pairs", lambda *_: by_pairs)
    generator = torch.Generator().manual_seed(0)
    deltas = 1e9 * torch.randn(20, 200, 3, generator=generator, dtype=torch.float64)
    deltas = torch.cat([deltas, -deltas, 1e-5 * torch.randn(20, 1, 3, generator=generator, dtype=torch.float64)], 1)
    rows = torch.randint(0, 2, (20, 200), generator=generator)
    rows = torch.cat([rows, rows, rows[:, :1]], 1)
    true = deltas[:, -1].square().sum(1)
    assert bool((LookedUp(rows, deltas, 5, None).squared_norms() >= true).all())
    sums = torch.zeros(20, 5, 3, dtype=torch.float64).scatter_add_(1, rows[:, :, None].expand(-1, -1, 3), deltas)
    assert bool((sums.square().sum((1, 2)) < true).any()), "the control: without a bound of the rounding some are"


@pytest.mark.parametrize(
    ("seeds", "decay", "copies", "sizes"),
    pairs(((), (1, 2, 3, 4, 5)), (0.0, 0.5), (1, 3, 40), ((2**28, 2**24), (1, 2**24), (2**28, 1), (500, 900))),
)
def test_stacked_linear_layers_whatever_the_micro_batches(
    seeds: tuple[int, ...], decay: float, copies: int, sizes: tuple[int, int]
) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 5, bias=False), nn.ReLU())
    model.append(nn.Linear(5, CLASSES)).double()
    layout = Layout.of(model)
    x, y = torch.randn(4 * copies, 1, 4, 4, dtype=torch.float64), torch.randint(0, CLASSES, (4 * copies,))
    y[1::3] = IGNORED
    assert prefer_factors(copies, 16, 6) is (copies < 40), "both ways to a norm are taken"
    points = Points(centre=layout.flatten(model), scale=0.25, seeds=seeds, spread=0.2, decay=decay)
    source = per_sample_source(model, layout)
    assert isinstance(source, LinearStackSource)
    check(model, replace(source, chunk_bytes=sizes[0], stack_bytes=sizes[1]), points, x, y, copies)


def test_mixed_precision_measures_what_it_sums() -> None:
    """The passes are in bfloat16; norm and sum must still be of the same gradient, in full precision."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, CLASSES))
    layout = Layout.of(model)
    x, y = small_images()
    x = x.float()
    points = Points(centre=layout.flatten(model), seeds=(1, 2), scale=0.5, spread=0.1, decay=0.3)
    source = per_sample_source(model, layout, example=x[:3], autocast=torch.bfloat16)
    assert isinstance(source, BookkeepingSource)
    (gradients,) = source.chunks(points, x, y)
    rows = []
    for index in range(len(y)):
        one = torch.zeros_like(gradients.group_norms())
        one[:, index] = 1.0
        rows.append(torch.zeros(layout.dimension, dtype=torch.float64))
        gradients.add_weighted_sum(rows[-1], one, finite=torch.ones(len(y), dtype=torch.bool), block=None)
    found = torch.stack(rows)
    torch.testing.assert_close(gradients.group_norms(), expected_norms(found, layout), rtol=1e-5, atol=0.0)
    exact = by_autograd(model, layout, points, x, y, 1).double()
    error = (found - exact).norm(dim=1) / exact.norm(dim=1)
    assert float(error.max()) < 0.05
    assert float(error.min()) > 1e-6, "the passes must have been in bfloat16"
