"""Every method and composition, step by step, against a naive float64 loop over samples with the same draws.

A sample is a record, or a user with several records. In float64 they agree to 1e-12, in float32 to 1e-5 of a step.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from covering import pairs
from torch import Tensor, nn
from training_fakes import normals

from trainables.engine.augmentation import RandomViews
from trainables.engine.bookkeeping import BookkeepingSource
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource
from trainables.engine.per_sample import TorchFuncSource
from trainables.engine.random import SeededGenerator
from trainables.engine.schedules import rate_factor
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Mechanism, PrivateStep, noise_variance
from trainables.engine.sums import LARGE as LARGE_SUMS
from trainables.engine.sums import SMALL as SMALL_SUMS
from trainables.engine.unrolled import unrolled
from trainables.hyperparameters import Hyperparameters
from trainables.methods import STEP_METHODS, from_parameters
from trainables.models import build
from trainables.own_method import OwnMethod
from trainables.start import freeze_layers

RECORDS, STEPS, SAMPLE_RATE, BATCH, NOISE, CLIP = 12, 3, 0.6, 7, 0.3, 1.06
SECRET_SEED, PUBLIC_SEED = 11, 12
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
LARGE = 66_000  # width of a model that is summed in blocks of float32
OF_WORDS = ("next_word_mlp", "next_word_lstm")
NEAR = ({}, {"smoothing_radius": 0.3, "smoothing_samples": 2})

LAPLACIANS = ({}, *({"laplacian_sigma": 1.5, "laplacian_scope": scope} for scope in ("layer", "model")))
SMOOTHINGS = (
    {},
    *({"smoothing_radius": 4.0, "smoothing_samples": 3, "smoothing_reduction": how} for how in ("mean", "sum")),
    {"smoothing_radius": 0.0, "smoothing_samples": 2, "smoothing_reduction": "sum"},
)
DECAYS = ({}, *({"weight_decay": 0.05, "weight_decay_mode": mode} for mode in ("before_clipping", "decoupled")))
OPTIMIZERS = (
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9},
    {"optimizer": "adam"},
    {"optimizer": "adam", "adam_beta1": 0.5, "adam_beta2": 0.9, "adam_floor": 0.01},
    {"optimizer": "adam_corrected"},
    {"optimizer": "adam_corrected", "adam_beta1": 0.7, "adam_beta2": 0.8, "adam_noise_floor": 0.5},
)
CLIPPINGS = ({}, {"clipping": "automatic"}, {"clipping": "per_layer"})
VIEWS = ({}, {"augmentation": "flip"}, {"augmentation": "crop_flip", "augmentation_multiplicity": 3})
COMMON = (OPTIMIZERS, CLIPPINGS, VIEWS)
OPTIONS: dict[str, tuple[tuple[dict[str, Any], ...], ...]] = {
    "dp_sgd": (),
    "dp_lssgd": (LAPLACIANS,),
    "dplis": (SMOOTHINGS,),
    "dp_weight_decay": (DECAYS,),
    "composed": (LAPLACIANS, SMOOTHINGS, DECAYS),
}
DTYPES = (torch.float64, torch.float32)
MODELS = ("linear", "convolution")
CASES = [(name, *row) for name, own in OPTIONS.items() for row in pairs(MODELS, DTYPES, *own, *COMMON)]
USERS = [[0], [1, 2], [3, 4, 5], [6, 7, 8], [9], [10, 11]]  # whose the records are
MOST = 3  # records of a user
FALLBACK = (False, True)
PER_USER = [
    *pairs(MODELS, DTYPES, FALLBACK, *OPTIONS["composed"], *COMMON),
    *pairs(("words",), DTYPES, FALLBACK, *OPTIONS["composed"], OPTIMIZERS, CLIPPINGS),  # words have no views
]


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(1)
    if kind == "linear":
        layers = [nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)]
        return nn.Sequential(*layers).double()
    if kind == "words":
        model = nn.Sequential(Whole(), nn.Embedding(RECORDS, 4), nn.Flatten(), nn.Linear(16, 3)).double()
        with torch.no_grad():
            model[1].weight.mul_(torch.logspace(-2, 0.2, RECORDS, dtype=torch.float64)[:, None])
        return model
    if kind == "frozen":  # before, between and after what is trained
        layers = [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 4)]
        model = nn.Sequential(*layers, nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3)).double()
        freeze_layers(model, ["0", "5", "8"])
        return model
    if kind in OF_WORDS:
        model = build(kind, input_shape=(4,), classes=RECORDS, seed=1).double()
        with torch.no_grad():
            model[1].weight.mul_(torch.logspace(-1.5, 0, RECORDS, dtype=torch.float64)[:, None])
        return model
    if kind == "large":
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 1), nn.Tanh(), nn.Linear(1, LARGE // 2)).double()
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).double()


class Whole(nn.Module):
    """Rounds floats to the numbers of words."""

    def forward(self, x: Tensor) -> Tensor:
        return x.long()


def make_records(kind: str = "linear") -> tuple[Tensor, Tensor]:
    """Inputs whose gradients differ widely in length, so that some are clipped and some are not."""
    generator = torch.Generator().manual_seed(2)
    if kind == "words" or kind in OF_WORDS:  # each record has words of its own in the main, and one that all have
        inputs = torch.arange(RECORDS)[:, None].repeat(1, 4)
        inputs[:, 1] = 3
        labels = torch.randint(0, 3 if kind == "words" else RECORDS, (RECORDS,), generator=generator)
        return inputs.double(), labels
    inputs = torch.randn(RECORDS, 1, 4, 4, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-2, 1, RECORDS, dtype=torch.float64)
    return inputs * scales[:, None, None, None], torch.randint(0, 3, (RECORDS,), generator=generator)


def own_stages(_layout: object, *, power: float) -> dict[str, Any]:
    """A method of the user's own whose two stages need the whole vector, and act on no other."""
    return {
        "before_clip": lambda gradient: gradient / (gradient.norm() + 0.1) ** power,
        "after_noise": lambda gradient: gradient - power * gradient.mean(),
    }


class Naive:
    """DP-SGD and its relatives as the papers write them: one sample, one gradient, one autograd call at a time."""

    def __init__(self, model: nn.Module, settings: Hyperparameters, *, views: Any, drawn: torch.dtype) -> None:  # noqa: ANN401
        self.model, self.settings, self.views, self.drawn = model, settings, views, drawn
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.secret = SeededGenerator(SECRET_SEED)
        self.public = torch.Generator().manual_seed(PUBLIC_SEED)
        rate = {"lr": 1.0}
        betas = (settings.adam_beta1, settings.adam_beta2)
        self.optimizer = (
            torch.optim.SGD(self.parameters, momentum=settings.momentum, **rate)
            if settings.optimizer == "sgd"
            else torch.optim.Adam(self.parameters, betas=betas, eps=settings.adam_floor, **rate)
        )
        self.moments = [torch.zeros_like(self.theta()) for _ in range(2)]
        self.count = 0
        self.norms: list[float] = []
        self.slack = 0.0

    def option(self, name: str, default: object) -> Any:  # noqa: ANN401 - any hyper-parameter
        return getattr(self.settings, name, default)

    def theta(self) -> Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def put(self, theta: Tensor) -> None:
        position = 0
        for parameter in self.parameters:
            parameter.data = theta[position : position + parameter.numel()].reshape(parameter.shape).clone()
            position += parameter.numel()

    def gradient_of_one(self, theta: Tensor, x: Tensor, y: Tensor, perturbations: list[Tensor], *, most: int) -> Tensor:
        """x: (records, views, ...), y: (records,), of one sample; what they come to is divided by the PUBLIC `most`."""
        total = torch.zeros_like(theta)
        for perturbation, (views, label) in itertools.product(perturbations, zip(x, y, strict=True)):
            self.put(theta + perturbation)
            for view in views:
                loss = nn.functional.cross_entropy(self.model(view[None]), label[None])
                found = torch.autograd.grad(loss, self.parameters)
                total += torch.cat([part.reshape(-1) for part in found]) / len(views) / most
        if self.option("smoothing_reduction", "mean") == "mean":
            total /= len(perturbations)
        if self.option("weight_decay_mode", "") == "before_clipping":
            total += self.option("weight_decay", 0.0) * theta
        return total

    def perturbations(self, size: int, deviation: float) -> list[Tensor]:
        radius = self.option("smoothing_radius", None)
        if radius is None:
            return [torch.zeros(size, dtype=torch.float64)]
        seeds = torch.randint(2**63 - 1, (self.option("smoothing_samples", 1),), generator=self.public).tolist()
        draws = [torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=self.drawn) for seed in seeds]
        return [radius * deviation * draw.double() for draw in draws]

    def clipped(self, gradient: Tensor) -> Tensor:
        limit = self.settings.max_grad_norm
        norm = float(gradient.square().sum().sqrt())
        self.norms.append(norm)
        if self.settings.clipping == "automatic":
            return gradient * limit / (norm + 0.01)
        if self.settings.clipping == "per_layer":
            layers = [layer for layer in self.model if any(each.requires_grad for each in layer.parameters())]
            sizes = [sum(each.numel() for each in layer.parameters()) for layer in layers]
            bound = limit / len(sizes) ** 0.5
            return torch.cat([part / max(1.0, float(part.norm()) / bound) for part in torch.split(gradient, sizes)])
        return gradient / max(1.0, norm / limit)

    def own(self, stage: str, gradient: Tensor) -> Tensor:
        """Apply a stage of the user's own method to one vector."""
        if not isinstance(self.settings, OwnMethod):
            return gradient
        return own_stages(None, **self.settings.own)[stage](gradient)

    def smoothed(self, gradient: Tensor) -> Tensor:
        sigma = self.option("laplacian_sigma", 0.0)
        if sigma == 0:
            return gradient
        whole = self.option("laplacian_scope", "layer") == "model"
        sizes = [gradient.numel()] if whole else [parameter.numel() for parameter in self.parameters]
        pieces = []
        for piece in torch.split(gradient, sizes):
            identity = torch.eye(len(piece), dtype=torch.float64)
            matrix = (1 + 2 * sigma) * identity - sigma * (identity.roll(1, 0) + identity.roll(-1, 0))
            pieces.append(torch.linalg.solve(matrix, piece))
        return torch.cat(pieces)

    def noise_in_theta(self, deviation: float, size: int) -> float:
        """The deviation of a step's noise, by which R is multiplied: of Adam's direction it does not depend on C."""
        settings, noise = self.settings, deviation / self.settings.batch_size
        signal = settings.max_grad_norm / size**0.5
        if settings.optimizer == "sgd":
            return noise
        if settings.optimizer == "adam":
            return noise / (noise**2 + signal**2) ** 0.5
        return noise / max(signal, settings.adam_noise_floor * noise)

    def corrected(self, gradient: Tensor, deviation: float) -> Tensor:
        """DP-AdamBC. The variance of the smoothed noise is the diagonal of A⁻¹A⁻ᵀ, of each coordinate by itself."""
        settings, (beta1, beta2) = self.settings, (self.settings.adam_beta1, self.settings.adam_beta2)
        inverse = torch.stack([self.smoothed(row) for row in torch.eye(len(gradient), dtype=torch.float64)])
        variance = (deviation / settings.batch_size) ** 2 * inverse.square().sum(0)
        self.count += 1
        self.moments[0] = beta1 * self.moments[0] + (1 - beta1) * gradient
        self.moments[1] = beta2 * self.moments[1] + (1 - beta2) * gradient**2
        mean, square = (m / (1 - b**self.count) for m, b in zip(self.moments, (beta1, beta2), strict=True))
        second = torch.maximum(square - variance, settings.adam_noise_floor**2 * variance)
        return mean / (second.sqrt() + settings.adam_floor)

    def step(self, inputs: Tensor, targets: Tensor, rate: float, *, users: Any = None, most: int = 1) -> None:  # noqa: ANN401
        settings, theta = self.settings, self.theta()
        owned = [[i] for i in range(len(inputs))] if users is None else users
        batch = [owned[i] for i, u in enumerate(self.secret.uniform(len(owned)).tolist()) if u < SAMPLE_RATE]
        deviation = settings.noise_multiplier * settings.max_grad_norm
        perturbations = self.perturbations(len(theta), rate * self.noise_in_theta(deviation, len(theta)))
        # Views are drawn for as many places as a user can fill, so that their number tells nothing.
        filled = [record for mine in batch for record in [*mine, *mine[:1] * (most - len(mine))]]
        views = inputs[filled][:, None]
        if self.views is not None:
            views = self.views(inputs[filled], self.secret).view(-1, self.views.copies, *inputs.shape[1:])
        total = torch.zeros_like(theta)
        for place, mine in enumerate(batch):
            own = views[most * place : most * place + len(mine)]
            found = self.gradient_of_one(theta, own, targets[mine], perturbations, most=most)
            total += self.clipped(self.own("before_clip", found))
        total += (1 + self.slack) * deviation * normals(self.secret, len(theta))
        direction = self.own("after_noise", self.smoothed(total / settings.batch_size))
        decay = self.option("weight_decay", 0.0) if self.option("weight_decay_mode", "") == "decoupled" else 0.0
        if settings.optimizer == "adam_corrected":
            self.put(theta * (1 - rate * decay) - rate * self.corrected(direction, (1 + self.slack) * deviation))
            return
        self.put(theta * (1 - rate * decay))
        for parameter, piece in zip(
            self.parameters, torch.split(direction, [each.numel() for each in self.parameters]), strict=True
        ):
            parameter.grad = piece.reshape(parameter.shape)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


def views_of(settings: Hyperparameters) -> RandomViews | None:
    kind, copies = settings.augmentation, settings.augmentation_multiplicity
    return None if kind == "none" else RandomViews(crop="crop" in kind, flip="flip" in kind, copies=copies)


def assert_same_steps(
    method: str,
    kind: str,
    dtype: torch.dtype,
    choice: dict[str, Any],
    *,
    clip: float = CLIP,
    steps: int = STEPS,
    fallback: bool = False,
    users: list[list[int]] | None = None,
    samples: tuple[int, ...] = (),
) -> None:
    """Compare every step of the engine with the naive loop; `samples` is K of each step where K rises."""
    # A sum of K gradients is K times as long: the clip follows, or it would spare no sample.
    if choice.get("smoothing_reduction") == "sum" and not samples:
        clip *= choice["smoothing_samples"]
    rate = 0.05 if "adam" in choice.get("optimizer", "") else 0.5  # longer steps of Adam clip all samples
    parameters = {"learning_rate": rate, "max_grad_norm": clip, "schedule": "cosine", "schedule.warmup": 0.3, **choice}
    settings = from_parameters(method, parameters, batch_size=BATCH, steps=steps, noise_multiplier=NOISE)
    model = make_model(kind).to(dtype)
    layout = Layout.of(model)
    theta = layout.flatten(model)
    stages = settings.stages(layout)
    inputs, targets = make_records(kind)
    inputs = inputs.to(dtype)
    naive = Naive(make_model(kind), settings, views=views_of(settings), drawn=dtype)
    naive.put(theta.double())
    if dtype == torch.float32:
        naive.slack = (LARGE_SUMS if theta.numel() >= 2**16 else SMALL_SUMS).slack
    source = per_sample_source(model, layout, example=torch.rand(3, *inputs.shape[1:], dtype=dtype))
    assert isinstance(source, LinearStackSource if kind in ("linear", "large") else BookkeepingSource)
    mechanism = Mechanism(
        sample_rate=SAMPLE_RATE,
        noise_multiplier=NOISE,
        max_grad_norm=clip,
        expected_batch_size=BATCH,
        clipping=settings.clipping,
    )
    step = PrivateStep(
        mechanism=mechanism,
        stages=stages,
        source=TorchFuncSource(unrolled(model), layout) if fallback else source,
        update=settings.update(theta, variance=lambda: noise_variance(mechanism, stages, like=theta)),
        secret=SeededGenerator(SECRET_SEED),
        public=torch.Generator().manual_seed(PUBLIC_SEED),
    )
    # Where little is left of v - Φ, and where a mean is divided by little noise, rounding grows.
    corrected = dtype == torch.float32 and settings.optimizer == "adam_corrected"
    tolerance = 20 * TOLERANCE[dtype] if corrected else TOLERANCE[dtype]
    most = 1 if users is None else MOST
    table = None if users is None else torch.tensor([[*mine, *[-1] * (most - len(mine))] for mine in users])
    for index in range(steps):
        rate = settings.learning_rate * rate_factor(settings.schedule, index, steps, steps_per_epoch=1 / SAMPLE_RATE)
        if samples:
            naive.settings = replace(settings, smoothing_samples=samples[index])
        if dtype == torch.float32:
            naive.put(theta.double())  # one step at a time: rounding would grow from step to step
        before, expected_before = theta, naive.theta()
        theta = step.take(theta, inputs, targets, learning_rate=rate, users=table)
        naive.step(inputs.double(), targets, rate, users=users, most=most)
        moved, expected = (theta - before).double(), naive.theta() - expected_before
        # The move is read off θ, which in float32 has only 24 bits.
        rounding = float(theta.norm()) * torch.finfo(dtype).eps
        assert float((moved - expected).norm()) <= tolerance * float(expected.norm()) + rounding
    assert min(naive.norms) < clip, "the case must spare some samples"
    assert max(naive.norms) > clip or samples, "the case must clip some samples"
    assert step.noise_draws == steps


def merged(*options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for option in options for name, value in option.items()}


@pytest.mark.parametrize(("method", "kind", "dtype", "options"), [(*case[:3], case[3:]) for case in CASES])
def test_each_step_equals_the_naive_loop(method: str, kind: str, dtype: torch.dtype, options: tuple[Any, ...]) -> None:
    assert_same_steps(method, kind, dtype, merged(*options))


@pytest.mark.parametrize(
    ("kind", "dtype", "options"),
    [(*row[:2], row[2:]) for row in pairs((*MODELS, "frozen"), DTYPES, OPTIMIZERS[:3], *COMMON[1:])],
)
def test_each_step_of_a_method_of_ones_own_equals_the_naive_loop(
    kind: str, dtype: torch.dtype, options: tuple[Any, ...]
) -> None:
    """`before_clip` gets the gradient of one sample, views included, and `after_noise` the noised one."""
    choice = {"own.power": 0.25, **merged(*options)}
    assert_same_steps(f"{__name__}:own_stages", kind, dtype, choice, clip=0.35 if kind == "frozen" else 1.2)


@pytest.mark.parametrize(
    ("dtype", "fallback", "options"),
    [(*row[:2], row[2:]) for row in pairs(DTYPES, FALLBACK, *OPTIONS["composed"], OPTIMIZERS, CLIPPINGS)],
)
def test_each_step_with_frozen_layers_equals_the_naive_loop(
    dtype: torch.dtype, options: tuple[Any, ...], *, fallback: bool
) -> None:
    """Clip, noise, smoothing and decay are over the trained parameters alone; the others keep their values."""
    assert_same_steps("composed", "frozen", dtype, merged(*options), clip=0.35, fallback=fallback)


@pytest.mark.parametrize(("kind", "dtype", "fallback", "options"), [(*row[:3], row[3:]) for row in PER_USER])
def test_each_step_over_users_equals_the_naive_loop(
    kind: str, dtype: torch.dtype, options: tuple[Any, ...], *, fallback: bool
) -> None:
    """A user's gradient is one vector of up to MOST records, divided by MOST, and it is clipped as one."""
    assert_same_steps("composed", kind, dtype, merged(*options), clip=0.6, fallback=fallback, users=USERS)


@pytest.mark.parametrize(
    ("method", "kind", "reduction", "dtype"),
    pairs(("dplis", "composed"), MODELS, ("mean", "sum"), DTYPES),
)
def test_a_rising_k_is_the_k_of_each_step(method: str, kind: str, reduction: str, dtype: torch.dtype) -> None:
    rises = {"promote": [1, 3, 4], "from_step": [0, 2, 3]}
    choice = {"smoothing_radius": 4.0, "smoothing_samples": rises, "smoothing_reduction": reduction}
    assert_same_steps(method, kind, dtype, choice, clip=1.2, steps=5, samples=(1, 1, 3, 4, 4))


@pytest.mark.parametrize(("choice", "clip"), [({}, 3.0), (SMOOTHINGS[2], 3.0), (DECAYS[1], 8.0)])
def test_a_large_model_in_float32_equals_the_naive_loop(choice: dict[str, Any], clip: float) -> None:
    """Summed in blocks of float32, with noise that covers the rounding."""
    assert_same_steps("composed", "large", torch.float32, choice, clip=clip, steps=1)


@pytest.mark.parametrize(
    ("kind", "dtype", "fallback", "users", "options"),
    [(*row[:4], row[4:]) for row in pairs(OF_WORDS, DTYPES, FALLBACK, (None, USERS), NEAR, CLIPPINGS)],
)
def test_each_step_of_a_model_of_words_equals_the_naive_loop(
    kind: str,
    dtype: torch.dtype,
    users: list[list[int]] | None,
    options: tuple[Any, ...],
    *,
    fallback: bool,
) -> None:
    """The perceptron and the LSTM of DPLIS, over windows and over speakers."""
    assert_same_steps("composed", kind, dtype, merged(*options), clip=1.25, fallback=fallback, users=users)


def test_the_cases_cover_every_method() -> None:
    assert set(OPTIONS) == set(STEP_METHODS)
