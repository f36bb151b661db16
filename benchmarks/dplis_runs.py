"""What the DPLIS study trains: its settings, one run, and the file into which results go as runs finish."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from trainables import data
from trainables.data import DatasetRequest, Splits, public_train_size
from trainables.training import PrivateTraining, TrainingSpec
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import max_steps

__all__ = ["DELTA", "Results", "Run", "Study", "append", "measure", "read", "train"]

DELTA = 1e-5

Accuracies = tuple[float, ...]
"""Validation accuracy in percent at each of a run's scored steps; NaN where the training diverged."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training; two runs that are equal give the same numbers.

    Attributes:
        dataset: name of the data set.
        records: PUBLIC number of training records; the others are the validation split.
        model: name of the model.
        batch_size: expected.
        noise_multiplier: of every step.
        max_grad_norm: C.
        learning_rate: η, constant.
        smoothing_radius: R; 0 with 'mean' is DP-SGD.
        smoothing_samples: K.
        smoothing_reduction: 'mean' or 'sum'.
        seed: of initialisation, perturbations, batches and noise. Runs of one seed share all four, so that their
            differences are paired.
        scored: steps after which validation is scored, ascending; the last ends the run.
    """

    dataset: str
    records: int
    model: str
    batch_size: int
    noise_multiplier: float
    max_grad_norm: float
    learning_rate: float
    smoothing_radius: float
    smoothing_samples: int
    smoothing_reduction: str
    seed: int
    scored: tuple[int, ...]

    @property
    def work(self) -> int:
        """Passes over batches, to start long runs first."""
        return self.scored[-1] * (self.smoothing_samples if self.smoothing_radius else 1)

    @property
    def request(self) -> DatasetRequest:
        """The records: `records` of the official training set for training, all others for validation."""
        size = public_train_size(DatasetRequest(name=self.dataset, validation_fraction=0.0))
        return DatasetRequest(name=self.dataset, validation_fraction=1 - self.records / size)


Results = Mapping[Run, Accuracies]


@dataclass(frozen=True, kw_only=True)
class Study:
    """The fixed settings of one study.

    Attributes:
        name: in a heading.
        dataset: as in Run.
        records: as in Run.
        model: as in Run.
        batch_size: as in Run.
        noise_multiplier: as in Run.
        epsilons: budgets of the early and the late point; the steps follow from them.
        learning_rate: the published one.
        max_grad_norm: the published C.
        radii: the R > 0 that are compared, at the published rate.
        reductions: of the K gradients.
        smoothing_samples: K.
        rates: among which plain DP-SGD's best is chosen, ascending.
        tuned_radii: R for which DPLIS gets a rate of its own too, early and late; the early ones cost little.
        seeds: of what is compared.
        selection_seeds: others, with which rates are chosen.
    """

    name: str
    dataset: str = "mnist"
    records: int = 5_000
    model: str = "mlp_64"
    batch_size: int = 64
    noise_multiplier: float = 0.9
    epsilons: tuple[float, float] = (2.0, 10.0)
    learning_rate: float = 0.1536
    max_grad_norm: float = 1.0
    radii: tuple[float, ...] = (3.0, 10.0, 20.0, 40.0, 80.0)
    reductions: tuple[str, ...] = ("mean", "sum")
    smoothing_samples: int = 10
    rates: tuple[float, ...] = (0.0384, 0.0768, 0.1536, 0.3072, 0.6144, 1.2288)
    tuned_radii: tuple[tuple[float, ...], tuple[float, ...]] = ((3.0, 10.0, 20.0, 40.0, 80.0), (10.0, 40.0))
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    selection_seeds: tuple[int, ...] = (100, 101, 102)

    @property
    def mechanism(self) -> SampledGaussian:
        """One step, for the accountant."""
        return SampledGaussian(self.batch_size / self.records, self.noise_multiplier)

    @property
    def steps(self) -> tuple[int, int]:
        """The most steps that fit each ε (add/remove one, privacy loss distribution)."""
        early, late = (_steps(self.mechanism, epsilon) for epsilon in self.epsilons)
        return early, late

    def run(self, *, radius: float, reduction: str, learning_rate: float, seed: int, scored: tuple[int, ...]) -> Run:
        """A run of this study at its C.

        `sum` without smoothing is run as what it is: DP-SGD that clips at C/K and steps at K times the rate. K equal
        gradients sum to K·g_i, and K·g_i clipped at C is K times g_i clipped at C/K; the noise, std noise_multiplier·C,
        is K times that of the clip C/K. So each step is the same, and one pass gives it, not K. (The same holds for
        every R: `sum` at (C, η) is `mean` at (C/K, K·η), perturbations included, for they scale with η·C.)
        """
        norm, unsmoothed_sum = self.max_grad_norm, reduction == "sum" and radius == 0
        if unsmoothed_sum:
            norm, learning_rate = norm / self.smoothing_samples, learning_rate * self.smoothing_samples
        return Run(
            dataset=self.dataset,
            records=self.records,
            model=self.model,
            batch_size=self.batch_size,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=norm,
            learning_rate=learning_rate,
            smoothing_radius=radius,
            smoothing_samples=self.smoothing_samples,
            smoothing_reduction="mean" if radius == 0 else reduction,
            seed=seed,
            scored=scored,
        )


class Counted:
    """Charges nothing, for runs on public data that release nothing; counts what it would have charged."""

    def __init__(self) -> None:
        self.steps = 0

    def lease(self, steps: int) -> None:
        """Count the steps."""
        self.steps += steps

    def leased(self) -> int:
        """Steps counted so far."""
        return self.steps

    def restarts(self) -> int:
        """It is never cut off."""
        return 0


def training_of(run: Run, *, data_dir: str | None) -> PrivateTraining:
    """The training of a run, at step 0; it holds no test record."""
    spec = TrainingSpec(
        method="dplis",
        model=run.model,
        dataset=replace(run.request, data_dir=data_dir),
        batch_size=run.batch_size,
        steps=run.scored[-1],
        noise_multiplier=run.noise_multiplier,
        sample_rate=run.batch_size / run.records,
        parameters={
            "smoothing_radius": run.smoothing_radius,
            "smoothing_samples": run.smoothing_samples,
            "smoothing_reduction": run.smoothing_reduction,
            "learning_rate": run.learning_rate,
            "max_grad_norm": run.max_grad_norm,
        },
        seed=run.seed,
        private=False,
        noise_seed=1000 + run.seed,
        threads=1,
    )
    return PrivateTraining(spec, Counted(), splits=_splits(spec.dataset))


def train(run: Run, *, data_dir: str | None) -> Accuracies:
    """Trains one run and scores it on the validation split at each of its steps."""
    training = training_of(run, data_dir=data_dir)
    accuracies: list[float] = []
    for step in run.scored:
        training.run_to(step)
        accuracies.append(100 * training.evaluate("validation")["validation_accuracy"])
    return tuple(accuracies)


def measure(
    runs: Iterable[Run], *, known: Results, data_dir: str | None, jobs: int
) -> Iterator[tuple[Run, Accuracies, float]]:
    """Each run that is not known yet, with its accuracies and seconds, as it finishes.

    Seed by seed, so that a study that is cut short has some seeds whole; within a seed the longest first.

    Args:
        runs: what is wanted; repetitions are trained once.
        known: what was measured before.
        data_dir: folder of the data sets.
        jobs: processes; each takes one thread.
    """
    missing = sorted(set(runs) - set(known), key=lambda run: (run.seed, -run.work, repr(run)))
    tasks = [(run, data_dir) for run in missing]
    if jobs == 1 or len(tasks) < 2:
        yield from map(_timed, tasks)
        return
    with get_context("spawn").Pool(min(jobs, len(tasks))) as pool:
        yield from pool.imap_unordered(_timed, tasks)


def append(path: Path, run: Run, accuracies: Accuracies, seconds: float) -> None:
    """Adds one result as one line of JSON; after a crash in the middle of a line the next begins on its own."""
    row = {"run": asdict(run), "accuracies": [value if math.isfinite(value) else None for value in accuracies]}
    with path.open("a+b") as file:
        if file.tell() and not _ends_a_line(path):
            file.write(b"\n")
        file.write(json.dumps(row | {"seconds": round(seconds, 1)}).encode() + b"\n")


def read(path: Path) -> dict[Run, Accuracies]:
    """All results of a file; none when there is no file. A line cut short by a crash is left out."""
    results: dict[Run, Accuracies] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        run = Run(**row["run"] | {"scored": tuple(row["run"]["scored"])})
        results[run] = tuple(math.nan if value is None else float(value) for value in row["accuracies"])
    return results


def _timed(task: tuple[Run, str | None]) -> tuple[Run, Accuracies, float]:
    run, data_dir = task
    start = time.perf_counter()
    accuracies = train(run, data_dir=data_dir)
    return run, accuracies, time.perf_counter() - start


def _ends_a_line(path: Path) -> bool:
    return path.read_bytes().endswith(b"\n")


@lru_cache(maxsize=64)
def _steps(mechanism: SampledGaussian, epsilon: float) -> int:
    return max_steps(mechanism, epsilon=epsilon, delta=DELTA)


@lru_cache(maxsize=2)
def _splits(request: DatasetRequest) -> Splits:
    """Read once a process. The test records are dropped here, so that no run of the study can score them."""
    splits = data.load(request)
    return replace(splits, x_test=splits.x_test[:0], y_test=splits.y_test[:0])
