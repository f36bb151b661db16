"""Each stage by itself: its limits, its laws, and a record that tries to break the clip."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainables.engine.clip import clip_factors, clipped_sum
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource, is_linear_stack
from trainables.engine.objective import Plain, Points, Smoothed
from trainables.engine.per_sample import DenseGradients, TorchFuncSource
from trainables.engine.postprocess import LaplacianSmoothing, laplacian_eigenvalues, laplacian_smoothing
from trainables.engine.random import SeededGenerator
from trainables.engine.step import Mechanism, PrivateStep, Stages
from trainables.engine.update import Adam, Sgd
from trainables.errors import HyperparameterError
from trainables.hyperparameters import Composed
from trainables.methods import METHODS


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
    step = PrivateStep(
        mechanism=Mechanism(sample_rate=rate, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=4),
        stages=stages,
        source=TorchFuncSource(model, layout),
        update=Sgd(theta),
        secret=SeededGenerator(0),
        public=torch.Generator().manual_seed(0),
    )
    return step, theta


# -- the two ways to per-sample gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("count", [1, 4])
def test_closed_form_and_torch_func_agree_whatever_the_chunks(count: int, shift: float) -> None:
    model = linear_model()
    layout = Layout.of(model)
    theta = layout.flatten(model)
    inputs, targets = records(7)
    points = Points(theta + 0.2 * torch.randn(count, len(theta), dtype=torch.float64), 0.5)
    sums, norms = [], []
    for kind in (TorchFuncSource, LinearStackSource):
        for chunk_bytes in (1, 2000, 2**28):
            source = kind(model, layout, chunk_bytes=chunk_bytes)
            chunks = [chunk.shifted(shift * theta) for chunk in source.chunks(points, inputs, targets)]
            norms.append(torch.cat([chunk.norms() for chunk in chunks]))
            sums.append(clipped_sum(chunks, 0.4, like=theta))
            assert len(norms[-1]) == 7
    for norm, total in zip(norms[1:], sums[1:], strict=True):
        torch.testing.assert_close(norm, norms[0], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(total, sums[0], rtol=1e-12, atol=1e-14)


def test_closed_form_norms_survive_cancellation_in_float32() -> None:
    """g_i + λθ with λθ = -g_i up to a little: a norm taken in float32 Gram form would be wrong in its first digit."""
    model = linear_model(torch.float32)
    layout = Layout.of(model)
    theta = layout.flatten(model)
    inputs, targets = records(1, torch.float32)
    points = Points(theta[None])
    (dense,) = TorchFuncSource(model, layout).chunks(points, inputs * 100, targets)
    (closed,) = LinearStackSource(model, layout).chunks(points, inputs * 100, targets)
    nearly = -dense.weighted_sum(torch.ones(1)).float() * (1 - 1e-4)
    torch.testing.assert_close(closed.shifted(nearly).norms(), dense.shifted(nearly).norms(), rtol=2e-2, atol=0.0)


def test_one_record_more_moves_the_sum_by_at_most_c() -> None:
    """Casacuberta et al. 2022: with one large record in front, a float32 sum rounds all the small ones away."""
    records = 4096
    small = -records / 2**24
    neighbour = torch.cat([torch.ones(records, 1), torch.full((records, 1), small)])
    like = torch.zeros(1)
    with_one_more = clipped_sum([DenseGradients((torch.cat([torch.ones(1, 1), neighbour]),))], 1.0, like=like)
    without = clipped_sum([DenseGradients((neighbour,))], 1.0, like=like)
    assert abs(float(with_one_more - without)) <= 1 + 1e-9
    terms = neighbour.numpy()[:, 0]
    one_more = np.add.accumulate(np.concatenate([np.ones(1, np.float32), terms]))[-1]
    assert one_more - np.add.accumulate(terms)[-1] > 1.9  # the control: what a sum in float32 would have done


def test_norms_do_not_lose_small_entries_behind_large_ones() -> None:
    gradient = torch.full((1, 5_000_000), 1e-3)
    gradient[0, :64] = 30.0
    found = DenseGradients((gradient,)).norms()
    torch.testing.assert_close(found.double(), gradient.double().norm(dim=1), rtol=1e-6, atol=0.0)


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("convolution", [False, True])
def test_opacus_clips_the_same_gradients(*, convolution: bool) -> None:
    from opacus import GradSampleModule

    torch.manual_seed(5)
    model = (
        linear_model()
        if not convolution
        else nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(18, 3)
        ).double()
    )
    inputs = torch.randn(6, 1, 6, 6, dtype=torch.float64) if convolution else records(6)[0]
    targets = records(6)[1]
    layout = Layout.of(model)
    theta = layout.flatten(model)
    kind = TorchFuncSource if convolution else LinearStackSource
    ours = clipped_sum(kind(model, layout).chunks(Points(theta[None]), inputs, targets), 0.5, like=theta)
    oracle = GradSampleModule(model, loss_reduction="sum")
    nn.functional.cross_entropy(oracle(inputs), targets, reduction="sum").backward()
    per_sample = torch.cat([parameter.grad_sample.flatten(1) for parameter in oracle.parameters()], dim=1)
    factors = (0.5 / per_sample.norm(dim=1)).clamp(max=1.0)
    torch.testing.assert_close(ours, factors @ per_sample, rtol=1e-10, atol=1e-12)


# -- the clip --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize("kind", [TorchFuncSource, LinearStackSource])
def test_no_record_moves_the_sum_by_more_than_the_clip(kind: type, poison: float) -> None:
    model = linear_model(torch.float32)
    layout = Layout.of(model)
    theta = layout.flatten(model)
    inputs, targets = records(5, torch.float32)
    points = Points(theta[None])
    clean = clipped_sum(kind(model, layout).chunks(points, inputs[:4], targets[:4]), 1.0, like=theta)
    inputs[4] = poison
    poisoned = clipped_sum(kind(model, layout).chunks(points, inputs, targets), 1.0, like=theta)
    assert float((poisoned - clean).norm()) <= 1.0 + 1e-5


def test_clip_factors() -> None:
    norms = torch.tensor([0.0, 0.5, 1.0, 4.0, math.inf, math.nan])
    assert clip_factors(norms, 2.0).tolist() == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]


def test_an_empty_batch_is_noise_alone_over_the_expected_size() -> None:
    step, theta = private_step(linear_model(), Stages(), noise=2.0, clip=3.0)
    inputs, targets = records(0)
    gradient = step.private_gradient(theta, inputs, targets, learning_rate=0.1)
    torch.testing.assert_close(gradient, 2.0 * 3.0 / 4 * SeededGenerator(0).normal(len(theta), torch.float64))
    assert step.noise_draws == 1


@pytest.mark.parametrize(
    "changes",
    [{"sample_rate": 0.0}, {"sample_rate": 1.5}, {"noise_multiplier": -1.0}, {"max_grad_norm": 0.0}]
    + [{name: math.nan} for name in ("sample_rate", "noise_multiplier", "max_grad_norm", "expected_batch_size")]
    + [{name: math.inf} for name in ("sample_rate", "noise_multiplier", "max_grad_norm", "expected_batch_size")],
)
def test_a_mechanism_refuses_what_is_out_of_range(changes: dict[str, float]) -> None:
    good = {"sample_rate": 0.1, "noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 4}
    Mechanism(**good)
    with pytest.raises(HyperparameterError, match=next(iter(changes))):
        Mechanism(**{**good, **changes})


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
    settings = Composed(batch_size=4, steps=5, noise_multiplier=0.5, **off)
    inputs, targets = records(9)
    thetas = []
    for stages in (METHODS["composed"](settings, Layout.of(model)), Stages()):
        step, theta = private_step(model, stages)
        for _ in range(5):
            theta = step.take(theta, inputs, targets, learning_rate=0.3)
        thetas.append(theta)
    assert torch.equal(*thetas)


def test_no_noise_and_a_huge_clip_is_sgd() -> None:
    model = linear_model()
    step, theta = private_step(model, Stages(), noise=0.0, clip=1e9, rate=1.0)
    inputs, targets = records(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(10):
        theta = step.take(theta, inputs, targets, learning_rate=0.3)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    torch.testing.assert_close(theta, Layout.of(model).flatten(model), rtol=1e-10, atol=1e-12)


def test_smoothing_draws_public_numbers_of_the_right_size() -> None:
    theta = torch.zeros(20_000, dtype=torch.float64)
    public = torch.Generator().manual_seed(0)
    points = Smoothed(radius=5.0, samples=3, reduction="sum").points(theta, noise_scale=0.02, public=public)
    assert (points.theta.shape, points.scale) == ((3, 20_000), 1.0)
    assert float(points.theta.std()) == pytest.approx(5.0 * 0.02, rel=0.02)
    assert Smoothed(radius=5.0, samples=4).points(theta, noise_scale=1.0, public=public).scale == 0.25
    assert torch.equal(Plain().points(theta, noise_scale=1.0, public=public).theta, theta[None])


@pytest.mark.parametrize(("ours", "theirs"), [(Sgd, torch.optim.SGD), (Adam, torch.optim.Adam)])
def test_updates_are_those_of_torch(ours: type, theirs: type) -> None:
    momentum = {"momentum": 0.8} if ours is Sgd else {}
    theta = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameter = nn.Parameter(theta.clone())
    update, optimizer = ours(theta, **momentum), theirs([parameter], lr=0.1, **momentum)
    for index in range(6):
        gradient = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(index + 1))
        stored = update.state_dict()
        update = ours(theta, **momentum)
        update.load_state_dict(stored)
        theta = theta - 0.1 * update.direction(gradient)
        parameter.grad = gradient
        optimizer.step()
        torch.testing.assert_close(theta, parameter.detach(), rtol=1e-12, atol=1e-14)


# -- Laplacian smoothing (methods.md, section 2) ---------------------------------------------------------------------


def periodic(vector: Tensor, sigma: float) -> Tensor:
    """A_σ v by the definition of the matrix."""
    return (1 + 2 * sigma) * vector - sigma * (vector.roll(1) + vector.roll(-1))


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1001, 7850])
@pytest.mark.parametrize("sigma", [0.0, 0.2, 1.0, 3.0, 50.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_smoothing_inverts_the_matrix(size: int, sigma: float, dtype: torch.dtype, tolerance: float) -> None:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
    smoothed = laplacian_smoothing(vector, sigma)
    norm = float(vector.norm())
    assert float((periodic(smoothed, sigma) - vector).norm()) <= tolerance * norm * (1 + 4 * sigma) ** 0.5
    assert float((smoothed.mean() - vector.mean()).abs()) <= tolerance * norm
    assert float(smoothed.norm()) <= norm * (1 + tolerance)


@pytest.mark.parametrize(("sigma", "gamma", "beta"), [
    (1, 0.447, 0.268), (2, 0.333, 0.185), (3, 0.277, 0.149), (4, 0.243, 0.128), (5, 0.218, 0.114)
])  # fmt: skip
def test_published_utility_constants(sigma: float, gamma: float, beta: float) -> None:
    """Tables 3 and 4 of the paper at d = 1000, and γ's closed form; the mirrored half is written out."""
    size = 1000
    half = laplacian_eigenvalues(size, float(sigma))
    eigenvalues = torch.cat([half, half[1:-1]])
    assert len(eigenvalues) == size
    inverse = 1 / eigenvalues
    assert float(inverse.max()) <= 1
    assert float(inverse.min()) >= 1 / (1 + 4 * sigma) - 1e-12
    root = math.sqrt(4 * sigma + 1)
    omega = (2 * sigma + 1 - root) / (2 * sigma)
    assert float(inverse.mean()) == pytest.approx((1 + omega**size) / ((1 - omega**size) * root), rel=1e-12)
    # The paper cuts its digits off in one place and rounds them in another.
    assert float(inverse.mean()) == pytest.approx(gamma, abs=1e-3)
    assert float(inverse.square().mean()) == pytest.approx(beta, abs=1e-3)


def test_layer_scope_smooths_each_segment_by_itself() -> None:
    vector = torch.arange(10, dtype=torch.float64)
    smoothed = LaplacianSmoothing(sigma=2.0, sizes=(4, 6))(vector)
    assert torch.equal(smoothed[:4], laplacian_smoothing(vector[:4], 2.0))
    assert torch.equal(smoothed[4:], laplacian_smoothing(vector[4:], 2.0))
    whole = LaplacianSmoothing(sigma=2.0, sizes=(10,))(vector)
    assert not torch.allclose(whole, smoothed)


# -- weight decay: the toy of methods.md, section 4 ------------------------------------------------------------------


class Scalar(nn.Module):
    """A model that is one number."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 0 + self.value


@pytest.mark.parametrize(
    ("stages", "limit"),
    [
        (Stages(decoupled_weight_decay=0.5), 1.0 / 0.5),
        (Stages(weight_decay_before_clipping=0.5), 3.8 / (1 + 0.5)),
        (Stages(), 3.8),
    ],
)
def test_decoupled_decay_forgets_the_target_and_decay_before_the_clip_does_not(stages: Stages, limit: float) -> None:
    """Minimise ½(θ - θ*)² with C = 1, λ = 0.5, θ* = 3.8 and no noise."""
    model = Scalar()
    layout = Layout.of(model)
    theta = layout.flatten(model)
    step = PrivateStep(
        mechanism=Mechanism(sample_rate=1.0, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=1),
        stages=stages,
        source=TorchFuncSource(model, layout, lambda outputs, targets: 0.5 * (outputs - targets).square().sum()),
        update=Sgd(theta),
        secret=SeededGenerator(0),
        public=torch.Generator(),
    )
    target = torch.full((1, 1), 3.8, dtype=torch.float64)
    for _ in range(1000):
        theta = step.take(theta, torch.zeros(1, 1, dtype=torch.float64), target, learning_rate=0.05)
    assert float(theta) == pytest.approx(limit, rel=1e-6)
