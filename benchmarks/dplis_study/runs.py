"""The trainings of the DPLIS study: the settings of a study, and one run of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from trainables import data
from trainables.charge import NoCharge
from trainables.data import DatasetRequest, Splits, public_train_size
from trainables.training import PrivateTraining, TrainingSpec
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import max_steps

DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training; equal runs give equal numbers."""

    dataset: str
    records: int  # PUBLIC number of training records; the others are the validation split
    model: str
    batch_size: int
    noise_multiplier: float
    max_grad_norm: float
    learning_rate: float
    smoothing_radius: float  # R; 0 with `mean` is DP-SGD
    smoothing_samples: int
    smoothing_reduction: str
    seed: int  # of initialisation, perturbations, batches and noise, so that runs of one seed are paired
    scored: tuple[int, ...]  # steps after which validation is scored, ascending; the last ends the run

    @property
    def work(self) -> int:
        """Passes over batches, by which long runs start first."""
        return self.scored[-1] * (self.smoothing_samples if self.smoothing_radius else 1)

    @property
    def request(self) -> DatasetRequest:
        """The data set, split so that `records` of the official training records train."""
        size = public_train_size(DatasetRequest(name=self.dataset, validation_fraction=0.0))
        return DatasetRequest(name=self.dataset, validation_fraction=1 - self.records / size)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Validation accuracy in percent at each scored step; NaN where the training diverged."""

    accuracies: tuple[float, ...]
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Study:
    """The settings of one study; the fields of a `Run` have the same meaning here."""

    name: str
    dataset: str = "mnist"
    records: int = 5_000
    model: str = "mlp_64"
    batch_size: int = 64
    noise_multiplier: float = 0.9
    epsilons: tuple[float, float] = (2.0, 10.0)  # of the early and the late point; the steps follow from them
    learning_rate: float = 0.1536  # the published one
    max_grad_norm: float = 1.0
    radii: tuple[float, ...] = (3.0, 10.0, 20.0, 40.0, 80.0)  # at the published rate
    reductions: tuple[str, ...] = ("mean", "sum")
    smoothing_samples: int = 10
    rates: tuple[float, ...] = (0.0384, 0.0768, 0.1536, 0.3072, 0.6144, 1.2288)  # tried for DP-SGD, ascending
    # The radii for which a rate is chosen too, early and late.
    tuned_radii: tuple[tuple[float, ...], tuple[float, ...]] = ((3.0, 10.0, 20.0, 40.0, 80.0), (10.0, 40.0))
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    selection_seeds: tuple[int, ...] = (100, 101, 102)  # used only to choose rates

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of one step."""
        return SampledGaussian(self.batch_size / self.records, self.noise_multiplier)

    @property
    def steps(self) -> tuple[int, int]:
        """The most steps within each ε (add/remove one, privacy loss distribution)."""
        early, late = (_steps(self.mechanism, epsilon) for epsilon in self.epsilons)
        return early, late

    def run(self, *, radius: float, reduction: str, learning_rate: float, seed: int, scored: tuple[int, ...]) -> Run:
        """Return a run of this study at its C.

        `sum` without smoothing runs as DP-SGD that clips at C/K and steps at K times the rate. The two are equal: K
        equal gradients sum to K·g_i, and K·g_i clipped at C is K times g_i clipped at C/K. The noise, with standard
        deviation noise_multiplier·C, is K times that of the clip C/K. So each step is the same, and needs one pass
        instead of K. (For every R, `sum` at (C, η) is `mean` at (C/K, K·η), because perturbations scale with η·C.)
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


def training_of(run: Run, *, data_dir: str | None) -> PrivateTraining:
    """Return the training of a run at step 0, without test records."""
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
    return PrivateTraining(spec, NoCharge(), splits=_splits(spec.dataset))


def train(data_dir: str | None, run: Run) -> Outcome:
    """Train one run, and score it on the validation split at each of its steps."""
    training = training_of(run, data_dir=data_dir)
    accuracies: list[float] = []
    for step in run.scored:
        training.run_to(step)
        accuracies.append(100 * training.evaluate("validation")["validation_accuracy"])
    return Outcome(accuracies=tuple(accuracies))


@lru_cache(maxsize=64)
def _steps(mechanism: SampledGaussian, epsilon: float) -> int:
    return max_steps(mechanism, epsilon=epsilon, delta=DELTA)


@lru_cache(maxsize=2)
def _splits(request: DatasetRequest) -> Splits:
    """Read the records once a process, without the test records, so that no run can score them."""
    splits = data.load_records(request)
    return replace(splits, x_test=splits.x_test[:0], y_test=splits.y_test[:0])
