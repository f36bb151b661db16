"""The default range of the learning rate against a wide grid: Adam on the MNIST network of the DP-LSSGD paper.

    python -m benchmarks.default_space --data-dir DATA [--optimizer adam] [--epsilon 3] [--quick] [--json]

An experiment file with `learning_rate: default` and the optimizer is resolved. A random search draws its rates from the
resolved range, and a grid has two rates a decade from 1e-4 to 1. All trainings have the noise of the whole search.
The bar: the best trial of the search is within one point of the best of the grid, on validation records. The noise is
seeded so that the table can be repeated: the numbers measure accuracy on public data and release nothing. About half an
hour on one core; `--quick` trains on 12 000 records, on a grid of whole decades, in a few minutes.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

from benchmarks.harness import Benchmark, Figure, Results, Section, Settings, Table, at_most, run
from search_spaces import LogUniform
from trainables.charge import NoCharge
from trainables.data import load_records, public_train_size
from trainables.training import PrivateTraining, TrainingSpec
from tuner.experiment import Experiment, parse_experiment
from tuner.privacy.accountant.pld import calibrate_noise

DELTA, SCORED = 1e-6, 6000


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the comparison: the trials of the search, the rates of the grid, and each training."""

    trials: int
    grid: Sequence[float]
    validation_fraction: float
    batch_size: int
    epochs: float


WHOLE = Size(
    trials=8,
    grid=[10 ** (each / 2) for each in range(-8, 1)],
    validation_fraction=0.1,
    batch_size=1024,
    epochs=5.0,
)
QUICK = Size(trials=4, grid=[1e-4, 1e-3, 1e-2, 1e-1, 1.0], validation_fraction=0.8, batch_size=512, epochs=4.0)


def experiment_of(size: Size, *, optimizer: str, epsilon: float) -> Experiment:
    """Return the experiment of the search, with its default range."""
    return parse_experiment(
        f"name: default-space\n"
        f"dataset: {{name: mnist, validation: {{fraction: {size.validation_fraction}}}}}\n"
        f"trainable: {{method: dp_sgd, model: tutorial_cnn, optimizer: {optimizer}, batch_size: {size.batch_size}, "
        f"epochs: {size.epochs}}}\n"
        f"privacy: {{epsilon: {epsilon}, delta: {DELTA}}}\n"
        f"search: {{trials: {size.trials}, space: {{learning_rate: default}}}}\n"
    )


def measure(settings: Settings, results: Results) -> None:
    """Train at every rate of the search and of the grid."""
    size, own = QUICK if settings.quick else WHOLE, settings.own
    experiment = experiment_of(size, optimizer=own.optimizer, epsilon=own.epsilon)
    domain = dict(experiment.space.parameters)["learning_rate"]
    if not isinstance(domain, LogUniform):
        raise TypeError(f"The default of learning_rate must be a range (got {domain!r}).")
    draw = random.Random(own.seed)
    drawn = sorted(exp(draw.uniform(log(domain.low), log(domain.high))) for _ in range(size.trials))
    request = experiment.dataset_request(settings.data_dir)
    splits = load_records(request)
    splits = replace(
        splits,
        x_validation=splits.x_validation[:SCORED],
        y_validation=splits.y_validation[:SCORED],
        x_test=splits.x_test[:0],
        y_test=splits.y_test[:0],
    )
    rate = size.batch_size / public_train_size(request)
    steps = round(size.epochs / rate)
    noise = calibrate_noise(sample_rate=rate, steps=steps * size.trials, epsilon=own.epsilon, delta=DELTA)

    def accuracy(learning_rate: float) -> float:
        spec = TrainingSpec(
            method="dp_sgd",
            model="tutorial_cnn",
            optimizer=own.optimizer,
            dataset=request,
            batch_size=size.batch_size,
            steps=steps,
            noise_multiplier=noise,
            sample_rate=rate,
            parameters={"learning_rate": learning_rate},
            private=False,
            noise_seed=1000 + own.seed,
            threads=1,
        )
        training = PrivateTraining(spec, NoCharge(), splits=splits)
        training.run_to(steps)
        return 100 * training.evaluate("validation")["validation_accuracy"]

    found = {
        name: [(each, accuracy(each)) for each in rates] for name, rates in (("search", drawn), ("grid", size.grid))
    }
    title = f"MNIST, tutorial_cnn, {own.optimizer}, noise {noise:.2f}, range {domain.low:g} to {domain.high:g}"
    rows = sorted((each, name, f"{score:.2f}") for name, scores in found.items() for each, score in scores)
    results.tables[title] = Table(
        ("learning rate", "of the", "validation accuracy, %"), tuple((f"{r:.3g}", *rest) for r, *rest in rows)
    )
    best = {name: max(score for _, score in scores) for name, scores in found.items()}
    note = f"best of the grid {best['grid']:.2f}, best of {size.trials} trials {best['search']:.2f}"
    results.figures["loss_of_the_default_space"] = Figure(best["grid"] - best["search"], "points", note=note)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--optimizer", choices=("sgd", "adam", "adam_corrected"), default="adam")
    parser.add_argument("--epsilon", type=float, metavar="E", default=3.0, help="ε of the search")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="seed of the draws and the noise")


BENCHMARK = Benchmark(
    name="default_space",
    about=__doc__,
    sections={
        "rate": Section(
            measure=measure,
            bars={"loss_of_the_default_space": at_most(1.0)},
            datasets=lambda _settings: ("mnist",),
        )
    },
    add_options=_add_options,
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
