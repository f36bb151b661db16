"""`schedule: gen`: private loss probes that set the rate, against a naive loop in numpy, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from errors_helper import raises_code
from numpy.typing import NDArray
from torch import Tensor, nn
from training_fakes import CountingCharge, MakeSpec, normals

from search_spaces import PARAMETERS
from trainables.engine.gen import LossProbes, probe_sum
from trainables.engine.layout import Layout
from trainables.engine.losses import LossPasses
from trainables.engine.per_sample import IGNORED
from trainables.engine.random import SeededGenerator
from trainables.engine.schedules import noise_split
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Mechanism, PrivateStep
from trainables.errors import GateError
from trainables.methods import METHODS, from_parameters
from trainables.training import PrivateTraining

Vector = NDArray[np.float64]
RECORDS, FEATURES, CLASSES, BATCH, RATE, NOISE, SHARE, STEPS, SEED = 24, 5, 3, 16, 0.6, 0.4, 0.1, 6, 21
START, CLIP, LAMBDA = 0.1, 1.3, 0.3
WEIGHTS = np.array([0.66, 0.66, 0.5, 0.5])
LENGTH = sqrt(2 * 0.66**2 + 2 * 0.25**2)


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(RECORDS, FEATURES, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, CLASSES, (RECORDS,), generator=generator)


def linear() -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES)).double()


@dataclass
class NaiveGen:
    """The schedule with DP-SGD and softmax regression, as `trainables.engine.gen` writes it, in numpy."""

    inputs: Vector
    labels: NDArray[np.int64]
    theta: Vector
    optimizer: str = "sgd"
    momentum: float = 0.0
    sigma: float = 0.0
    decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        self.secret = SeededGenerator(SEED)
        self.rate, self.bounds, self.count = START, (0.0, 0.0), 0
        self.sums = [np.zeros(3), np.zeros(3)]
        self.velocity = self.mean = self.square = np.zeros_like(self.theta)
        self.noises = NOISE / sqrt(1 - SHARE), NOISE / sqrt(SHARE)

    def losses(self, theta: Vector, batch: list[int]) -> Vector:
        return np.array([-np.log(self.softmax(theta, i)[self.labels[i]]) for i in batch])

    def softmax(self, theta: Vector, i: int) -> Vector:
        logits = theta[: CLASSES * FEATURES].reshape(CLASSES, FEATURES) @ self.inputs[i] + theta[CLASSES * FEATURES :]
        return np.exp(logits) / np.exp(logits).sum()

    def direction(self, batch: list[int]) -> Vector:
        total = np.zeros_like(self.theta)
        for i in batch:
            delta = self.softmax(self.theta, i) - np.eye(CLASSES)[self.labels[i]]
            gradient = np.concatenate([np.outer(delta, self.inputs[i]).ravel(), delta])
            gradient += 0.0 if self.decoupled else self.decay * self.theta
            total += CLIP / (np.linalg.norm(gradient) + 0.01) * gradient
        total += self.noises[0] * CLIP * normals(self.secret, len(total)).numpy()
        gradient = total / BATCH
        if self.sigma:
            parts = np.split(gradient, [CLASSES * FEATURES])
            gradient = np.concatenate([np.linalg.solve(smoothing(len(part), self.sigma), part) for part in parts])
        if self.optimizer == "adam":
            self.mean = 0.9 * self.mean + 0.1 * gradient
            self.square = 0.999 * self.square + 0.001 * gradient**2
            t = self.count + 1
            return self.mean / (1 - 0.9**t) / (np.sqrt(self.square / (1 - 0.999**t)) + 1e-8)
        self.velocity = self.momentum * self.velocity + gradient
        return self.velocity

    def step(self) -> None:
        batch = [i for i, u in enumerate(self.secret.uniform(RECORDS).tolist()) if u < RATE]
        d = self.direction(batch) + (self.decay * self.theta if self.decoupled else 0.0)
        r, length = self.rate / 1.5, float(np.linalg.norm(d))
        if self.count == 0:
            self.bounds = length, length**2
        slope_bound, curvature_bound = max(self.bounds[0], 1e-4 / r), max(self.bounds[1], 1e-4 / r**2)
        below, middle, above = (self.losses(self.theta + shift * d, batch) for shift in (-r, 0.0, r))
        s, c = (above - below) / 2 / (slope_bound * r), ((above + below) / 2 - middle) / (curvature_bound * r**2)
        rows = [np.clip(s, -1, 1), np.clip(c, -1, 1), np.minimum(abs(s), 1) - 0.5, np.minimum(abs(c), 1) - 0.5]
        total = WEIGHTS * np.sum(rows, axis=1)
        noised = (total + self.noises[1] * LENGTH * normals(self.secret, 4).numpy()).astype(np.float32)
        self.count += 1
        means = noised.astype(np.float64) / BATCH / WEIGHTS
        errors = self.noises[1] * LENGTH / BATCH / WEIGHTS
        kept = 1 - 1 / min(max(20.0, (errors[0] / 0.1) ** 2), (self.count + 1) / 2)
        found = []
        for place, (unit, mean) in enumerate(((slope_bound, means[0]), (2 * curvature_bound, means[1]))):
            error = errors[place] * unit
            decayed = self.sums[place] * np.array([kept, kept, kept**2])
            self.sums[place] = decayed + np.array([mean * unit, 1, error**2])
            value, weights, variance = self.sums[place]
            found.append((value / weights, sqrt(variance) / weights))
        (slope, slope_error), (curvature, curvature_error) = found
        doubt = min(max(1 - slope / (3 * slope_error), 0), 1)
        prior = 2 * max(curvature_error, doubt * slope_error / (START / 1.5))
        slope += self.decay * self.theta @ d + prior * START / 1.5
        curvature += self.decay * length**2 + prior
        lowest = slope / curvature if curvature > 0 else 2 * r
        self.rate = 1.5 * min(max(lowest, r / 2), 2 * r)
        gain = 0.5 * min(1, 0.1 / errors[2])
        growth = [exp(gain * min(max((size + 0.5 - 0.3) / 0.3, -3), 3)) for size in means[2:]]
        self.bounds = slope_bound * growth[0], curvature_bound * growth[1]
        self.theta = self.theta - self.rate * d


def smoothing(size: int, sigma: float) -> Vector:
    identity = np.eye(size)
    return (1 + 2 * sigma) * identity - sigma * (np.roll(identity, 1, 0) + np.roll(identity, -1, 0))


def make_step(model: nn.Sequential, method: str, **parameters: Any) -> tuple[PrivateStep, LossProbes, Tensor]:  # noqa: ANN401
    optimizer = {name: parameters.pop(name) for name in ("optimizer", "momentum") if name in parameters}
    flat = {"schedule": "gen", "schedule.gen.probe_share": SHARE, "clipping": "automatic", "max_grad_norm": CLIP}
    settings = from_parameters(
        method, {**flat, **parameters}, batch_size=BATCH, steps=STEPS, noise_multiplier=NOISE, **optimizer
    )
    layout = Layout.of(model)
    theta = layout.flatten(model)
    secret = SeededGenerator(SEED)
    mechanism = Mechanism(
        sample_rate=RATE,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=BATCH,
        clipping=settings.clipping,
        probe_share=settings.schedule.probe_share,
    )
    probes = LossProbes(
        passes=LossPasses(module=model, layout=layout, expected_batch_size=BATCH),
        noise_multiplier=mechanism.noise.probe or 0.0,
        expected_batch_size=BATCH,
        rate=settings.learning_rate,
        secret=secret,
    )
    step = PrivateStep(
        mechanism=mechanism,
        stages=METHODS[method].stages(settings, layout),
        source=per_sample_source(model, layout),
        update=settings.update(theta, variance=lambda: 0.0),
        secret=secret,
        public=torch.Generator().manual_seed(0),
        probes=probes,
    )
    return step, probes, theta


@pytest.mark.parametrize(
    ("method", "parameters", "naive"),
    [
        ("dp_sgd", {}, {}),
        ("dp_sgd", {"momentum": 0.9}, {"momentum": 0.9}),
        ("dp_sgd", {"optimizer": "adam"}, {"optimizer": "adam"}),
        ("dp_lssgd", {"laplacian_sigma": 1.5}, {"sigma": 1.5}),
        ("dp_weight_decay", {"weight_decay": LAMBDA}, {"decay": LAMBDA}),
        (
            "dp_weight_decay",
            {"weight_decay": LAMBDA, "weight_decay_mode": "decoupled"},
            {"decay": LAMBDA, "decoupled": True},
        ),
    ],
)
def test_each_step_equals_the_naive_loop(method: str, parameters: dict[str, Any], naive: dict[str, Any]) -> None:
    inputs, targets = records()
    step, probes, theta = make_step(linear(), method, **parameters)
    loop = NaiveGen(inputs.numpy(), targets.numpy(), theta.numpy().copy(), **naive)
    rates = []
    for number in range(STEPS):
        theta = step.take(theta, inputs, targets, learning_rate=probes.rate)
        loop.step()
        np.testing.assert_allclose(theta.numpy(), loop.theta, rtol=0, atol=1e-10)
        assert probes.rate == pytest.approx(loop.rate, rel=1e-10)
        assert probes.state.probes == step.noise_draws == number + 1
        rates.append(probes.rate)
    assert len(set(rates)) > 2, "the control: the rate moves"


def test_both_releases_of_a_step_cost_what_is_charged(
    make_spec: MakeSpec, fake_data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of a step, as it is drawn, in units of the sensitivity of what it is added to."""
    drawn: list[tuple[int, float]] = []
    real = SeededGenerator.add_normal

    def noted(self: SeededGenerator, total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        drawn.append((total.numel(), scale))
        return real(self, total, scale, dtype)

    monkeypatch.setattr(SeededGenerator, "add_normal", noted)
    for schedule in ({"schedule": "gen"}, {"schedule": "gen", "schedule.gen.probe_share": 0.3}, {}):
        drawn.clear()
        charge = CountingCharge()
        spec = make_spec(private=False, noise_seed=1, batch_size=1000, parameters={"max_grad_norm": CLIP, **schedule})
        PrivateTraining(spec, charge).run_to(3)
        ((_, charged),) = charge.mechanisms
        per_step = len(drawn) // 3
        assert per_step == (2 if schedule else 1)
        for start in range(0, len(drawn), per_step):
            losses = 0.0
            for size, scale in drawn[start : start + per_step]:
                sensitivity = CLIP if size > 4 else LENGTH
                losses += (sensitivity / scale) ** 2
            assert charged <= losses**-0.5 <= charged * (1 + 1e-6)


def test_the_default_share_adds_less_than_a_hundredth_to_the_noise_of_the_gradients() -> None:
    share = from_parameters("dp_sgd", {"schedule": "gen"}, batch_size=8, steps=1, noise_multiplier=1.0).schedule
    split = noise_split(2.0, probe_share=share.probe_share)
    assert 2.0 < split.gradient < 2.02
    assert split.probe is not None
    assert split.gradient**-2 + split.probe**-2 <= 2.0**-2
    assert PARAMETERS["schedule.gen.probe_share"].legal.allows(share.probe_share)


def test_probes_with_other_noise_than_is_charged_are_refused() -> None:
    model = linear()
    step, probes, theta = make_step(model, "dp_sgd")
    settings = METHODS["dp_sgd"](batch_size=BATCH, steps=1, noise_multiplier=NOISE)
    for share, given in ((0.2, probes), (None, probes), (SHARE, None)):
        with raises_code(GateError, "probes-not-charged"):
            PrivateStep(
                mechanism=Mechanism(
                    sample_rate=RATE,
                    noise_multiplier=NOISE,
                    max_grad_norm=CLIP,
                    expected_batch_size=BATCH,
                    probe_share=share,
                ),
                stages=settings.stages(Layout.of(model)),
                source=per_sample_source(model, Layout.of(model)),
                update=settings.update(theta, variance=lambda: 0.0),
                secret=SeededGenerator(0),
                public=torch.Generator(),
                probes=given,
            )
    assert step.mechanism.noise.probe == probes.noise_multiplier


def test_no_sample_moves_the_probes_by_more_than_their_sensitivity() -> None:
    generator = torch.Generator().manual_seed(5)
    scales = torch.tensor([0.0, 1e-9, 0.1, 1.0, 1e3, 1e300, inf, nan], dtype=torch.float64)
    longest = 0.0
    for _ in range(300):
        company = torch.rand(3, 7, generator=generator, dtype=torch.float64)
        picked = scales[torch.randint(len(scales), (3, 1), generator=generator)]
        more = picked * torch.randn(3, 1, generator=generator, dtype=torch.float64)
        bounds = {"slope_bound": 0.05, "curvature_bound": 0.02}
        moved = probe_sum(torch.cat([company, more], 1), **bounds) - probe_sum(company, **bounds)
        longest = max(longest, float(moved.norm()))
        if not bool(more.isfinite().all()):
            assert float(moved.norm()) < 1e-12
    assert LENGTH - 1e-9 <= longest <= LENGTH + 1e-9, "the bound holds and is reached"


class Choosy(nn.Module):
    """Raises for a record whose first entry is above 50."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if float(x[:, 0].max()) > 50:
            raise ValueError("a record")
        return self.inner(x)


@pytest.mark.parametrize("copies", [1, 2])
def test_the_losses_of_a_sample_are_its_own(copies: int) -> None:
    """Whatever is drawn with it, also next to samples for which the model raises. The first are compared by hand."""
    model = Choosy()
    layout = Layout.of(model)
    theta = layout.flatten(model)
    passes = LossPasses(module=model, layout=layout, expected_batch_size=40)
    generator = torch.Generator().manual_seed(6)
    inputs = torch.randn(90 * copies, FEATURES, generator=generator)
    targets = torch.randint(CLASSES, (90 * copies,), generator=generator)
    targets[-1] = IGNORED
    whole = passes.of([theta, 2 * theta], inputs, targets, copies=copies)
    hostile, bad = inputs.clone(), [0, 17, 50]
    hostile.view(90, copies, FEATURES)[bad, 0, 0] = 99.0
    found = passes.of([theta, 2 * theta], hostile, targets, copies=copies)
    kept = [place for place in range(90) if place not in bad]
    assert bool(found[:, bad].isnan().all())
    assert torch.equal(found[:, kept], whole[:, kept])
    one = nn.functional.cross_entropy(model(inputs[:copies]), targets[:copies]).double().detach()
    assert float(whole[0, 0]) == pytest.approx(float(one), abs=1e-6)
    assert passes.of([theta], inputs[:0], targets[:0], copies=copies).shape == (1, 0)


def test_a_user_is_one_sample_of_the_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loss is the sum over its records, divided by the public number of records of a user."""
    seen: list[Tensor] = []
    real: Callable[..., Tensor] = probe_sum

    def noted(losses: Tensor, **bounds: float) -> Tensor:
        seen.append(losses)
        return real(losses, **bounds)

    monkeypatch.setattr("trainables.engine.gen.probe_sum", noted)
    inputs, targets = records()
    model = linear()
    step, probes, theta = make_step(model, "dp_sgd")
    single = nn.functional.cross_entropy(model(inputs), targets, reduction="none").detach()
    of_user = {round(float(sum(single[i] for i in mine)) / 3, 9) for mine in ([0, 1, 2], [3], [4, 5])}
    users = torch.tensor([[0, 1, 2], [3, -1, -1], [4, 5, -1]])
    step.take(theta, inputs, targets, learning_rate=probes.rate, users=users)
    middle = [round(float(loss), 9) for losses in seen for loss in losses[1]]
    assert middle
    assert set(middle) <= of_user
