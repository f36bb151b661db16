"""Sharpness against maxima known in closed form, brute force and L-BFGS-B; slices against the loss that they cut."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.engine.layout import Layout
from trainables.errors import DatasetError, HyperparameterError, TrainableError
from trainables.landscape import PublicLoss, filter_normalised, loss_surface, sharpness

RADIUS = 0.0045


def records(count: int = 40, features: int = 6, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, features, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, classes, (count,), generator=generator)


def network(seed: int = 0, features: int = 6, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, classes))


def largest_loss_of_one_record(module: nn.Linear, record: Tensor, label: int, radius: float) -> float:
    """Two classes, one record: the loss is log(1 + exp(−margin)), and the margin is linear in the parameters."""
    weight, bias = module.weight.detach().double(), module.bias.detach().double()
    margin = (weight[label] - weight[1 - label]) @ record + bias[label] - bias[1 - label]
    reach = (radius * (weight.abs() + 1) @ record.abs()).sum() + (radius * (bias.abs() + 1)).sum()
    return math.log1p(math.exp(-float(margin - reach)))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**20), radius=st.floats(1e-4, 1.0), label=st.integers(0, 1))
def test_one_record_of_two_classes_is_solved_exactly(seed: int, radius: float, label: int) -> None:
    torch.manual_seed(seed)
    module, record = nn.Linear(5, 2), torch.randn(1, 5, dtype=torch.float64)
    found = sharpness(module, record, torch.tensor([label]), radius=radius, iterations=4, restarts=1, seed=seed)
    highest = largest_loss_of_one_record(module, record[0], label, radius)
    assert found.highest == pytest.approx(highest, rel=1e-12)
    assert found.value == pytest.approx(100 * (highest - found.loss) / (1 + found.loss), rel=1e-9)


def test_a_convex_loss_against_every_corner_of_the_box() -> None:
    """A convex loss is largest at a corner; ten parameters have 1 024 of them."""
    torch.manual_seed(2)
    module = nn.Linear(4, 2)
    inputs, targets = records(features=4, classes=2)
    loss = PublicLoss(module, inputs, targets)
    for radius in (RADIUS, 0.3):
        reach = radius * (loss.theta.abs() + 1)
        corners = itertools.product((-1.0, 1.0), repeat=len(reach))
        highest = max(loss.loss(loss.theta + torch.tensor(signs, dtype=torch.float64) * reach) for signs in corners)
        found = sharpness(module, inputs, targets, radius=radius, restarts=3)
        assert found.highest <= highest * (1 + 1e-12)
        assert found.highest == pytest.approx(highest, rel=1e-9)


def test_no_less_is_found_than_by_the_method_of_the_definition() -> None:
    """Keskar et al. search the box by L-BFGS-B; both are lower bounds, and ours may not be the lower one."""
    module = network()
    inputs, targets = records()
    loss = PublicLoss(module, inputs, targets)
    start, reach = loss.theta, RADIUS * (loss.theta.abs() + 1)

    def downhill(z: np.ndarray) -> tuple[float, np.ndarray]:
        place = start + torch.from_numpy(z)
        return -loss.loss(place), -loss.gradient(place).numpy()

    box = [(-limit, limit) for limit in reach.tolist()]
    theirs = -float(minimize(downhill, np.zeros(len(reach)), jac=True, method="L-BFGS-B", bounds=box).fun)
    found = sharpness(module, inputs, targets, radius=RADIUS)
    assert found.loss < theirs <= found.highest * (1 + 1e-6)


def test_the_same_in_chunks_of_any_size_and_in_every_run() -> None:
    module, (inputs, targets) = network(), records()
    whole = sharpness(module, inputs, targets)
    assert sharpness(module, inputs, targets) == whole
    for chunk in (1, 7, 39):
        assert sharpness(module, inputs, targets, chunk=chunk).value == pytest.approx(whole.value, rel=1e-9)
        losses = loss_surface(module, inputs, targets, points=5, chunk=chunk).losses
        assert torch.allclose(losses, loss_surface(module, inputs, targets, points=5).losses, rtol=1e-13)


def test_loss_accuracy_and_gradient_against_autograd_in_double_precision() -> None:
    module, (inputs, targets) = network(), records()
    loss = PublicLoss(module, inputs.float(), targets, chunk=9)
    twin = network().double()
    logits = twin(inputs.float().double())
    mean = cross_entropy(logits, targets)
    mean.backward()
    mean = mean.detach()
    score = loss.score(loss.theta)
    assert score.loss == pytest.approx(float(mean), rel=1e-14)
    assert score.accuracy == float((logits.argmax(1) == targets).double().mean())
    gradient = torch.cat([parameter.grad.flatten() for parameter in twin.parameters() if parameter.grad is not None])
    assert torch.allclose(loss.gradient(loss.theta), gradient, rtol=1e-12, atol=1e-15)


def test_the_model_is_left_as_it_is() -> None:
    module = network()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    sharpness(module, *records())
    loss_surface(module, *records(), points=3, dimensions=2)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert module.training
    assert torch.equal(state, torch.get_rng_state())


def test_every_point_of_a_plane_is_where_it_says() -> None:
    module, (inputs, targets) = network(), records()
    loss = PublicLoss(module, inputs, targets)
    plane = loss_surface(module, inputs, targets, extent=0.5, points=3, dimensions=2, seed=4)
    generator = torch.Generator().manual_seed(4)
    first, second = (
        filter_normalised(torch.randn(loss.theta.shape, generator=generator).double(), loss.theta, loss.layout)
        for _ in range(2)
    )
    assert plane.coordinates == pytest.approx((-0.5, 0.0, 0.5))
    for (row, a), (column, b) in itertools.product(enumerate((-0.5, 0.0, 0.5)), repeat=2):
        expected = loss.score(loss.theta + a * first + b * second)
        assert float(plane.losses[row, column]) == pytest.approx(expected.loss, rel=1e-13)
        assert float(plane.accuracies[row, column]) == expected.accuracy
    assert float(plane.losses[1, 1]) == loss.loss(loss.theta), "the centre is the model itself"
    line = loss_surface(module, inputs, targets, extent=0.5, points=3, seed=4)
    assert torch.allclose(line.losses, plane.losses[:, 1], rtol=1e-13), "the first direction is that of the line"
    other = loss_surface(module, inputs, targets, extent=0.5, points=3, seed=5)
    assert not torch.allclose(line.losses, other.losses)


def test_every_filter_of_a_direction_has_the_norm_of_the_models_own() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 4, 5), nn.Linear(5, 3, bias=False)
    )
    with torch.no_grad():
        module[0].weight[1] = 0.0
    layout = Layout.of(module)
    theta = layout.flatten(module)
    drawn = torch.randn(layout.dimension, generator=torch.Generator().manual_seed(3))
    views, own, raw = (layout.views(each) for each in (filter_normalised(drawn, theta, layout), theta, drawn))
    for name, moved in views.items():
        if own[name].dim() < 2:
            assert not moved.any(), f"{name} is a bias or belongs to a normalisation"
            continue
        for mine, theirs, before in zip(moved, own[name], raw[name], strict=True):
            assert float(mine.norm()) == pytest.approx(float(theirs.norm()), rel=1e-5)
            assert torch.allclose(mine * before.norm(), before * theirs.norm(), atol=1e-5), "the way is the drawn one"


@pytest.mark.parametrize(
    "options",
    [
        *({name: bad} for name in ("radius", "extent") for bad in (math.nan, math.inf, -1.0)),
        *({"points": 4}, {"points": 1}, {"dimensions": 3}, {"iterations": 0}),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    measure = sharpness if options.keys() & {"radius", "iterations"} else loss_surface
    with raises_code(HyperparameterError, "value-illegal") as caught:
        measure(network(), *records(), **options)
    assert f"`{next(iter(options))}`" in str(caught.value)


def test_what_cannot_be_measured_is_refused() -> None:
    module, (inputs, targets) = network(), records()
    with raises_code(HyperparameterError, "filters-missing"):
        loss_surface(nn.LayerNorm(6), inputs, targets)  # it has no matrix
    with raises_code(DatasetError, "records-empty"):
        sharpness(module, inputs[:0], targets[:0])
    with torch.no_grad():
        module[0].bias[0] = math.nan
    with raises_code(TrainableError, "parameters-not-finite"):
        sharpness(module, inputs, targets)
