"""One training of a published table: its settings, its result, and the file that keeps results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import nan
from pathlib import Path
from typing import TypeAlias

from benchmarks.harness import Kept, Settings
from trainables import data
from trainables.charge import NoCharge
from trainables.data import DatasetRequest, Splits, public_train_size
from trainables.landscape import sharpness
from trainables.training import PrivateTraining, TrainingSpec
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise
from tuner.privacy.accountant.pld import epsilon as epsilon_of

__all__ = [
    "DELTA",
    "PROBED",
    "Known",
    "Outcome",
    "Run",
    "Trainer",
    "kept_of",
    "noise_of",
    "perform",
    "splits_of",
    "steps_of",
]

DELTA = 1e-5
PROBED = 500
"""Number of validation records on which sharpness is measured."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training; equal runs give equal numbers. Only one of σ, R and λ may be above 0.

    Attributes:
        epsilon: ε of all steps, for which the noise is calibrated; 0 if `noise_multiplier` is given.
        noise_multiplier: noise of a step over C; 0 if ε is given.
        seed: of initialisation, perturbations, batches and noise, so that runs of one seed are paired.
        split: records that are scored. A run that scores 'validation' holds no test record.
        sharp: whether the sharpness around the last weights is measured, on validation records.
    """

    dataset: str
    model: str
    batch_size: int
    epochs: float
    learning_rate: float
    epsilon: float = 0.0
    noise_multiplier: float = 0.0
    max_grad_norm: float = 1.0
    activation: str = "relu"
    task: str = "classification"
    validation_fraction: float = 1 / 6
    laplacian_sigma: float = 0.0
    smoothing_radius: float = 0.0
    smoothing_samples: int = 1
    weight_decay: float = 0.0
    weight_decay_mode: str = "before_clipping"
    seed: int = 0
    split: str = "validation"
    sharp: bool = False

    def request(self, data_dir: str | None) -> DatasetRequest:
        """Return the records, with their split."""
        return DatasetRequest(
            name=self.dataset, data_dir=data_dir, validation_fraction=self.validation_fraction, task=self.task
        )

    @property
    def shown(self) -> str:
        """The fields that differ from their defaults, in one line."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return ", ".join(f"{name} {value}" for name, (value, default) in values.items() if value != default)

    @property
    def method(self) -> tuple[str, dict[str, object]]:
        """The method and its own parameters."""
        if self.laplacian_sigma:
            return "dp_lssgd", {"laplacian_sigma": self.laplacian_sigma}
        if self.smoothing_radius:
            return "dplis", {
                "smoothing_radius": self.smoothing_radius,
                "smoothing_samples": self.smoothing_samples,
            }
        if self.weight_decay:
            return "dp_weight_decay", {
                "weight_decay": self.weight_decay,
                "weight_decay_mode": self.weight_decay_mode,
            }
        return "dp_sgd", {}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a training.

    Attributes:
        score: accuracy in percent, or the mean squared error of a regression; NaN if the training diverged.
        epsilon: ε of the steps at δ = 1e-5 by a privacy loss distribution, add or remove one record, Poisson batches.
        sharpness: (C_ε, I)-sharpness of DPLIS' definition 5; NaN if it was not measured.
        cpu: processor seconds.
        seconds: wall seconds.
    """

    score: float
    epsilon: float
    noise_multiplier: float
    steps: int
    sharpness: float = nan
    cpu: float = 0.0
    seconds: float = 0.0


Known: TypeAlias = Mapping[Run, Outcome]
Together: TypeAlias = Callable[[Sequence[Run], str | None], Sequence[Outcome]]


@dataclass
class Trainer:
    """Trains what is missing and keeps every result.

    Attributes:
        kept: the file.
        data_dir: folder with the data sets.
        until: value of `time.perf_counter` after which no training starts.
    """

    kept: Kept[Run, Outcome]
    data_dir: str | None
    until: float = float("inf")

    @classmethod
    def of(cls, name: str, settings: Settings) -> Trainer:
        """Return the trainer of a section."""
        minutes = settings.own.minutes
        until = min(settings.deadline, time.perf_counter() + 60 * minutes if minutes else float("inf"))
        return cls(kept_of(settings.out, name, quick=settings.quick), settings.data_dir, until)

    def complete(self, wanted: Iterable[Run], together: Together | None = None) -> dict[Run, Outcome]:
        """Perform the wanted runs that are missing, as long as there is time, and return all results.

        Args:
            wanted: runs, in the order in which they start.
            together: performs all of them at once.
        """
        known = self.kept.read()
        missing = [run for run in dict.fromkeys(wanted) if run not in known]
        for runs in [missing] if together and missing else [[run] for run in missing]:
            if time.perf_counter() > self.until:
                break
            begun = time.perf_counter()
            outcomes = [perform(runs[0], self.data_dir)] if together is None else together(runs, self.data_dir)
            wall = round((time.perf_counter() - begun) / len(runs), 1)
            for run, outcome in zip(runs, outcomes, strict=True):
                known[run] = replace(outcome, seconds=wall)
                self.kept.append(run, known[run])
                print(f"{run.shown}: {known[run].score:.2f}, {known[run].cpu:g} CPU s", flush=True)
        return known


def kept_of(out: Path, name: str, *, quick: bool) -> Kept[Run, Outcome]:
    """Return the file of results of a section; a quick run has its own."""
    return Kept(out / ("quick" if quick else "") / f"{name}.jsonl", Run, Outcome)


def steps_of(run: Run) -> tuple[float, int]:
    """Return the sample rate and the number of steps."""
    size = public_train_size(run.request(None))
    return run.batch_size / size, max(1, round(run.epochs * size / run.batch_size))


def noise_of(run: Run) -> float:
    """Return the noise multiplier: the given one, or the least for ε."""
    return run.noise_multiplier or _noise(*steps_of(run), run.epsilon)


def perform(run: Run, data_dir: str | None) -> Outcome:
    """Train once, on one thread, and score once."""
    begun = time.process_time()
    rate, steps = steps_of(run)
    noise = noise_of(run)
    method, own = run.method
    spec = TrainingSpec(
        method=method,
        model=run.model,
        activation=run.activation,
        dataset=run.request(data_dir),
        batch_size=run.batch_size,
        steps=steps,
        noise_multiplier=noise,
        sample_rate=rate,
        parameters={**own, "learning_rate": run.learning_rate, "max_grad_norm": run.max_grad_norm},
        seed=run.seed,
        private=False,
        noise_seed=1000 + run.seed,
        threads=1,
        metric="validation_loss" if run.task == "regression" else "validation_accuracy",
    )
    splits = splits_of(spec.dataset, tested=run.split == "test")
    charge = NoCharge()
    training = PrivateTraining(spec, charge, splits=splits)
    training.run_to(steps)
    scores = training.evaluate(run.split)
    probed = nan
    if run.sharp:
        records = splits.x_validation[:PROBED], splits.y_validation[:PROBED]
        probed = sharpness(training.model, *records, restarts=0).value
    return Outcome(
        score=scores[f"{run.split}_loss"] if run.task == "regression" else 100 * scores[f"{run.split}_accuracy"],
        epsilon=epsilon_of(SampledGaussian(rate, noise), charge.leased(), DELTA),
        noise_multiplier=noise,
        steps=steps,
        sharpness=probed,
        cpu=round(time.process_time() - begun, 1),
    )


@lru_cache(maxsize=256)
def _noise(rate: float, steps: int, epsilon: float) -> float:
    return calibrate_noise(sample_rate=rate, steps=steps, epsilon=epsilon, delta=DELTA)


@lru_cache(maxsize=2)
def splits_of(request: DatasetRequest, *, tested: bool) -> Splits:
    """Read the records once a process; without the test records for a run that chooses."""
    splits = data.load_records(request)
    return splits if tested else replace(splits, x_test=splits.x_test[:0], y_test=splits.y_test[:0])
