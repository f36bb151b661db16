"""What R, σ and λ add in the measured situations of linear models, and which batch sizes and epochs are best."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.prior.situations import CLIPS, Measured, Situation, noise_of, prepared
from benchmarks.prior.training import Extras, train

__all__ = ["LENGTHS", "LEVELS", "Gains", "LengthCase", "Lengths", "gains_of", "length_cases", "lengths_of"]

LEVELS: Mapping[str, tuple[float, ...]] = {
    "weight_decay": (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    "laplacian_sigma": (0.0, 0.5, 1.0, 2.0, 4.0),
    "smoothing_radius": (0.0, 1.0, 4.0, 16.0, 64.0),
}
"""Values of each parameter that are tried; 0 is DP-SGD."""

_RATES = (0.4, 1.0, 2.5)  # times the best rate of DP-SGD, because a method moves it
_CLIP = CLIPS[1]
_SAMPLES = 3  # K


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Accuracy of each level at its best rate, minus that of level 0, in points; in the order of LEVELS."""

    weight_decay: tuple[float, ...]
    laplacian_sigma: tuple[float, ...]
    smoothing_radius: tuple[float, ...]
    seconds: float = 0.0


def gains_of(situation: Situation, measured: Measured, data_dir: str | None) -> Gains:
    """Train the levels of every parameter in a situation of a linear model with SGD."""
    problem = prepared(situation, np.random.default_rng(situation.seed), data_dir)
    table = torch.tensor(measured.accuracies).view(len(measured.grid), len(CLIPS))
    product = measured.grid[int(table[:, 1].argmax())]
    found: dict[str, tuple[float, ...]] = {}
    begun = time.perf_counter()
    for name, levels in LEVELS.items():
        pairs = [(level, product * factor / _CLIP) for level in levels for factor in _RATES]
        values = torch.tensor([level for level, _ in pairs])
        runs = [
            train(
                problem,
                rates=torch.tensor([rate for _, rate in pairs]),
                clips=torch.full((len(pairs),), _CLIP),
                noise_multiplier=measured.noise_multiplier,
                batch_size=measured.batch_size,
                steps=measured.steps,
                extras=Extras(**{name: values}, smoothing_samples=_SAMPLES),  # type: ignore[arg-type]
                seed=1000 * situation.seed + 500 + repeat,
            )
            for repeat in range(min(3, measured.repeats))
        ]
        best = torch.stack(runs).mean(0).view(len(levels), len(_RATES)).amax(1)
        found[name] = tuple(round(float(value), 3) for value in best - best[0])
    return Gains(**found, seconds=time.perf_counter() - begun)


LENGTHS = tuple((rate, epochs) for rate in (0.01, 0.03, 0.1, 0.3, 1.0) for epochs in (1.0, 4.0, 16.0, 64.0))
"""Sample rates and epochs that are tried at one budget."""

_PRODUCTS = tuple(float(value) for value in np.geomspace(0.01, 100, 9))
_OPERATIONS = 6e10  # of the dearest length that is tried


@dataclass(frozen=True, kw_only=True)
class LengthCase:
    """A random choice of records and features of a data set, at one budget μ of Gaussian privacy."""

    dataset: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Best accuracy of each sample rate and number of epochs, in the order of LENGTHS; NaN if too dear."""

    mu: float
    train_size: int
    dimension: int
    accuracies: tuple[float, ...]
    seconds: float = 0.0


def length_cases(datasets: tuple[str, ...], each: int) -> list[LengthCase]:
    """Return `each` cases of every data set."""
    return [
        LengthCase(dataset=name, seed=9000 + 100 * place + seed)
        for seed in range(each)
        for place, name in enumerate(datasets)
    ]


def lengths_of(case: LengthCase, data_dir: str | None) -> Lengths:
    """Train every length at the noise of the budget, with nine rates each."""
    rng = np.random.default_rng(case.seed)
    run = Situation(dataset=case.dataset, family="linear", optimizer="sgd", seed=case.seed)
    problem = prepared(run, rng, data_dir)
    mu = math.exp(rng.uniform(math.log(0.04), math.log(3)))
    n = len(problem.y)
    clips = torch.full((len(_PRODUCTS),), _CLIP)
    found, begun = [], time.perf_counter()
    for sample_rate, epochs in LENGTHS:
        steps = max(1, round(epochs / sample_rate))
        cost = 4 * n * epochs * problem.dimension * len(_PRODUCTS) + steps * problem.dimension * 200.0
        if cost > _OPERATIONS / len(LENGTHS) * 4 or n * sample_rate < 2 or steps > 1000:
            found.append(math.nan)
            continue
        runs = [
            train(
                problem,
                rates=torch.tensor(_PRODUCTS) / _CLIP,
                clips=clips,
                noise_multiplier=noise_of(mu, sample_rate, steps),
                batch_size=sample_rate * n,
                steps=steps,
                seed=1000 * case.seed + repeat,
            )
            for repeat in range(2 if cost < 1e9 else 1)
        ]
        found.append(round(float(torch.stack(runs).mean(0).max()), 3))
    return Lengths(
        mu=mu,
        train_size=n,
        dimension=problem.dimension,
        accuracies=tuple(found),
        seconds=time.perf_counter() - begun,
    )
