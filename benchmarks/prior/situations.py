"""Random situations of a private training, and the accuracies of a grid of rates and clipping norms in each."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import avg_pool2d

from benchmarks.prior.records import FITTED, training_records
from benchmarks.prior.training import Problem, train

PRODUCTS = tuple(float(value) for value in np.geomspace(0.005, 300, 15))
"""Grid of the learning rate times the clipping norm."""

RATES = tuple(float(value) for value in np.geomspace(1e-4, 3, 15))
"""Grid of Adam's learning rates, whose steps do not depend on the scale of the gradient."""

CLIPS = (0.1, 0.4, 1.6, 6.4)
"""Grid of clipping norms."""

_OPERATIONS = 2e10  # of one sequence of batches
_HELD = 3000


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One random situation: everything else follows from these."""

    dataset: str
    family: str  # linear or other (one hidden layer)
    optimizer: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Public facts of a situation, and the accuracies on its validation records in percent.

    Attributes:
        train_size: n, number of training records.
        features: number of inputs of the model.
        classes: number of classes.
        dimension: number of trainable parameters.
        batch_size: expected batch size.
        steps: number of steps.
        noise_multiplier: noise of a step, divided by the clipping norm.
        held: number of validation records.
        repeats: number of sequences of batches and noise; the accuracies are means over them.
        norm: mean length of an input; for a reader only, because it is not public of private records.
        grid: products of rate and clip (Adam: rates).
        accuracies: flat table of the averaged weights, products × clips.
        last: the same of the last weights.
        seconds: duration.
    """

    train_size: int
    features: int
    classes: int
    dimension: int
    batch_size: float
    steps: int
    noise_multiplier: float
    held: int
    repeats: int
    norm: float
    grid: tuple[float, ...]
    accuracies: tuple[float, ...]
    last: tuple[float, ...]
    seconds: float = 0.0


def situations(count: int) -> list[Situation]:
    """Return the first `count` situations of the endless list: two of three are linear with SGD."""
    kinds = (("linear", "sgd"), ("linear", "sgd"), ("linear", "adam"), ("linear", "sgd"), ("other", "sgd"))
    found = []
    for seed in range(count):
        family, optimizer = kinds[(seed // len(FITTED)) % len(kinds)]
        found.append(Situation(dataset=FITTED[seed % len(FITTED)], family=family, optimizer=optimizer, seed=seed))
    return found


def noise_of(mu: float, sample_rate: float, steps: int) -> float:
    """Return about the noise with which the steps are μ-GDP (Bu et al. 2020, the central limit theorem)."""
    return 1 / math.sqrt(math.log1p((mu / sample_rate) ** 2 / steps))


def prepared(situation: Situation, rng: np.random.Generator, data_dir: str | None) -> Problem:
    """Return random records of the data set with random features: all, pooled, some, or more by random ReLUs."""
    x, y = training_records(situation.dataset, data_dir)
    if x.ndim == 4:
        size = x.shape[2]
        pool = int(rng.choice([each for each in (1, 2, 4) if size // each >= 7]))
        inputs = avg_pool2d(torch.from_numpy(x), pool).flatten(1)
    else:
        inputs = torch.from_numpy(x)
        if rng.uniform() < 0.3 and inputs.shape[1] >= 8:
            kept = rng.permutation(inputs.shape[1])[: int(inputs.shape[1] * rng.uniform(0.4, 1))]
            inputs = inputs[:, torch.from_numpy(np.sort(kept))]
    n = int(math.exp(rng.uniform(math.log(max(60, 0.02 * len(y))), math.log(min(0.8 * len(y), 20_000)))))
    chosen = torch.from_numpy(rng.permutation(len(y)))[: n + max(_HELD, 0)]
    inputs, labels = inputs[chosen], torch.from_numpy(y)[chosen]
    if rng.uniform() < 0.25:
        wide = inputs.shape[1]
        width = int(min(1500, wide * rng.uniform(1, 8)))
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        inputs = (inputs @ (torch.randn(wide, width, generator=generator) * (2 / width) ** 0.5)).relu_()
    if rng.uniform() < 0.3:
        inputs = inputs * math.exp(rng.uniform(-math.log(2), math.log(2)))
    hidden = int(rng.choice([16, 32, 64])) if situation.family == "other" else 0
    return Problem(
        x=inputs[:n], y=labels[:n], x_held=inputs[n:], y_held=labels[n:], classes=int(y.max()) + 1, hidden=hidden
    )


def measure(situation: Situation, data_dir: str | None) -> Measured:
    """Train the grid in a situation."""
    begun = time.perf_counter()
    rng = np.random.default_rng(situation.seed)
    problem = prepared(situation, rng, data_dir)
    n = len(problem.y)
    batch = max(4.0, n * math.exp(rng.uniform(math.log(0.01), 0)))
    epochs = math.exp(rng.uniform(math.log(1), math.log(40)))
    mu = math.exp(rng.uniform(math.log(0.04), math.log(3)))
    copies = len(PRODUCTS) * len(CLIPS)
    cost = 4 * problem.dimension * copies  # of one record
    batch = max(4.0, min(batch, _OPERATIONS / cost / 15))
    cost *= batch
    steps = max(4, min(round(epochs * n / batch), 1500, int(_OPERATIONS / cost)))
    noise = noise_of(mu, batch / n, steps)
    grid = PRODUCTS if situation.optimizer == "sgd" else RATES
    pairs = [(value, clip) for value in grid for clip in CLIPS]
    clips = torch.tensor([clip for _, clip in pairs])
    rates = torch.tensor([value for value, _ in pairs])
    if situation.optimizer == "sgd":
        rates = rates / clips
    repeats = int(min(6, max(1, _OPERATIONS / (cost * steps))))
    accuracies = torch.stack(
        [
            train(
                problem,
                rates=rates,
                clips=clips,
                noise_multiplier=noise,
                batch_size=batch,
                steps=steps,
                optimizer=situation.optimizer,
                seed=1000 * situation.seed + repeat,
                last=True,
            )
            for repeat in range(repeats)
        ]
    )
    averaged, last = (tuple(round(float(value), 3) for value in row) for row in accuracies.mean(0))
    return Measured(
        train_size=n,
        features=problem.x.shape[1],
        classes=problem.classes,
        dimension=problem.dimension,
        batch_size=batch,
        steps=steps,
        noise_multiplier=noise,
        held=len(problem.y_held),
        repeats=repeats,
        norm=float(problem.x[:2000].norm(dim=1).mean()),
        grid=grid,
        accuracies=averaged,
        last=last,
        seconds=time.perf_counter() - begun,
    )
