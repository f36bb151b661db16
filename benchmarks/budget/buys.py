"""The test accuracy that a total ε buys: one run at published settings, and three ways to search.

Every arm has the same records (a tenth of the training records validates, outside the guarantee), the same space, the
same number of trials, and the product's plan, driver and ledger. The plan calibrates the noise for the whole arm, so ε
is the total. The test set is scored once for each arm and seed, with the winner's model. The noise is seeded so that
the table can be repeated: the numbers measure accuracy on public data and release nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.budget.arms import ARMS, Outcome, Run, Workload, train
from benchmarks.harness import Figure, Kept, Results, Settings, Table

EPSILONS = (0.3, 1.0, 3.0, 8.0)

_SPACE = {"learning_rate": {"log_uniform": [0.1, 10.0]}, "max_grad_norm": {"log_uniform": [0.1, 10.0]}}
_MIDDLE = {"learning_rate": 1.0, "max_grad_norm": 1.0}

WORKLOADS = (
    Workload(
        name="MNIST, logistic regression",
        dataset="mnist",
        proxy="fashion_mnist",
        model="logistic_regression",
        batch_size=4096,
        epochs=10,
        trials=12,
        space=_SPACE,
        middle=_MIDDLE,
        published=(  # DP-LSSGD paper, §4.1: batch 128, 50 epochs, rate 1/t, L2 1e-4, σ = 1, G = 1
            {"method": "composed", "batch_size": 128, "epochs": 50},
            {
                "laplacian_sigma": 1.0,
                "weight_decay": 1e-4,
                "weight_decay_mode": "before_clipping",
                "smoothing_radius": 0,
                "smoothing_samples": 1,
                "learning_rate": 1.0,
                "max_grad_norm": 1.0,
                # 1 / (1 + decay · step / steps) is their 1/t when the decay is the number of steps.
                "schedule": {"inverse_time": {"decay": 21_094}},
            },
        ),
        seeds=5,
    ),
    Workload(
        name="Fashion-MNIST, tutorial CNN",
        dataset="fashion_mnist",
        proxy="mnist",
        model="tutorial_cnn",
        batch_size=1024,
        epochs=5,
        trials=8,
        space=_SPACE,
        middle=_MIDDLE,
        published=(  # DPLIS paper, Table 1: batch 256, rate 0.1536, C = 1; the epochs are those of the other arms
            {"method": "dp_sgd", "batch_size": 256, "epochs": 5},
            {"learning_rate": 0.1536, "max_grad_norm": 1.0},
        ),
        seeds=2,
    ),
)


def runs_of() -> Iterator[Run]:
    """Yield all runs of the tables, seed by seed, so that an interrupted benchmark has some complete seeds."""
    for workload in WORKLOADS:
        for seed, epsilon, arm in product(range(1, workload.seeds + 1), EPSILONS, ARMS):
            yield Run(workload=workload.name, arm=arm, epsilon=epsilon, seed=seed)


def measure(settings: Settings, results: Results) -> None:
    """Train what is missing, and add the tables, also when a training fails."""
    kept = Kept(settings.out / "buys.jsonl", Run, Outcome)
    try:
        kept.complete(runs_of(), partial(_perform, settings.data_dir), jobs=settings.jobs)
    finally:
        _report(kept.read(), results)


def _perform(data_dir: str | None, run: Run) -> Outcome:
    """Train one run in a temporary folder."""
    workload = next(workload for workload in WORKLOADS if workload.name == run.workload)
    with tempfile.TemporaryDirectory() as inside:
        return train(workload, run, Path(inside), data_dir)


def _report(known: Mapping[Run, Outcome], results: Results) -> None:
    """Add the tables and figures of all results."""
    results.count("buys.missing", sum(run not in known for run in runs_of()))
    columns = ("", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    for workload in WORKLOADS:
        scores, noises = [], []
        for arm, words in ARMS.items():
            found = {
                epsilon: [
                    outcome
                    for run, outcome in known.items()
                    if (run.workload, run.arm, run.epsilon) == (workload.name, arm, epsilon)
                ]
                for epsilon in EPSILONS
            }
            scores.append((words, *(_score(workload, arm, *each, results) for each in found.items())))
            noises.append((words, *(_noise(outcomes) for outcomes in found.values())))
        results.tables[f"{workload.name}: test accuracy, %"] = Table(columns, tuple(scores))
        results.tables[f"{workload.name}: noise multiplier"] = Table(columns, tuple(noises))


def _score(workload: Workload, arm: str, epsilon: float, outcomes: list[Outcome], results: Results) -> str:
    """Return mean and standard error over the seeds, and the number of seeds if some are missing."""
    if not outcomes:
        return "–"
    figure = Figure.mean_of([outcome.test for outcome in outcomes], "%")
    results.figures[f"buys.{workload.dataset}.{arm}.{epsilon:g}"] = figure
    missing = f" ({len(outcomes)} of {workload.seeds})" if len(outcomes) < workload.seeds else ""
    return figure.plus_minus() + missing


def _noise(outcomes: list[Outcome]) -> str:
    return ", ".join(f"{noise:.3g}" for noise in sorted({outcome.noise_multiplier for outcome in outcomes})) or "–"
