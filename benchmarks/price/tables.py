"""Tables of measured trainings, from which searches are simulated in seconds instead of hours.

A table holds the accuracies of a grid of configurations in one random situation on public records, at several noises
and after several fractions of the training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch

from benchmarks.prior.situations import Situation, prepared
from benchmarks.prior.training import Extras, train
from tuner.experiment.prior import estimated_noise

__all__ = ["DATASETS", "DELTA", "EPSILONS", "FRACTIONS", "MULTIPLES", "Case", "Measured", "cases", "measure"]

DATASETS = ("digits", "mnist", "adult", "fashion_mnist", "breast_cancer_wisconsin", "cifar10_10k2k", "kddcup", "iris")
"""Data sets of the prior without those of the workloads that are looked at once."""

MULTIPLES = (1.0, 1.8, 3.3, 6.0, 11.0)
"""Noises of the trainings, as multiples of the noise of one run that has the whole budget."""

FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Fractions of the training at which the accuracies are measured."""

EPSILONS = (0.3, 1.0, 3.0, 8.0)
DELTA = 1e-5
_RATES = tuple(float(value) for value in np.geomspace(0.1, 10, 9))
_CLIPS = tuple(float(value) for value in np.geomspace(0.1, 10, 5))
_SIGMAS = (0.0, 1.0, 3.0)
_OPERATIONS = 6e9  # of one sequence of batches
_LEAST_STEPS, _MOST_STEPS = 30, 250
_LEAST_RECORDS, _MOST_PARAMETERS = 150, 30_000
_LEAST_HELD = 600
_REPEATS = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """One random situation: everything else follows from it.

    Attributes:
        dataset: name of the public records.
        family: `linear`, or `other` for one hidden layer.
        epsilon: total ε.
        axes: number of searched parameters: 2 for rate and clip, 3 with the Laplacian σ.
        seed: seed of the records, features, batch size and number of steps.
    """

    dataset: str
    family: str
    epsilon: float
    axes: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Public facts of a case, and its accuracies in percent.

    Attributes:
        train_size: number of training records; 0 if the case has too few and was not measured.
        held: number of records on which accuracies are measured.
        classes: number of classes.
        dimension: number of trainable parameters.
        batch_size: expected batch size.
        steps: steps of a whole run.
        noise_multiplier: noise of one run that has the whole budget.
        accuracies: shape (multiples, sequences, fractions, configurations), nested.
    """

    train_size: int
    held: int = 0
    classes: int = 0
    dimension: int = 0
    batch_size: float = 0.0
    steps: int = 0
    noise_multiplier: float = 0.0
    accuracies: tuple[tuple[tuple[tuple[float, ...], ...], ...], ...] = ()
    seconds: float = 0.0


def cases(count: int) -> list[Case]:
    """Return the first `count` cases of the endless list. One of five is a network, one of five has three axes."""
    found = []
    for seed in range(count):
        turn = seed // len(DATASETS) + seed
        found.append(
            Case(
                dataset=DATASETS[seed % len(DATASETS)],
                family="other" if seed % 5 == 4 else "linear",
                epsilon=EPSILONS[turn % len(EPSILONS)],
                axes=3 if seed % 5 == 2 else 2,
                seed=seed,
            )
        )
    return found


def noise_at(noise: float, multiple: float) -> float:
    """Return the noise with which a step has the squared loss of one with `noise`, divided by multiple²."""
    return 1 / math.sqrt(math.log1p(math.expm1(1 / noise**2) / multiple**2))


def grid(axes: int) -> dict[str, tuple[float, ...]]:
    """Return the values of each searched parameter. All combinations are trained."""
    found = {"learning_rate": _RATES, "max_grad_norm": _CLIPS}
    return found if axes == 2 else {**found, "laplacian_sigma": _SIGMAS}


def measure(case: Case, data_dir: str | None) -> Measured:
    """Train the grid at every noise."""
    rng = np.random.default_rng([15, case.seed])
    problem = prepared(
        Situation(dataset=case.dataset, family=case.family, optimizer="sgd", seed=case.seed), rng, data_dir
    )
    n = len(problem.y)
    if n < _LEAST_RECORDS or problem.dimension > _MOST_PARAMETERS:
        return Measured(train_size=0)
    points = torch.tensor(list(product(*grid(case.axes).values())))
    batch = max(8.0, n * math.exp(rng.uniform(math.log(0.01), math.log(0.5))))
    epochs = math.exp(rng.uniform(math.log(2), math.log(40)))
    cost = 4 * problem.dimension * len(points)  # of one record
    held = max(_LEAST_HELD, int(_OPERATIONS / 10 / cost))  # scoring more would take most of the time
    problem = replace(problem, x_held=problem.x_held[:held], y_held=problem.y_held[:held])
    batch = min(batch, _OPERATIONS / cost / 16)
    steps = max(16, min(round(epochs * n / batch), _MOST_STEPS, int(_OPERATIONS / (cost * batch))))
    if steps < _LEAST_STEPS:
        return Measured(train_size=0)
    noise = estimated_noise(epsilon=case.epsilon, delta=DELTA, sample_rate=min(1.0, batch / n), steps=steps)

    extras = Extras(laplacian_sigma=points[:, 2].contiguous()) if case.axes == 3 else None
    found = [
        [
            train(
                problem,
                rates=points[:, 0].contiguous(),
                clips=points[:, 1].contiguous(),
                noise_multiplier=noise_at(noise, multiple),
                batch_size=batch,
                steps=steps,
                extras=extras,
                seed=100_000 * case.seed + 1000 * place + repeat,
                rungs=[max(1, round(fraction * steps)) for fraction in FRACTIONS],
            )
            for repeat in range(_REPEATS)
        ]
        for place, multiple in enumerate(MULTIPLES)
    ]
    return Measured(
        train_size=n,
        held=len(problem.y_held),
        classes=problem.classes,
        dimension=problem.dimension,
        batch_size=batch,
        steps=steps,
        noise_multiplier=noise,
        accuracies=tuple(
            tuple(tuple(tuple(round(float(v), 2) for v in row) for row in one) for one in some) for some in found
        ),
    )
