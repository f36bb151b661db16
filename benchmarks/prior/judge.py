"""The prior against an oracle: one run at its values, and the best of a grid on the same validation records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import avg_pool2d

from benchmarks.prior.records import training_records
from benchmarks.prior.situations import CLIPS, PRODUCTS
from benchmarks.prior.training import Problem, train
from search_spaces.prior import Setting, leaving_out, recommend
from tuner.privacy.accountant.pld import calibrate_noise

__all__ = ["EPSILONS", "Case", "Judged", "Oracle", "judge_case", "oracle_of"]

EPSILONS = (0.3, 1.0, 3.0, 8.0)
DELTA = 1e-5
_RECORDS = 12_000  # records of a large data set that are used, to save time
_WIDE = 20_000  # parameters above which 3000 records, a grid of 16 and one sequence are used, to save time
_SIDE = 16  # larger colour images are pooled to this side


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set with all its features at one total ε; 10 epochs of batches of 7.6 % of the records, at least 64."""

    dataset: str
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The best of the grid of rates and clips in a case. It knows the validation records of every run of the grid.

    Attributes:
        train_size: number of training records.
        held: number of validation records.
        dimension: number of parameters.
        classes: number of classes.
        batch_size: expected batch size.
        steps: number of steps.
        noise_multiplier: calibrated noise.
        rate: best learning rate.
        clip: best clipping norm.
        runs: validation accuracies in percent at these two, one a sequence of batches and noise.
        seconds: duration.
    """

    train_size: int
    held: int
    dimension: int
    classes: int
    batch_size: int
    steps: int
    noise_multiplier: float
    rate: float
    clip: float
    runs: tuple[float, ...]
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One run at the prior's values, on the oracle's sequences; the prior was fitted without the case's data set.

    Attributes:
        rate: the prior's learning rate.
        clip: its clipping norm.
        runs: validation accuracies in percent.
        at_clip_one: mean accuracy at the prior's rate for a clip that is fixed at 1.
        middle: mean accuracy at rate 1 and clip 1, the middle of a space from 0.1 to 10.
    """

    rate: float
    clip: float
    runs: tuple[float, ...]
    at_clip_one: float
    middle: float


def whole_problem(dataset: str, data_dir: str | None) -> Problem:
    """Return the data set with a tenth of its records held out, or two fifths if it has fewer than 2000."""
    x, y = training_records(dataset, data_dir)
    wide = x[0].size * (int(y.max()) + 1) > _WIDE and x.ndim == 2
    x, y = (part[: 3000 if wide else _RECORDS] for part in (x, y))
    inputs = torch.from_numpy(x)
    if inputs.ndim == 4:
        inputs = avg_pool2d(inputs, 2 if inputs.shape[2] > 2 * _SIDE - 1 else 1).flatten(1)
    n = round(len(y) * (0.9 if len(y) >= 2000 else 0.6))
    labels = torch.from_numpy(y)
    return Problem(x=inputs[:n], y=labels[:n], x_held=inputs[n:], y_held=labels[n:], classes=int(np.max(y)) + 1)


def oracle_of(case: Case, data_dir: str | None) -> Oracle:
    """Train the grid."""
    problem = whole_problem(case.dataset, data_dir)
    n = len(problem.y)
    batch = min(n, max(64, round(0.0759 * n)))
    steps = round(10 * n / batch)
    noise = calibrate_noise(sample_rate=batch / n, steps=steps, epsilon=case.epsilon, delta=DELTA)
    thin = 2 if problem.dimension > _WIDE else 1
    pairs = [(product / clip, clip) for product in PRODUCTS[::thin] for clip in CLIPS[1 if thin == 2 else 0 :: thin]]
    found = _runs(problem, pairs, noise=noise, batch=batch, steps=steps)
    best = int(found.mean(0).argmax())
    return Oracle(
        train_size=n,
        held=len(problem.y_held),
        dimension=problem.dimension,
        classes=problem.classes,
        batch_size=batch,
        steps=steps,
        noise_multiplier=noise,
        rate=pairs[best][0],
        clip=pairs[best][1],
        runs=tuple(found[:, best].tolist()),
    )


def judge_case(case: Case, oracle: Oracle, data_dir: str | None) -> Judged:
    """Train at the prior's values, at its rate for a clip of 1, and in the middle of the space."""
    problem = whole_problem(case.dataset, data_dir)
    setting = Setting(
        noise_multiplier=oracle.noise_multiplier,
        batch_size=oracle.batch_size,
        steps=oracle.steps,
        train_size=oracle.train_size,
        dimension=oracle.dimension,
        classes=oracle.classes,
        family="linear",
    )
    with leaving_out(case.dataset):
        chosen = recommend(setting)
        fixed = recommend(setting, given={"max_grad_norm": 1.0})["learning_rate"].value
    rate, clip = (chosen[name].value for name in ("learning_rate", "max_grad_norm"))
    pairs = [(rate, clip), (fixed, 1.0), (1.0, 1.0)]
    found = _runs(problem, pairs, noise=oracle.noise_multiplier, batch=oracle.batch_size, steps=oracle.steps)
    means = found.mean(0).tolist()
    return Judged(rate=rate, clip=clip, runs=tuple(found[:, 0].tolist()), at_clip_one=means[1], middle=means[2])


def _runs(
    problem: Problem, pairs: Sequence[tuple[float, float]], *, noise: float, batch: int, steps: int
) -> torch.Tensor:
    """Return the accuracies of pairs of rate and clip, shape (sequences, pairs)."""
    return torch.stack(
        [
            train(
                problem,
                rates=torch.tensor([rate for rate, _ in pairs]),
                clips=torch.tensor([clip for _, clip in pairs]),
                noise_multiplier=noise,
                batch_size=batch,
                steps=steps,
                seed=77_000 + sequence,
            )
            for sequence in range(_sequences(problem))
        ]
    )


def _sequences(problem: Problem) -> int:
    """Return the number of sequences of batches and noise: more where they are cheap and the validation set small."""
    if problem.dimension > _WIDE:
        return 1
    return 8 if len(problem.y) < 2000 else 3
