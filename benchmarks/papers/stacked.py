"""Selection runs of linear models, many rates and σ at once on one sequence of batches and noise."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from benchmarks.papers.trainings import DELTA, Outcome, Run, noise_of, splits_of, steps_of
from benchmarks.prior.training import Extras, Problem, train
from trainables.data import DATASETS
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon as epsilon_of

__all__ = ["perform_together"]


def perform_together(runs: Sequence[Run], data_dir: str | None) -> list[Outcome]:
    """Train runs that differ in rate and σ alone, and score the validation records.

    The steps are those of the engine, in a fifth of the time; the draws of batches and noise differ.
    """
    first, begun = runs[0], time.process_time()
    torch.set_num_threads(1)
    splits = splits_of(first.request(data_dir), tested=False)
    rate, steps = steps_of(first)
    noise = noise_of(first)
    problem = Problem(
        x=splits.x_train.flatten(1),
        y=splits.y_train,
        x_held=splits.x_validation.flatten(1),
        y_held=splits.y_validation,
        classes=DATASETS[first.dataset].classes,
    )
    accuracies = train(
        problem,
        rates=torch.tensor([each.learning_rate for each in runs]),
        clips=torch.tensor([each.max_grad_norm for each in runs]),
        noise_multiplier=noise,
        batch_size=first.batch_size,
        steps=steps,
        extras=Extras(laplacian_sigma=torch.tensor([each.laplacian_sigma for each in runs])),
        seed=first.seed,
        last=True,
    )[1]  # of the last weights, which the papers score
    share = round((time.process_time() - begun) / len(runs), 2)
    spent = epsilon_of(SampledGaussian(rate, noise), steps, DELTA)
    return [
        Outcome(score=score, epsilon=spent, noise_multiplier=noise, steps=steps, cpu=share)
        for score in accuracies.tolist()
    ]
