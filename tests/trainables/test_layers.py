"""Every kind of layer against autograd, one sample at a time, over random shapes, points, copies and micro-batches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from covering import pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from trainables.engine import bookkeeping
from trainables.engine.bookkeeping import BookkeepingSource, UnknownLayerError
from trainables.engine.layers import RULES
from trainables.engine.layers.embedding import LookedUp
from trainables.engine.layers.outer import prefer_factors
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource
from trainables.engine.objective import Points
from trainables.engine.per_sample import IGNORED, PerSampleGradients, PerSampleSource, TorchFuncSource
from trainables.engine.sources import per_sample_source
from trainables.engine.taps import LinearTap
from trainables.errors import GateError
from trainables.models import check_private

CLASSES = 3
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


class Net(nn.Module):
    """The named layers and parameters, and a function of the model and its input."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401 - whatever the function gives
        return self.run(self, x)


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
    kind, width, hidden = (
        draw(st.sampled_from([nn.LSTM, nn.GRU, nn.RNN])),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
    )
    options: dict[str, Any] = {
        "num_layers": draw(st.integers(1, 2)),
        "bidirectional": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
    }
    if kind is nn.LSTM:
        options["proj_size"] = draw(st.integers(0, hidden - 1))
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        batch_first = net.layer.batch_first
        outputs = net.layer(x if batch_first else x.transpose(0, 1))[0]
        return outputs if batch_first else outputs.transpose(0, 1)

    return Net(run, layer=kind(width, hidden, **options)), torch.randn(6, draw(st.integers(1, 4)), width)


def an_attention(draw: Draw) -> tuple[nn.Module, Tensor]:
    heads, cross = draw(st.integers(1, 2)), draw(st.booleans())
    width = heads * draw(st.integers(1, 3))
    options = {name: draw(st.booleans()) for name in ("bias", "add_bias_kv", "add_zero_attn", "batch_first")}
    layer = nn.MultiheadAttention(width, heads, kdim=draw(st.sampled_from([None, width])), **options)

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        keys = x.flip(1) * 2 if cross else x
        if net.layer.batch_first:
            return net.layer(x, keys, keys)[0]
        return net.layer(*(part.transpose(0, 1) for part in (x, keys, keys)))[0].transpose(0, 1)

    return Net(run, layer=layer), torch.randn(6, draw(st.integers(1, 4)), width)


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


def by_autograd(model: nn.Module, layout: Layout, points: Points, x: Tensor, y: Tensor, copies: int) -> Tensor:
    """g_i of each sample, shape (B, d): the definition, one backward pass a sample and point."""
    rows = []
    for mine, labels in zip(torch.split(x, copies), torch.split(y, copies), strict=True):
        counted = labels != IGNORED
        total = points.decay * points.centre
        for place in range(len(points)):
            theta = points.theta(place).clone().requires_grad_()
            outputs = functional_call(model, layout.views(theta), (mine,))
            loss = nn.functional.cross_entropy(outputs[counted], labels[counted], reduction="sum") / copies
            total = total + points.scale * torch.autograd.grad(loss, theta)[0]
        rows.append(total)
    return torch.stack(rows)


def collected(chunks: list[PerSampleGradients], layout: Layout, factors: Tensor) -> tuple[Tensor, Tensor]:
    """(norms of all chunks, sum with these factors)."""
    total, start, norms = torch.zeros(layout.dimension, dtype=torch.float64), 0, []
    for gradients in chunks:
        norms.append(gradients.group_norms())
        stop = start + norms[-1].shape[1]
        gradients.add_weighted_sum(total, factors[:, start:stop], block=None)
        start = stop
    return torch.cat(norms, dim=1), total


def expected_norms(rows: Tensor, layout: Layout) -> Tensor:
    """‖g_i‖ within each group, shape (G, B)."""
    squares: dict[str, Tensor] = {}
    for group, part in zip(layout.groups, torch.split(rows, list(layout.sizes), dim=1), strict=True):
        squares[group] = squares.get(group, torch.zeros(len(rows), dtype=rows.dtype)) + part.square().sum(1)
    return torch.stack(list(squares.values())).sqrt()


def check(model: nn.Module, source: PerSampleSource, points: Points, x: Tensor, y: Tensor, copies: int) -> None:
    layout = Layout.of(model)
    rows = by_autograd(model, layout, points, x, y, copies)
    factors = torch.rand(len(set(layout.groups)), len(rows), dtype=torch.float64) + 0.1
    norms, total = collected(list(source.chunks(points, x, y, copies=copies)), layout, factors)
    expected = expected_norms(rows, layout)
    torch.testing.assert_close(norms, expected, rtol=1e-9, atol=1e-13)  # where terms cancel, a bound is added
    assert bool((norms >= expected * (1 - 1e-12) - 1e-15).all())
    spread = dict(zip(dict.fromkeys(layout.groups), factors, strict=True))
    weights = torch.cat(
        [spread[group][:, None].expand(-1, size) for group, size in zip(layout.groups, layout.sizes, strict=True)], 1
    )
    reference = (weights * rows).sum(0)
    assert float((total - reference).norm()) <= 1e-12 * float((weights * rows).norm(dim=1).sum())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", LAYERS)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
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
    known = {nn.Linear, LinearTap, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm}
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


def small_images() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, 1, 4, 4, dtype=torch.float64), torch.randint(0, CLASSES, (5,))


def square() -> nn.Linear:
    return nn.Linear(16, 16)


def last(width: int = 16) -> nn.Linear:
    return nn.Linear(width, CLASSES)


def tied_in_code() -> nn.Module:
    """The first layer's weight is used again where no hook sees it."""

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        hidden = torch.tanh(net.one(x.flatten(1)))
        return net.two(torch.tanh(nn.functional.linear(hidden, net.one.weight.T)))

    return Net(run, one=square(), two=last())


def tied() -> nn.Module:
    """Two layers with one parameter."""
    one, middle = square(), square()
    middle.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, nn.Tanh(), middle, nn.Tanh(), last())


def bare() -> nn.Module:
    """A parameter outside the layers."""
    return Net(lambda net, x: net.two(x.flatten(1) * net.scale), scale=nn.Parameter(torch.rand(16)), two=last())


def in_place() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.LayerNorm(5), nn.ReLU(inplace=True), last(5))


def shortcut() -> nn.Module:
    """The usual residual line: the output of a layer is changed before anyone else sees it."""

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        hidden = torch.tanh(net.one(x.flatten(1)))
        out = net.two(hidden)
        out += hidden
        return net.three(out)

    return Net(run, one=square(), two=square(), three=last())


@pytest.mark.parametrize("make", [in_place, shortcut])
def test_changes_in_place_are_seen_through(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(2)
    model = make().double()
    x, y = small_images()
    layout = Layout.of(model)
    source = per_sample_source(model, layout, example=x[:3])
    assert isinstance(source, BookkeepingSource)
    assert source.guard
    for points in (Points(centre=layout.flatten(model), decay=0.3), Points(centre=layout.flatten(model), seeds=(1, 2))):
        check(model, source, points, x, y, 1)
    with pytest.raises((UnknownLayerError, RuntimeError), match=r"in place|in-place"):  # the control: without copies
        list(replace(source, guard=False).chunks(Points(centre=layout.flatten(model)), x, y))


def deciding() -> nn.Module:
    """One bright record changes the outputs of all others; ordinary inputs show nothing of it."""
    return Net(lambda net, x: net.two(x.flatten(1) / 255 if x.max() > 1 else x.flatten(1)), two=last())


def dividing() -> nn.Module:
    """The same without a branch."""
    return Net(lambda net, x: net.two(x.flatten(1) / torch.where(x.max() > 1, 255.0, 1.0)), two=last())


def test_a_model_that_branches_on_the_batch_is_refused() -> None:
    model = deciding().double()
    with pytest.raises(GateError, match="cannot be had"):
        per_sample_source(model, Layout.of(model), example=torch.rand(3, 1, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize("make", [deciding, dividing])
def test_a_model_whose_samples_meet_beside_outliers_is_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(GateError, match="in company"):
        check_private(make(), input_shape=(1, 4, 4))


def by_keyword() -> nn.Module:
    """A layer that is given its input by name."""
    return Net(lambda net, x: net.one(input=x.flatten(1)), one=last())


def two_outputs() -> nn.Module:
    """A layer of a user's own that gives two tensors."""
    split = Net(lambda net, x: (x * net.scale, x + net.scale), scale=nn.Parameter(torch.full((16,), 0.7)))

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        left, right = net.one(x.flatten(1))
        return net.two(left * torch.tanh(right))

    return Net(run, one=split, two=last())


def two_inputs() -> nn.Module:
    return Net(lambda net, x: net.one(x.flatten(1), torch.tanh(x.flatten(1))), one=nn.Bilinear(16, 16, CLASSES))


def time_first() -> nn.Module:
    """A layer of a user's own whose first axis is time, and is gone afterwards."""
    weighing = Net(lambda net, x: torch.tensordot(net.weights, x, dims=1), weights=nn.Parameter(torch.rand(4)))
    return Net(lambda net, x: net.two(net.one(x[:, 0].transpose(0, 1))), one=weighing, two=last(4))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch's, and ours says it too
@pytest.mark.parametrize("make", [tied_in_code, tied, bare, by_keyword, two_outputs, two_inputs, time_first])
def test_what_the_hooks_cannot_see_falls_back_and_is_right(
    make: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(2)
    model = make().double()
    x, y = small_images()
    layout = Layout.of(model)
    with caplog.at_level(logging.WARNING):
        source = per_sample_source(model, layout, example=x[:3])
    assert isinstance(source, TorchFuncSource)
    assert len([record for record in caplog.records if "torch.func" in record.getMessage()]) == 1
    check(model, source, Points(centre=layout.flatten(model), decay=0.3), x, y, 1)


def test_the_hooks_alone_would_be_wrong_on_a_weight_tied_in_code() -> None:
    """The control of the check above: without an example nothing notices."""
    torch.manual_seed(2)
    model = tied_in_code().double()
    x, y = small_images()
    layout = Layout.of(model)
    source = per_sample_source(model, layout)
    assert isinstance(source, BookkeepingSource)
    with pytest.raises(AssertionError):
        check(model, source, Points(centre=layout.flatten(model)), x, y, 1)


def two_biases() -> nn.Module:
    """Autograd gives both parameters one and the same tensor."""
    biases = {name: nn.Parameter(torch.zeros(CLASSES)) for name in ("one", "two")}
    return Net(lambda net, x: x.flatten(1)[:, :CLASSES] + (net.one + net.two), **biases)


@pytest.mark.parametrize("make", [two_biases, bare])
def test_gradients_that_share_memory_are_not_added_to_twice(make: Callable[[], nn.Module]) -> None:
    model = make().double()
    layout = Layout.of(model)
    x, y = small_images()
    points = Points(centre=layout.flatten(model), scale=0.5, seeds=(1, 2), spread=0.3, decay=0.7)
    check(model, TorchFuncSource(model, layout), points, x, y, 1)
    check(model, per_sample_source(model, layout, example=x[:3]), points, x, y, 1)


def test_a_model_whose_samples_meet_goes_one_sample_at_a_time() -> None:
    """Another gate refuses it before training; here it must not be wrong."""
    x, y = small_images()
    model = Net(lambda net, x: net.two(x.flatten(1) - x.flatten(1).mean(0)), two=last()).double()
    source = per_sample_source(model, Layout.of(model), example=x[:3])
    assert isinstance(source, TorchFuncSource)
    check(model, source, Points(centre=Layout.of(model).flatten(model)), x, y, 1)


def test_a_model_that_no_way_reproduces_is_refused() -> None:
    x, _ = small_images()
    model = Net(lambda net, x: net.two(x.flatten(1) * torch.rand(16, dtype=x.dtype)), two=last()).double()
    with pytest.raises(GateError, match="cannot be had"):
        per_sample_source(model, Layout.of(model), example=x[:3])


def test_the_log_names_a_layer_without_a_rule_once(caplog: pytest.LogCaptureFixture) -> None:
    bookkeeping._say_once.cache_clear()
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 4), nn.PReLU(), nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, CLASSES)
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            per_sample_source(model, Layout.of(model))
    assert len([record for record in caplog.records if "PReLU" in record.getMessage()]) == 1


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
        gradients.add_weighted_sum(rows[-1], one, block=None)
    found = torch.stack(rows)
    torch.testing.assert_close(gradients.group_norms(), expected_norms(found, layout), rtol=1e-5, atol=0.0)
    exact = by_autograd(model, layout, points, x, y, 1).double()
    error = (found - exact).norm(dim=1) / exact.norm(dim=1)
    assert float(error.max()) < 0.05
    assert float(error.min()) > 1e-6, "the passes must have been in bfloat16"


def test_mixed_precision_is_refused_where_hooks_cannot_see() -> None:
    model = tied()
    x, _ = small_images()
    with pytest.raises(GateError, match="mixed precision"):
        per_sample_source(model, Layout.of(model), example=x[:3].float(), autocast=torch.bfloat16)
