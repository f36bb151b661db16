"""Every method and every composition, step by step, against a naive float64 loop over samples from the same draws."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource, per_sample_source
from trainables.engine.per_sample import TorchFuncSource
from trainables.engine.random import SeededGenerator
from trainables.engine.schedules import factor
from trainables.engine.step import Mechanism, PrivateStep
from trainables.engine.update import Adam, Sgd
from trainables.hyperparameters import HYPERPARAMETERS, Hyperparameters, from_parameters
from trainables.methods import METHODS

RECORDS, STEPS, SAMPLE_RATE, BATCH, NOISE, CLIP = 12, 3, 0.6, 7, 0.3, 1.2
SECRET_SEED, PUBLIC_SEED = 11, 12

LAPLACIANS = ({}, *({"laplacian_sigma": 1.5, "laplacian_scope": scope} for scope in ("layer", "model")))
SMOOTHINGS = (
    {},
    *({"smoothing_radius": 4.0, "smoothing_samples": 3, "smoothing_reduction": how} for how in ("mean", "sum")),
)
DECAYS = ({}, *({"weight_decay": 0.05, "weight_decay_mode": mode} for mode in ("before_clipping", "decoupled")))
OPTIMIZERS = ({"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adam"})
MODELS = ("linear", "convolution")

COMPOSITIONS = [
    ("composed", {**laplacian, **smoothing, **decay, **optimizer}, model)
    for laplacian, smoothing, decay, optimizer, model in itertools.product(
        LAPLACIANS, SMOOTHINGS, DECAYS, OPTIMIZERS, MODELS
    )
]
SINGLE: dict[str, list[dict[str, Any]]] = {
    "dp_sgd": [{}],
    "dp_lssgd": [*LAPLACIANS],
    "dplis": [*SMOOTHINGS[1:], {"smoothing_radius": 0.0, "smoothing_samples": 2, "smoothing_reduction": "sum"}],
    "dp_weight_decay": [*DECAYS],
    "composed": [{}],
}
CASES = [
    *COMPOSITIONS,
    *((method, choice, model) for method in SINGLE for choice in SINGLE[method] for model in MODELS),
]


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(1)
    if kind == "linear":
        layers = [nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)]
        return nn.Sequential(*layers).double()
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).double()


def make_records() -> tuple[Tensor, Tensor]:
    """Inputs whose gradients differ widely in length, so that some are clipped and some are not."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(RECORDS, 1, 4, 4, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-2, 1, RECORDS, dtype=torch.float64)
    return inputs * scales[:, None, None, None], torch.randint(0, 3, (RECORDS,), generator=generator)


class Naive:
    """DP-SGD and its relatives as the papers write them: one sample, one gradient, one autograd call at a time."""

    def __init__(self, model: nn.Module, settings: Hyperparameters) -> None:
        self.model, self.settings = model, settings
        self.parameters = list(model.parameters())
        self.secret = SeededGenerator(SECRET_SEED)
        self.public = torch.Generator().manual_seed(PUBLIC_SEED)
        rate = {"lr": 1.0}
        self.optimizer = (
            torch.optim.Adam(self.parameters, **rate)
            if settings.optimizer == "adam"
            else torch.optim.SGD(self.parameters, momentum=settings.momentum, **rate)
        )
        self.norms: list[float] = []

    def option(self, name: str, default: object) -> Any:  # noqa: ANN401 - any hyper-parameter
        return getattr(self.settings, name, default)

    def theta(self) -> Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def put(self, theta: Tensor) -> None:
        position = 0
        for parameter in self.parameters:
            parameter.data = theta[position : position + parameter.numel()].reshape(parameter.shape).clone()
            position += parameter.numel()

    def gradient_of_one(self, theta: Tensor, x: Tensor, y: Tensor, perturbations: list[Tensor]) -> Tensor:
        total = torch.zeros_like(theta)
        for perturbation in perturbations:
            self.put(theta + perturbation)
            loss = nn.functional.cross_entropy(self.model(x[None]), y[None])
            total += torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, self.parameters)])
        if self.option("smoothing_reduction", "mean") == "mean":
            total /= len(perturbations)
        if self.option("weight_decay_mode", "") == "before_clipping":
            total += self.option("weight_decay", 0.0) * theta
        return total

    def smoothed(self, gradient: Tensor) -> Tensor:
        sigma = self.option("laplacian_sigma", 0.0)
        whole = self.option("laplacian_scope", "layer") == "model"
        sizes = [gradient.numel()] if whole else [parameter.numel() for parameter in self.parameters]
        pieces = []
        for piece in torch.split(gradient, sizes):
            identity = torch.eye(len(piece), dtype=torch.float64)
            matrix = (1 + 2 * sigma) * identity - sigma * (identity.roll(1, 0) + identity.roll(-1, 0))
            pieces.append(torch.linalg.solve(matrix, piece))
        return torch.cat(pieces)

    def step(self, inputs: Tensor, targets: Tensor, rate: float) -> None:
        settings, theta = self.settings, self.theta()
        chosen = [i for i, u in enumerate(self.secret.uniform(len(inputs)).tolist()) if u < SAMPLE_RATE]
        deviation = settings.noise_multiplier * settings.max_grad_norm
        count, radius = self.option("smoothing_samples", 1), self.option("smoothing_radius", 0.0)
        draws = torch.randn(count, len(theta), generator=self.public, dtype=torch.float64)
        perturbations = [radius * rate / settings.batch_size * deviation * draw for draw in draws]
        total = torch.zeros_like(theta)
        for i in chosen:
            gradient = self.gradient_of_one(theta, inputs[i], targets[i], perturbations)
            norm = float(gradient.square().sum().sqrt())
            self.norms.append(norm)
            total += gradient / max(1.0, norm / settings.max_grad_norm)
        total += deviation * self.secret.normal(len(theta), torch.float64)
        direction = self.smoothed(total / settings.batch_size)
        decay = self.option("weight_decay", 0.0) if self.option("weight_decay_mode", "") == "decoupled" else 0.0
        self.put(theta * (1 - rate * decay))
        for parameter, piece in zip(
            self.parameters, torch.split(direction, [each.numel() for each in self.parameters]), strict=True
        ):
            parameter.grad = piece.reshape(parameter.shape)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


@pytest.mark.parametrize(("method", "choice", "kind"), CASES)
def test_each_step_is_that_of_the_naive_loop(method: str, choice: dict[str, Any], kind: str) -> None:
    # A sum of K gradients is K times as long: the clip follows, or it would spare no sample.
    clip = CLIP * (choice["smoothing_samples"] if choice.get("smoothing_reduction") == "sum" else 1)
    parameters = {"learning_rate": 0.5, "max_grad_norm": clip, "schedule": "cosine", "schedule.warmup": 0.3, **choice}
    settings = from_parameters(method, parameters, batch_size=BATCH, steps=STEPS, noise_multiplier=NOISE)
    naive = Naive(make_model(kind), settings)
    model = make_model(kind)
    layout = Layout.of(model)
    theta = layout.flatten(model)
    source = per_sample_source(model, layout)
    assert isinstance(source, LinearStackSource if kind == "linear" else TorchFuncSource)
    step = PrivateStep(
        mechanism=Mechanism(
            sample_rate=SAMPLE_RATE, noise_multiplier=NOISE, max_grad_norm=clip, expected_batch_size=BATCH
        ),
        stages=METHODS[method](settings, layout),
        source=source,
        update=Adam(theta) if settings.optimizer == "adam" else Sgd(theta, momentum=settings.momentum),
        secret=SeededGenerator(SECRET_SEED),
        public=torch.Generator().manual_seed(PUBLIC_SEED),
    )
    inputs, targets = make_records()
    for index in range(STEPS):
        rate = settings.learning_rate * factor(settings.schedule, index, STEPS)
        before, expected_before = theta, naive.theta()
        theta = step.take(theta, inputs, targets, learning_rate=rate)
        naive.step(inputs, targets, rate)
        moved, expected = theta - before, naive.theta() - expected_before
        assert float((moved - expected).norm()) <= 1e-6 * float(expected.norm())
    assert min(naive.norms) < clip < max(naive.norms), "the case must clip some samples and spare others"
    assert step.noise_draws == STEPS


def test_the_cases_cover_every_method() -> None:
    assert {method for method, _, _ in CASES} == set(METHODS) == set(HYPERPARAMETERS) == set(SINGLE)
