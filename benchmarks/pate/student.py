"""Students on MNIST: labels by Confident-GNMax on the real votes, with and without an absolute smoothing."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.pate.table import TEST_NOISE, THRESHOLD
from trainables.data import DATASETS, DatasetRequest, load_records
from trainables.data.votes import votes_on
from trainables.engine.random import SeededGenerator
from trainables.release.draw import packed
from trainables.release.training import ReleasedTraining
from trainables.release.votes import UNANSWERED, Voting, answered, noisy_answers
from trainables.spec import TrainingSpec

__all__ = ["CHECKPOINTS", "Outcome", "Run", "train"]

CHECKPOINTS = 10
_QUERIES, _VALIDATION = 4_000, 2_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """One student.

    Attributes:
        noise: σ₂ of the answers.
        sigma: absolute standard deviation of the smoothing; 0 is none.
        seed: seed of the queries, the votes' noise, the initial weights and the batches. The noise is seeded, so that
            the table can be repeated: the votes are public, and nothing is released.
        model: name of the network.
        samples: K.
        steps: number of steps of 100 labels, at the rate 0.01 and from the middle on at 0.001.
    """

    noise: float
    sigma: float
    seed: int
    model: str = "mlp_64"
    samples: int = 10
    steps: int = 500


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Accuracies in per cent.

    Attributes:
        labels: number of labels.
        right: share of them that are right.
        validation, test: accuracies at each of the checkpoints.
        seconds: CPU time is not told; the time of the run.
    """

    labels: int
    right: float
    validation: tuple[float, ...]
    test: tuple[float, ...]
    seconds: float = 0.0


def train(data_dir: str | None, run: Run) -> Outcome:
    """Train one student. Queries, validation and test records are disjoint and have the same law."""
    request = DatasetRequest(name="mnist_votes", data_dir=data_dir, validation_fraction=0.0)
    splits, votes = load_records(request), votes_on(DATASETS["mnist_votes"], request)
    order = np.random.default_rng(run.seed).permutation(len(votes))
    asked, held = torch.from_numpy(order[:_QUERIES]), torch.from_numpy(order[_QUERIES : _QUERIES + _VALIDATION])
    rest = torch.from_numpy(order[_QUERIES + _VALIDATION :])
    test_x, test_y = torch.cat([splits.x_train[rest], splits.x_test]), torch.cat([splits.y_train[rest], splits.y_test])
    voting = Voting(threshold=THRESHOLD, threshold_noise=TEST_NOISE, answer_noise=run.noise, answers=_QUERIES)
    labels = noisy_answers(votes[asked], voting, generator=SeededGenerator(run.seed))
    told = labels != UNANSWERED
    content = packed(answered(splits.x_train[asked], labels))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.npz"
        path.write_bytes(content)
        spec = TrainingSpec(
            method="pate",
            dataset=request,
            model=run.model,
            batch_size=100,
            steps=run.steps,
            noise_multiplier=1.0,
            sample_rate=100 / int(told.sum()),
            momentum=0.9,
            seed=run.seed,
            parameters={
                "learning_rate": 0.01,
                "schedule": "step",
                "schedule.step.every": 0.5,
                "schedule.step.factor": 0.1,
                "smoothing_sigma": run.sigma,
                "smoothing_samples": run.samples,
                "weight_decay": 0.0,
            },
            release=str(path),
            release_sha256=hashlib.sha256(content).hexdigest(),
            labels_kept=1.0,
            threads=1,
        )
        training = ReleasedTraining(spec, None)  # type: ignore[arg-type]  # a student charges nothing
        found: list[tuple[float, float]] = []
        for step in (run.steps * (part + 1) // CHECKPOINTS for part in range(CHECKPOINTS)):
            training.run_to(step)
            found.append(
                (
                    _accuracy(training, splits.x_train[held], splits.y_train[held]),
                    _accuracy(training, test_x, test_y),
                )
            )
    return Outcome(
        labels=int(told.sum()),
        right=100 * float((labels[told] == splits.y_train[asked][told]).double().mean()),
        validation=tuple(each for each, _ in found),
        test=tuple(each for _, each in found),
    )


def _accuracy(training: ReleasedTraining, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return 100 * float((training.model(x).argmax(1) == y).double().mean())
