"""MNIST logistic regression on the official test set: DP-SGD and DP-LSSGD at two budgets, with several seeds.

    python -m benchmarks.mnist_logistic --data-dir DATA [--only SECTION ...] [--seeds 5] [--quick] [--json]

Sections: `accuracy` trains on the 60 000 official training records with the settings of this file, and shows Table 2 of
the DP-LSSGD paper (version 1) next to the results; `rates` chooses the learning rates on a validation split of the
training records, in five minutes. Poisson batches, add/remove-one adjacency, δ = 1e-5, noise calibrated by a privacy
loss distribution. The noise is seeded so that the table can be repeated: the numbers measure accuracy on public data
and release nothing.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys

from benchmarks.harness import Benchmark, Figure, Results, Section, Settings, Table, at_least, run
from trainables.charge import NoCharge
from trainables.data import DatasetRequest, public_train_size
from trainables.training import PrivateTraining, TrainingSpec
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise
from tuner.privacy.accountant.pld import epsilon as epsilon_of

DELTA, BATCH_SIZE, EPOCHS = 1e-5, 4096, 10
EPSILONS, SIGMAS = (0.3, 0.1), (0.0, 1.0, 3.0)
LEARNING_RATE = {0.3: 8.0, 0.1: 2.5}
TRIED_RATES = (1.0, 2.0, 2.5, 3.0, 4.0, 8.0, 16.0)
PUBLISHED = {
    (0.3, 0.0): 81.74,
    (0.3, 1.0): 84.21,
    (0.3, 3.0): 85.11,
    (0.1, 0.0): 73.49,
    (0.1, 1.0): 76.29,
    (0.1, 3.0): 77.13,
}
"""(ε, σ) → the DP-SGD row of Table 2, or the best of σ = 1, 2, 3, in percent."""
LIMITS = {0.3: 88.5, 0.1: 87.5}


def train(request: DatasetRequest, *, epsilon: float, sigma: float, rate: float, seed: int) -> tuple[float, float]:
    """Train once; return the accuracy in percent, and the ε of the steps.

    The accuracy is on the validation split, or on the test set if the request has no such split.
    """
    n = public_train_size(request)
    steps = round(EPOCHS * n / BATCH_SIZE)
    noise = calibrate_noise(sample_rate=BATCH_SIZE / n, steps=steps, epsilon=epsilon, delta=DELTA)
    spec = TrainingSpec(
        method="dp_lssgd",
        model="logistic_regression",
        dataset=request,
        batch_size=BATCH_SIZE,
        steps=steps,
        noise_multiplier=noise,
        sample_rate=BATCH_SIZE / n,
        parameters={"laplacian_sigma": sigma, "learning_rate": rate, "max_grad_norm": 1.0},
        seed=seed,
        private=False,
        noise_seed=1000 + seed,
        threads=1,
    )
    charge = NoCharge()
    training = PrivateTraining(spec, charge)
    training.run_to(steps)
    split = "validation" if request.validation_fraction else "test"
    accuracy = 100 * training.evaluate(split)[f"{split}_accuracy"]
    return accuracy, epsilon_of(SampledGaussian(BATCH_SIZE / n, noise), charge.leased(), DELTA)


def accuracies(settings: Settings, results: Results) -> None:
    """Measure the test accuracy of every σ at every ε."""
    request = DatasetRequest(name="mnist", data_dir=settings.data_dir, validation_fraction=0.0)
    seeds = 1 if settings.quick else settings.own.seeds
    rows = []
    for epsilon, sigma in itertools.product(EPSILONS, SIGMAS):
        rate = LEARNING_RATE[epsilon]
        runs = [train(request, epsilon=epsilon, sigma=sigma, rate=rate, seed=seed) for seed in range(seeds)]
        found = [accuracy for accuracy, _ in runs]
        deviation = statistics.stdev(found) if seeds > 1 else 0.0
        note = f"standard deviation {deviation:.2f} over {seeds} seeds"
        results.figures[_name(epsilon, sigma)] = Figure(statistics.mean(found), "%", note=note)
        mean = f"{statistics.mean(found):.2f} ± {deviation:.2f}"
        spent, published = f"{runs[0][1]:.4f}", f"{PUBLISHED[epsilon, sigma]:.2f}"
        rows.append((epsilon, spent, sigma, mean, f"{min(found):.2f}", published))
    columns = ("ε", "ε of the steps", "σ", "test accuracy, %", "lowest", "published, %")
    title = f"MNIST, logistic regression, batch {BATCH_SIZE}, {EPOCHS} epochs, C = 1, δ = {DELTA}, {seeds} seeds"
    results.tables[title] = Table(columns, tuple(rows))


def rates(settings: Settings, results: Results) -> None:
    """Measure the validation accuracy of every learning rate without smoothing, over eight seeds."""
    request = DatasetRequest(name="mnist", data_dir=settings.data_dir, validation_fraction=1 / 6)
    rows = []
    for epsilon, rate in itertools.product(EPSILONS, TRIED_RATES):
        found = [train(request, epsilon=epsilon, sigma=0.0, rate=rate, seed=seed)[0] for seed in range(8)]
        rows.append((epsilon, rate, f"{statistics.mean(found):.2f}"))
    results.tables["Validation accuracy at σ = 0"] = Table(("ε", "learning rate", "%"), tuple(rows))


def _name(epsilon: float, sigma: float) -> str:
    return f"test_accuracy.epsilon_{epsilon:g}.sigma_{sigma:g}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, metavar="N", default=5, help="number of seeds")


BENCHMARK = Benchmark(
    name="mnist_logistic",
    about=__doc__,
    sections={
        "accuracy": Section(
            measure=accuracies,
            bars={_name(epsilon, sigma): at_least(LIMITS[epsilon]) for epsilon in EPSILONS for sigma in SIGMAS},
            datasets=lambda _settings: ("mnist",),
        ),
        "rates": Section(measure=rates, quick=False, datasets=lambda _settings: ("mnist",)),
    },
    add_options=_add_options,
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
