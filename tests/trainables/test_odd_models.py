"""Models that hooks cannot see through: they fall back and are right, or they are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from gradient_checks import CLASSES, Net, check, last, small_images, square
from torch import Tensor, nn

from trainables.engine.bookkeeping import BookkeepingSource, UnknownLayerError
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import TorchFuncSource
from trainables.engine.sources import per_sample_source
from trainables.errors import GateError
from trainables.model_gate import check_private


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
    with raises_code(GateError, "gradients-not-per-sample"):
        per_sample_source(model, Layout.of(model), example=torch.rand(3, 1, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize("make", [deciding, dividing])
def test_a_model_whose_samples_meet_beside_outliers_is_refused(make: Callable[[], nn.Module]) -> None:
    with raises_code(GateError, "samples-mixed"):
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
    with raises_code(GateError, "gradients-not-per-sample"):
        per_sample_source(model, Layout.of(model), example=x[:3])


def test_mixed_precision_is_refused_where_hooks_cannot_see() -> None:
    model = tied()
    x, _ = small_images()
    with raises_code(GateError, "mixed-precision-unsupported"):
        per_sample_source(model, Layout.of(model), example=x[:3].float(), autocast=torch.bfloat16)
