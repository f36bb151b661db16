"""Grids of learning rates with ten, thirty and a hundred classes, and how the best rate grows with their number.

The other measurements have at most ten classes. Here two images are put side by side. The label says what the second
one is, and with more classes also what the first one is (modulo 3). So only the number of classes differs.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch.nn.functional import avg_pool2d

from benchmarks.prior.networks import FACTORS, NetGrid, best_factor, loss_at
from benchmarks.prior.records import training_records
from search_spaces.common import AVERAGED, CHOSEN
from search_spaces.prior.recommend import FITTED_CLASSES, Setting, leaving_out, recommend
from trainables.charge import NoCharge
from trainables.data.requests import DatasetRequest
from trainables.spec import TrainingSpec
from trainables.training import PrivateTraining

__all__ = ["DATASETS", "ClassCase", "cases", "exponent", "grid_of", "loss_of_rule"]

DATASETS = ("mnist", "fashion_mnist")
_LINEAR = "logistic_regression"
_MODELS = (_LINEAR, "mlp_256")
_CLASSES = (10, 30, 100)
_NOISES = (0.6, 2.0, 6.0)
_TRAIN, _HELD = 18_000, 2000
_BATCH, _STEPS = 1024, 63
_SHIFTS = (-0.35, 0.0, 0.35)  # of the logarithm, so that a fit is not drawn to the points of the grid


@dataclass(frozen=True, kw_only=True)
class ClassCase:
    """A situation: number of classes, model, and noise multiplier."""

    dataset: str
    model: str
    classes: int
    noise: float


def cases() -> list[ClassCase]:
    """Return all situations."""
    return [
        ClassCase(dataset=name, model=model, classes=classes, noise=noise)
        for name, model, classes, noise in product(DATASETS, _MODELS, _CLASSES, _NOISES)
    ]


def grid_of(case: ClassCase, data_dir: str | None) -> NetGrid:
    """Train the grid of a situation: factors of the rate that the prior says for a linear model."""
    x, y = _pairs(case, data_dir)
    facts = {
        "noise_multiplier": case.noise, "batch_size": float(_BATCH), "steps": float(_STEPS),
        "train_size": float(_TRAIN), "dimension": float((x.shape[1] + 1) * case.classes),
        "classes": float(case.classes),
    }  # fmt: skip
    rate, clip = _asked(case, facts, "linear", classes=FITTED_CLASSES)
    with tempfile.TemporaryDirectory() as inside:
        path = Path(inside) / "pairs.npz"
        np.savez(path, x_train=x[:_TRAIN], y_train=y[:_TRAIN], x_test=x[_TRAIN:], y_test=y[_TRAIN:])
        accuracies = []
        for multiple in FACTORS:
            training = PrivateTraining(
                TrainingSpec(
                    method="dp_sgd", model=case.model, batch_size=_BATCH, steps=_STEPS, noise_multiplier=case.noise,
                    dataset=DatasetRequest(name="pairs", path=str(path), public_size=_TRAIN),
                    sample_rate=_BATCH / _TRAIN, private=False, noise_seed=1, seed=1, threads=1,
                    parameters={
                        "learning_rate": rate * multiple, "max_grad_norm": clip,
                        "ema_decay": AVERAGED, "extrapolation": CHOSEN,
                    },
                ),
                NoCharge(),
            )  # fmt: skip
            training.run_to(_STEPS)
            accuracies.append(round(100 * training.evaluate("test")["test_accuracy"], 3))
    return NetGrid(model=case.model, setting=facts, clip=clip, rate=rate, accuracies=tuple(accuracies))


def _pairs(case: ClassCase, data_dir: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of training images, halved in width and height and flattened, and their labels."""
    images, labels = training_records(case.dataset, data_dir)
    small = avg_pool2d(torch.from_numpy(images), 2).numpy()[:, 0]
    random = np.random.default_rng(0)
    first, second = (random.permutation(len(labels))[: _TRAIN + _HELD] for _ in range(2))
    both = np.concatenate([small[first], small[second]], axis=2).reshape(len(first), -1)
    return both, 10 * (labels[first] % (case.classes // 10)) + labels[second]


def loss_of_rule(case: ClassCase, grid: NetGrid, *, classes: int) -> float:
    """Return the points that a situation loses at the rate that the prior says for this number of classes."""
    return loss_at(grid, _rule(case, grid, classes=classes))


def exponent(grids: Mapping[ClassCase, NetGrid]) -> float:
    """Return the exponent of the number of classes with the least mean loss.

    The rates start from the best one of the same situation with ten classes, so that only the classes count.
    """
    starts = {}
    for case, grid in grids.items():
        ten = replace(case, classes=FITTED_CLASSES)
        starts[case] = _rule(case, grid) + best_factor(grids[ten]) - _rule(ten, grids[ten])

    def mean_loss(value: float) -> float:
        losses = (
            loss_at(grid, starts[case] + value * _log_classes(case) + shift)
            for case, grid in grids.items()
            for shift in _SHIFTS
        )
        return fmean(loss / (1 + loss / 10) for loss in losses)

    return min(np.linspace(0.0, 1.0, 41).tolist(), key=mean_loss)


def _log_classes(case: ClassCase) -> float:
    return math.log(case.classes / FITTED_CLASSES)


def _rule(case: ClassCase, grid: NetGrid, *, classes: int = FITTED_CLASSES) -> float:
    """Return the logarithm of the factor of the linear rate that the prior says for the model with so many classes."""
    facts, family = dict(grid.setting), "linear"
    if case.model != _LINEAR:  # it counts as no wider than `mlp_64`
        facts["dimension"] = 64 * grid.setting["dimension"] / case.classes + 65 * case.classes
        family = "other"
    rate, clip = _asked(case, facts, family, classes=classes)
    return math.log(rate * clip / (grid.rate * grid.clip))


def _asked(case: ClassCase, facts: Mapping[str, float], family: str, *, classes: int) -> tuple[float, float]:
    """Return the prior's rate and clip for as many parameters, but this number of classes."""
    with leaving_out(case.dataset):
        found = recommend(Setting(**{**facts, "classes": classes}, family=family))  # type: ignore[arg-type]
    return found["learning_rate"].value, found["max_grad_norm"].value
