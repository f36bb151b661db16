"""Grids of learning rates of networks in random situations, and by how much the prior is off for them.

The formulas of linear models say how the rate falls with noise, steps and size, and that holds for these models too.
With little noise, though, steps beyond some length make a network collapse. That length, the largest product of rate
and clip, is what is distilled here, by the loss of accuracy, as the formulas are. Longer trainings of convolutional
models bear longer steps: the length is taken to grow with the root of the number of steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.prior.records import training_records
from benchmarks.prior.situations import noise_of
from search_spaces.common import AVERAGED, CHOSEN
from search_spaces.prior.recommend import Setting, leaving_out, recommend
from trainables.charge import NoCharge
from trainables.data.requests import DatasetRequest, Splits
from trainables.spec import TrainingSpec
from trainables.training import PrivateTraining

__all__ = [
    "DATASETS",
    "FACTORS",
    "NetCase",
    "NetGrid",
    "best_factor",
    "capped",
    "cases",
    "family_fits",
    "grid_of",
    "loss_at",
    "of_perceptrons",
]

DATASETS: Mapping[str, tuple[str, ...]] = {
    "convolutional": ("mnist", "fashion_mnist", "cifar10_10k2k"),
    "other": ("digits", "mnist", "fashion_mnist", "cifar10_10k2k", "adult", "bank"),
}
"""Data sets of each family of networks. `other` are the perceptrons."""
FACTORS = tuple(2.0**power for power in range(-6, 4))
"""Factors of the rate that the formulas of linear models say."""

_MODELS = {"cifar10_10k2k": ("four_conv_cnn", "tutorial_cnn")}
_PERCEPTRONS = ("mlp_64", "mlp_256", "mlp_256_256")
_GRADIENTS = 30_000  # of one training in a random situation, at most
_STEPS = (40, 100, 200)
_BATCH, _LITTLE = 400, 0.8  # batch size and noise multiplier of the situations with little noise
_HELD = 2000  # half of them choose the extrapolation, and half judge


@dataclass(frozen=True, kw_only=True)
class NetCase:
    """A situation of a network: everything else follows from these.

    Attributes:
        steps: number of steps of a situation with little noise; 0 for a random situation.
        family: family of the model.
    """

    dataset: str
    seed: int
    steps: int = 0
    family: str = "convolutional"


@dataclass(frozen=True, kw_only=True)
class NetGrid:
    """Public facts of a situation, and the accuracies on held-out training records in percent.

    Attributes:
        model: name of the model.
        setting: what the prior is asked. The dimension of a perceptron is that of a linear model with the same inputs.
        clip: clipping norm that the formulas of linear models say.
        rate: rate that they say with this clip, fitted without the data set.
        accuracies: at the rate times each of `FACTORS`.
    """

    model: str
    setting: dict[str, float]
    clip: float
    rate: float
    accuracies: tuple[float, ...]
    seconds: float = 0.0


def cases(each: int, family: str) -> list[NetCase]:
    """Return `each` random situations of every data set, and those with little noise."""
    names = DATASETS[family]
    random = [NetCase(dataset=name, seed=seed, family=family) for seed in range(each) for name in names]
    return random + [NetCase(dataset=name, seed=each, steps=steps, family=family) for steps in _STEPS for name in names]


def grid_of(case: NetCase, data_dir: str | None) -> NetGrid:
    """Train the grid of a situation."""
    perceptron = case.family == "other"
    rng = np.random.default_rng([7000 + case.seed, DATASETS[case.family].index(case.dataset)])
    x, y = training_records(case.dataset, data_dir)
    models = _PERCEPTRONS if perceptron else _MODELS.get(case.dataset, ("tutorial_cnn",))
    model = models[int(rng.integers(len(models)))]
    n = int(math.exp(rng.uniform(math.log(1000), math.log(min(30_000, 0.75 * len(y))))))
    epochs = min(math.exp(rng.uniform(math.log(2), math.log(20))), _GRADIENTS / n)
    sample_rate = max(math.exp(rng.uniform(math.log(0.005), math.log(0.3))), 8 / n)
    steps = max(4, round(epochs / sample_rate))
    noise = noise_of(math.exp(rng.uniform(math.log(0.04), math.log(3))), sample_rate, steps)
    if case.steps:
        n, steps, noise = min(50_000, max(len(y) - _HELD, len(y) * 3 // 4)), case.steps, _LITTLE
        model = model if perceptron else "tutorial_cnn"
        sample_rate = min(1.0, _BATCH / n)
    chosen = rng.permutation(len(y))[: n + _HELD]
    inputs, labels = torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen])
    splits = Splits(
        x_train=inputs[:n], y_train=labels[:n], x_validation=inputs[n::2], y_validation=labels[n::2],
        x_test=inputs[n + 1 :: 2], y_test=labels[n + 1 :: 2],
    )  # fmt: skip
    classes = int(y.max()) + 1

    def training(rate: float, clip: float) -> PrivateTraining:
        spec = TrainingSpec(
            method="dp_sgd", model=model, dataset=DatasetRequest(name=case.dataset),
            batch_size=max(1, round(sample_rate * n)),
            steps=steps, noise_multiplier=noise, sample_rate=sample_rate, private=False, noise_seed=case.seed,
            parameters={"learning_rate": rate, "max_grad_norm": clip, "ema_decay": AVERAGED, "extrapolation": CHOSEN},
            seed=case.seed, threads=1,
        )  # fmt: skip
        return PrivateTraining(spec, NoCharge(), splits=splits)

    if perceptron:
        dimension = (inputs[0].numel() + 1) * classes
    else:
        dimension = sum(each.numel() for each in training(0.1, 1.0).model.parameters())
    facts = {
        "noise_multiplier": noise, "batch_size": sample_rate * n, "steps": float(steps), "train_size": float(n),
        "dimension": float(dimension), "classes": float(classes),
    }  # fmt: skip
    with leaving_out(case.dataset):
        found = recommend(Setting(**facts, family="linear"))  # type: ignore[arg-type]
    rate, clip = found["learning_rate"].value, found["max_grad_norm"].value
    accuracies = []
    for multiple in FACTORS:
        trained = training(rate * multiple, clip)
        trained.run_to(steps)
        accuracies.append(round(100 * trained.evaluate("test")["test_accuracy"], 3))
    return NetGrid(model=model, setting=facts, clip=clip, rate=rate, accuracies=tuple(accuracies))


def of_perceptrons(case: NetCase, grid: NetGrid) -> float:
    """Return the logarithm of the factor of the linear rate that the prior's rule for perceptrons says.

    The rule counts the parameters of `mlp_64`, or of the model if it has fewer. No measured model has fewer.
    """
    classes = grid.setting["classes"]
    narrow = 64 * grid.setting["dimension"] / classes + 65 * classes
    with leaving_out(case.dataset):
        asked = Setting(**{**grid.setting, "dimension": narrow}, family="other")  # type: ignore[arg-type]
        found = recommend(asked, given={"max_grad_norm": grid.clip})
    return math.log(found["learning_rate"].value / grid.rate)


def loss_at(grid: NetGrid, log_factor: float) -> float:
    """Return the points that a case loses at a factor of the linear rate, by interpolation of smoothed accuracies."""
    raw = np.array(grid.accuracies)
    smooth = raw.copy()
    smooth[1:-1] = raw[:-2] / 4 + raw[1:-1] / 2 + raw[2:] / 4
    return float(smooth.max() - np.interp(log_factor, np.log(FACTORS), smooth))


def family_fits(grids: Mapping[NetCase, NetGrid]) -> dict[str, float]:
    """Return the limit with the least mean loss, and the scatter of the best products around it.

    The limit is the largest product of rate and clip, divided by the root of the number of steps.
    """
    counts = Counter(case.dataset for case in grids)

    def mean_loss(most: float) -> float:
        total = 0.0
        for case, grid in grids.items():
            around = (loss_at(grid, capped(grid, most) + shift) for shift in (-0.35, 0.0, 0.35))
            total += sum(loss / (1 + loss / 10) for loss in around) / counts[case.dataset]
        return total

    most = min(np.geomspace(0.025, 3.2, 57).tolist(), key=mean_loss)
    residuals = sorted(abs(best_factor(grid) - capped(grid, most)) for grid in grids.values())
    return {"most": most, "spread": float(residuals[math.ceil(0.683 * len(residuals)) - 1])}


def capped(grid: NetGrid, most: float) -> float:
    """Return the logarithm of the factor of the linear rate with which rate · clip is at most most · √steps."""
    return min(0.0, math.log(most * math.sqrt(grid.setting["steps"]) / (grid.rate * grid.clip)))


def best_factor(grid: NetGrid) -> float:
    """Return the mean logarithm of the good factors, each weighted by exp(−loss)."""
    logs = np.log(FACTORS)
    weights = np.exp([-loss_at(grid, at) for at in logs])
    return float(weights @ logs / weights.sum())
