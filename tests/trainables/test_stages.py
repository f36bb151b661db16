"""Each stage by itself: its limits, its laws, and a record that tries to break the clip."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from covering import pairs
from errors_helper import raises_code
from gradient_checks import Net, check
from torch import Tensor, nn
from torch.nn.utils.prune import random_unstructured
from training_fakes import normals, step_over

from trainables.engine import batches as engine_batches
from trainables.engine import step as engine_step
from trainables.engine.bookkeeping import BookkeepingSource
from trainables.engine.clip import CLIPPINGS, clip_factors, clipped_sum
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource, is_linear_stack
from trainables.engine.objective import Points
from trainables.engine.per_sample import TorchFuncSource
from trainables.engine.random import SeededGenerator
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Mechanism, PrivateStep, Stages
from trainables.engine.sums import LARGE, SMALL, not_negative
from trainables.errors import GateError, HyperparameterError
from trainables.methods import METHODS
from trainables.methods.composed import DPComposed


def linear_model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def records(size: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(size, 6, generator=generator, dtype=dtype), torch.randint(0, 3, (size,), generator=generator)


def private_step(
    model: nn.Module, stages: Stages, *, noise: float = 0.5, clip: float = 1.0, rate: float = 0.5
) -> tuple[PrivateStep, Tensor]:
    layout = Layout.of(model)
    theta = layout.flatten(model)
    source = TorchFuncSource(model, layout)
    return step_over(source, theta, stages=stages, rate=rate, noise=noise, clip=clip, size=4), theta


# -- the two ways to per-sample gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_norms_of_decayed_gradients_survive_cancellation_in_float32(kind: str) -> None:
    """Where λθ = -g_i up to a little, a norm that is too small would let the record through with its full length."""
    torch.manual_seed(6)
    body = [nn.Flatten(), nn.Linear(36, 40)] if kind == "linear" else [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*body, nn.Linear(40 if kind == "linear" else 64, 3))
    layout = Layout.of(model)
    inputs, targets = torch.randn(1, 1, 6, 6) * 10, torch.tensor([1])
    source = per_sample_source(model, layout, example=torch.randn(3, 1, 6, 6))

    def gradient(theta: Tensor) -> Tensor:
        total = torch.zeros(layout.dimension, dtype=torch.float64)
        (one,) = source.chunks(Points(centre=theta), inputs, targets)
        norms = one.group_norms()
        one.add_weighted_sum(total, torch.ones_like(norms), finite=norms.isfinite().all(0), block=None)
        return total

    theta = layout.flatten(model)
    for _ in range(60):  # to a point where the gradient points against the parameters
        theta = (theta - 0.2 * (gradient(theta) + theta)).float()
    strength = float(-(gradient(theta) @ theta.double()) / theta.double().square().sum())
    assert strength > 0
    true = (gradient(theta) + strength * theta.double()).norm()
    (decayed,) = source.chunks(Points(centre=theta, decay=strength), inputs, targets)
    found = decayed.group_norms().square().sum().sqrt()
    assert float(true) < 0.9 * float(gradient(theta).norm()), "the case must cancel"
    assert float(true) * (1 - 1e-6) <= float(found) <= float(true) + 1e-2 * float(gradient(theta).norm())


@pytest.mark.parametrize(
    ("size", "width", "slack"), [(256, 30_000, LARGE.slack), (2048, 30_000, 0.0), (256, 5, SMALL.slack)]
)
def test_the_noise_covers_the_slack_where_there_is_one(size: int, width: int, slack: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, width), nn.Linear(width, 3))
    layout = Layout.of(model)
    step = step_over(per_sample_source(model, layout), layout.flatten(model), noise=2.0, clip=3.0, size=size)
    inputs, targets = records(0, torch.float32)
    gradient = step.private_gradient(layout.flatten(model), inputs, targets, learning_rate=0.1)
    noise = normals(SeededGenerator(0), layout.dimension)
    torch.testing.assert_close(gradient.double(), 6.0 * (1 + slack) / size * noise, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(6, 3)],
        [nn.Flatten(), nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)],
        [nn.Flatten(), nn.Linear(6, 6), nn.Softmax(0), nn.Linear(6, 3)],
        [nn.Flatten(), nn.Linear(6, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)],
        [nn.Flatten(), *[nn.Linear(6, 6)] * 2],
        [nn.Flatten(0), nn.Linear(6, 3)],
        [nn.Flatten(), nn.Linear(6, 3).requires_grad_(False)],
    ],
)
def test_closed_form_is_refused_where_it_would_not_be_exact(layers: list[nn.Module]) -> None:
    assert not is_linear_stack(nn.Sequential(*layers))
    assert is_linear_stack(linear_model())


def doubled(model: nn.Sequential) -> None:
    model.register_forward_pre_hook(lambda _model, inputs: (2 * inputs[0],))


def tripled(model: nn.Sequential) -> None:
    model[1].register_forward_hook(lambda _layer, _inputs, outputs: 3 * outputs)


def pruned(model: nn.Sequential) -> None:
    random_unstructured(model[1], "weight", amount=0.5)


def replaced(model: nn.Sequential) -> None:
    layer = model[1]
    layer.forward = lambda x: nn.functional.linear(x, 2 * layer.weight, layer.bias)  # type: ignore[method-assign]


@pytest.mark.parametrize("change", [doubled, tripled, pruned, replaced])
def test_a_linear_stack_whose_layers_are_changed_has_the_gradients_of_its_own_function(
    change: Callable[[nn.Sequential], None],
) -> None:
    model = linear_model()
    change(model)
    layout, (x, y) = Layout.of(model), records(5)
    points = Points(centre=layout.flatten(model))
    check(model, per_sample_source(model, layout, example=x[:3]), points, x, y, 1)
    with pytest.raises((AssertionError, RuntimeError)):  # the control: as a plain stack it has other gradients
        check(model, LinearStackSource(linear_model(), layout), points, x, y, 1)


# -- the clip --------------------------------------------------------------------------------------------------------


def sequence_model(dtype: torch.dtype) -> nn.Module:
    """One of every kind of layer, for inputs of length 6."""
    torch.manual_seed(3)
    layers = [nn.Unflatten(1, (2, 3)), nn.Linear(3, 4), nn.Conv1d(2, 3, 2), nn.GroupNorm(1, 3), nn.LayerNorm(3)]
    return nn.Sequential(*layers, nn.PReLU(), nn.Flatten(), nn.Linear(9, 3)).to(dtype)


@pytest.mark.parametrize(
    ("kind", "block", "clipping", "poison"),
    pairs(("torch.func", "stack", "hooks"), (None, 64), CLIPPINGS, (math.nan, math.inf, 1e38, 1e15)),
)
def test_no_record_moves_the_sum_by_more_than_the_clip(
    kind: str, block: int | None, clipping: str, poison: float
) -> None:
    model = linear_model(torch.float32) if kind != "hooks" else sequence_model(torch.float32)
    layout = Layout.of(model)
    theta = layout.flatten(model)
    inputs, targets = records(5, torch.float32)
    source = TorchFuncSource(model, layout) if kind == "torch.func" else per_sample_source(model, layout)

    def total(size: int) -> Tensor:
        chunks = source.chunks(Points(centre=theta, decay=0.1), inputs[:size], targets[:size])
        return clipped_sum(chunks, 1.0, like=theta, clipping=clipping, block=block, samples=size)

    clean = total(4)
    inputs[4] = poison
    assert float(clean.norm()) > 0
    assert float((total(5) - clean).norm()) <= 1.0 + 1e-5


def bag() -> nn.Module:
    """One layer at three positions, whose gradients may cancel."""
    return Net(lambda net, x: net.layer(x).mean(1), layer=nn.Linear(8, 4))


def looked() -> nn.Module:
    """The same with rows that are looked up: what cancels are the gradients by one row."""
    rows = nn.Embedding(2, 4)
    return Net(lambda net, x: (net.rows((x[:, :, 0] > 1e30).long()) * x[:, :, :1]).mean(1), rows=rows)


@pytest.mark.parametrize(
    ("make", "clipping", "exponent", "decay"), pairs((bag, looked), CLIPPINGS, (20, 24, 27, 30, 40), (0.0, 0.1))
)
def test_no_record_hides_behind_positions_that_cancel(
    make: Callable[[], nn.Module], clipping: str, exponent: int, decay: float
) -> None:
    """A norm from Gram matrices keeps half of the digits: what it loses must not count as short."""
    torch.manual_seed(0)
    model = make()
    layout = Layout.of(model)
    generator = torch.Generator().manual_seed(exponent)
    large = torch.randn(400, 3, 8, generator=generator).double() * 2.0**exponent
    large[:, 1] = (torch.randn(400, 8, generator=generator) * 2.0 ** (exponent - 20) - large[:, 0]).float()
    rest = torch.rand(400, 1, generator=generator) * 8 - 3
    large = large.float().double()
    large[:, 2] = torch.randn(400, 8, generator=generator) * 2**rest - large[:, :2].sum(1)
    records, labels = large.float(), torch.randint(0, 4, (400,), generator=generator)
    source = per_sample_source(model, layout, example=torch.rand(3, 3, 8))
    assert isinstance(source, BookkeepingSource)
    points = Points(centre=layout.flatten(model), decay=decay)
    for limit in (0.01, 1.0):
        (gradients,) = source.chunks(points, records, labels)
        factors = clip_factors(gradients.group_norms(), limit, clipping=clipping)
        for index in factors.min(0).values.topk(30).indices.tolist():  # the least clipped are the suspects
            one = source.chunks(points, records[index : index + 1], labels[index : index + 1])
            total = clipped_sum(one, limit, like=points.centre, clipping=clipping, samples=1)
            assert float(total.norm()) <= limit * (1 + 1e-5)


def test_what_overflows_has_no_norm_and_so_no_share() -> None:
    squares = not_negative(torch.tensor([1.0, -1e-30, math.inf, -math.inf, math.nan], dtype=torch.float64))
    assert clip_factors(squares.sqrt()[None], 2.0)[0].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("norm", [1e35, math.inf, math.nan])
def test_a_record_without_a_norm_in_one_group_is_left_out_of_all(norm: float) -> None:
    norms = torch.tensor([[norm, 1.0], [0.1, 1.0]], dtype=torch.float64)
    for clipping in CLIPPINGS:
        factors = clip_factors(norms, 1.0, clipping=clipping)
        assert factors[:, 0].tolist() == [0.0, 0.0]
        assert float(factors[:, 1].min()) > 0


def test_a_record_that_overflows_one_layer_brings_no_decay_of_the_others() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    layout = Layout.of(model)
    inputs, targets = records(1, torch.float32)
    inputs = inputs * 0
    inputs[0, 0] = 1e36  # a long gradient of the first layer, which is still a number
    with torch.no_grad():
        model[1].weight[:, 0] = 0
    points = Points(centre=layout.flatten(model), decay=50.0)
    chunks = list(per_sample_source(model, layout).chunks(points, inputs, targets))
    assert bool(chunks[0].group_norms().isfinite().all())
    total = clipped_sum(chunks, 0.01, like=points.centre, samples=1, clipping="per_layer")
    assert float(total.norm()) <= 0.01 * (1 + 1e-5)


@pytest.mark.parametrize("decay", [0.0, 1e3])
def test_a_step_shortens_its_blocks_for_decay(decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    real = engine_batches.clipped_sum

    def watched(*arguments: object, block: int | None, **others: object) -> Tensor:
        asked.append(block)
        return real(*arguments, block=block, **others)

    monkeypatch.setattr(engine_batches, "clipped_sum", watched)
    step, theta = private_step(linear_model(torch.float32), Stages(weight_decay_before_clipping=decay), rate=1.0)
    step.private_gradient(theta, *records(3, torch.float32), learning_rate=0.1)
    assert len(asked) == 1
    assert (asked[0] is None) == (decay > 0 and SMALL.rows(3, stretch=1e3 * float(theta.norm())) is None)
    assert SMALL.rows(3) is not None


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_clipped_gradients_are_at_most_c_long(clipping: str) -> None:
    norms = torch.rand(4, 200, dtype=torch.float64).mul_(20).exp_().sub_(1)
    factors = clip_factors(norms, 0.7, clipping=clipping)
    lengths = (norms * factors).square().sum(0).sqrt()
    assert float(lengths.max()) <= 0.7 * (1 + 1e-12)
    assert float(lengths.max()) > 0.69, "some gradient must be clipped"
    if clipping == "per_layer":
        assert float((norms * factors).max()) <= 0.35 * (1 + 1e-12)


def test_clip_factors() -> None:
    norms = torch.tensor([[0.0, 0.5, 1.0, 4.0, math.inf, math.nan]], dtype=torch.float64)
    assert clip_factors(norms, 2.0)[0].tolist() == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    automatic = clip_factors(norms, 2.0, clipping="automatic")[0].tolist()
    assert automatic == pytest.approx([200.0, 2 / 0.51, 2 / 1.01, 2 / 4.01, 0.0, 0.0])
    layers = torch.tensor([[3.0, 0.1], [4.0, 9.0]], dtype=torch.float64)
    assert clip_factors(layers, 5.0).tolist() == [[1.0, 5 / math.hypot(0.1, 9.0)]] * 2
    half = 5 / math.sqrt(2)
    assert clip_factors(layers, 5.0, clipping="per_layer").flatten().tolist() == pytest.approx(
        [1, 1, half / 4, half / 9]
    )


def test_a_batch_that_was_shuffled_cannot_claim_a_subsample() -> None:
    """One shuffled epoch costs many times what Poisson accounting says of it."""
    step, theta = private_step(linear_model(), Stages(), rate=0.5)
    inputs, targets = records(8)
    shuffled = torch.randperm(8, generator=torch.Generator().manual_seed(0))[:4]
    with raises_code(GateError, "subsample-claimed"):
        step.private_gradient(theta, inputs[shuffled], targets[shuffled], learning_rate=0.1)
    assert step.noise_draws == 0
    unsampled, theta = private_step(linear_model(), Stages(), rate=1.0)
    unsampled.private_gradient(theta, inputs[shuffled], targets[shuffled], learning_rate=0.1)
    assert unsampled.noise_draws == 1


def test_a_step_draws_its_own_batch_from_all_records_at_the_rate_that_it_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, float]] = []
    real = engine_step.poisson_batch

    def watched(generator: SeededGenerator, samples: int, rate: float) -> Tensor:
        asked.append((samples, rate))
        return real(generator, samples, rate)

    monkeypatch.setattr(engine_step, "poisson_batch", watched)
    step, theta = private_step(linear_model(), Stages(), rate=0.25)
    inputs, targets = records(8)
    step.take(theta, inputs, targets, learning_rate=0.1)
    step.take(theta, inputs, targets, learning_rate=0.1, users=torch.tensor([[0, 1], [2, -1], [5, 7]]))
    assert asked == [(8, 0.25), (3, 0.25)], "records, and then users"
    with pytest.raises(AttributeError):
        step.mechanism = Mechanism(  # type: ignore[misc]
            sample_rate=1.0, noise_multiplier=0.5, max_grad_norm=1.0, expected_batch_size=4
        )
    with pytest.raises(AttributeError):
        step.mechanism.sample_rate = 1.0  # type: ignore[misc]


def test_an_empty_batch_is_noise_alone_over_the_expected_size() -> None:
    step, theta = private_step(linear_model(), Stages(), noise=2.0, clip=3.0, rate=1.0)
    inputs, targets = records(0)
    gradient = step.private_gradient(theta, inputs, targets, learning_rate=0.1)
    torch.testing.assert_close(gradient, 2.0 * 3.0 / 4 * normals(SeededGenerator(0), len(theta)))
    assert step.noise_draws == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"clipping": "none"},
        {"sample_rate": 0.0},
        {"sample_rate": 1.5},
        {"noise_multiplier": -1.0},
        {"max_grad_norm": 0.0},
    ]
    + [{name: math.nan} for name in ("sample_rate", "noise_multiplier", "max_grad_norm", "expected_batch_size")]
    + [{name: math.inf} for name in ("sample_rate", "noise_multiplier", "max_grad_norm", "expected_batch_size")],
)
def test_a_mechanism_refuses_what_is_out_of_range(changes: dict[str, float]) -> None:
    good = {"sample_rate": 0.1, "noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 4}
    Mechanism(**good)
    with raises_code(HyperparameterError, "value-illegal") as caught:
        Mechanism(**{**good, **changes})
    assert f"`{next(iter(changes))}`" in str(caught.value)


# -- the limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "off",
    [
        {},
        {"smoothing_radius": 0.0, "smoothing_samples": 10},
        {"smoothing_radius": 0.0, "smoothing_samples": 1, "smoothing_reduction": "sum"},
        {"laplacian_sigma": 0.0, "laplacian_scope": "model"},
        {"weight_decay": 0.0, "weight_decay_mode": "decoupled"},
    ],
)
def test_everything_off_is_dp_sgd_bit_for_bit(off: dict[str, object]) -> None:
    model = linear_model()
    settings = DPComposed(batch_size=4, steps=5, noise_multiplier=0.5, **off)
    inputs, targets = records(9)
    thetas = []
    for stages in (METHODS["composed"].stages(settings, Layout.of(model)), Stages()):
        step, theta = private_step(model, stages)
        for _ in range(5):
            theta = step.take(theta, inputs, targets, learning_rate=0.3)
        thetas.append(theta)
    assert torch.equal(*thetas)
