"""A training on a release: a naive float64 loop, no record read, nothing charged, changed files refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training_fakes import keyed

from trainables import data
from trainables.data import DatasetRequest
from trainables.errors import GateError, HyperparameterError, TrainableError
from trainables.release.draw import Randomiser, Release, noisy_rows, packed
from trainables.release.training import ReleasedTraining, first_linear
from trainables.spec import TrainingSpec

ROWS, CLASSES = 40, 3


class NoCharges:
    """A charge that must not be asked."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked")


@pytest.fixture
def spec(tmp_path: Path) -> TrainingSpec:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(ROWS, 4, generator=generator), torch.randint(0, CLASSES, (ROWS,), generator=generator)
    randomiser = Randomiser(clip=2.0, noise=0.5, label_epsilon=1.5, classes=CLASSES)
    content = packed(noisy_rows(x, y, randomiser, rows=ROWS, generator=keyed(7)))
    path = tmp_path / "release.npz"
    path.write_bytes(content)
    return TrainingSpec(
        method="input_perturbation",
        dataset=DatasetRequest(name="iris"),
        batch_size=ROWS,
        steps=6,
        noise_multiplier=1.0,
        sample_rate=1.0,
        parameters={"learning_rate": 0.5, "weight_decay": 0.03},
        release=str(path),
        release_sha256=hashlib.sha256(content).hexdigest(),
        labels_kept=randomiser.kept,
    )


def naive(spec: TrainingSpec, theta: np.ndarray, steps: int) -> np.ndarray:
    """Full-batch gradient descent on the debiased loss by loops, in float64. θ is (weights by class, then biases)."""
    with np.load(str(spec.release)) as arrays:
        x, y = arrays["x"].astype(np.float64), arrays["y"]
    kept = spec.labels_kept
    response = np.full((CLASSES, CLASSES), (1 - kept) / (CLASSES - 1))
    np.fill_diagonal(response, kept)
    inverse = np.linalg.inv(response)
    for _ in range(steps):
        weights, bias = theta[: CLASSES * 4].reshape(CLASSES, 4), theta[CLASSES * 4 :]
        gradient = np.zeros_like(theta)
        for row, label in zip(x, y, strict=True):
            z = weights @ row + bias
            softmax = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            for c in range(CLASSES):
                d = sum(inverse[label, j] * (softmax[c] - (j == c)) for j in range(CLASSES)) / len(x)
                gradient[c * 4 : c * 4 + 4] += d * row
                gradient[CLASSES * 4 + c] += d
        theta = theta - 0.5 * (gradient + 0.03 * theta)
    return theta


def weights_of(training: ReleasedTraining) -> np.ndarray:
    named = training.model.state_dict()
    return np.concatenate([named["1.weight"].numpy().ravel(), named["1.bias"].numpy()]).astype(np.float64)


def test_it_equals_the_naive_loop_and_reads_no_training_record(
    spec: TrainingSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(request: DatasetRequest) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(data, "load_records", unread)
    training = ReleasedTraining(spec, NoCharges())  # type: ignore[arg-type]
    start = weights_of(training)
    training.run_to(6)
    assert np.allclose(weights_of(training), naive(spec, start, 6), atol=2e-6)


@pytest.mark.parametrize(("sigma", "samples"), [(0.0, 3), (0.2, 1), (0.2, 3)])
def test_a_student_equals_the_naive_loop_with_an_absolute_smoothing(
    spec: TrainingSpec, sigma: float, samples: int
) -> None:
    """The perturbations are the same whatever rate, noise and batch size are: σ is absolute."""
    parameters = {"learning_rate": 0.5, "weight_decay": 0.03, "smoothing_sigma": sigma, "smoothing_samples": samples}
    student = replace(spec, method="pate", labels_kept=1.0, parameters=parameters)
    training = ReleasedTraining(student, NoCharges())  # type: ignore[arg-type]
    theta, public = weights_of(training), torch.Generator().manual_seed(student.seed)
    plain = replace(student, labels_kept=1.0)
    training.run_to(4)
    for _ in range(4):
        seeds = torch.randint(2**63 - 1, (samples,), generator=public).tolist() if sigma else [None]
        total = np.zeros_like(theta)
        for seed in seeds:
            drawn = torch.empty(len(theta))
            z = 0.0 if seed is None else drawn.normal_(generator=torch.Generator().manual_seed(seed)).double().numpy()
            point = theta + sigma * z
            # One naive step from the point tells the gradient there: its decay is of the point, not of θ.
            total += (point - naive(plain, point, 1)) / 0.5 - 0.03 * point
        theta = theta - 0.5 * (total / len(seeds) + 0.03 * theta)
    assert np.allclose(weights_of(training), theta, atol=2e-6)


def test_a_student_without_labels_is_refused(spec: TrainingSpec) -> None:
    content = packed(Release(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)))
    Path(str(spec.release)).write_bytes(content)
    empty = replace(spec, method="pate", parameters={}, release_sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(TrainableError, match="release-empty"):
        ReleasedTraining(empty, NoCharges())  # type: ignore[arg-type]


def test_a_checkpoint_continues_bit_for_bit(spec: TrainingSpec, tmp_path: Path) -> None:
    small = replace(spec, batch_size=8, momentum=0.9)
    whole, cut = (ReleasedTraining(small, NoCharges()) for _ in range(2))  # type: ignore[arg-type]
    whole.run_to(6)
    cut.run_to(3)
    cut.save(tmp_path / "step-00000003.pt")
    assert (tmp_path / "step-00000003.pt").stat().st_mode & 0o777 == 0o600
    again = ReleasedTraining(small, NoCharges())  # type: ignore[arg-type]
    again.load(tmp_path / "step-00000003.pt")
    again.run_to(6)
    assert np.array_equal(weights_of(again), weights_of(whole))
    assert set(again.evaluate()) == {"validation_accuracy", "validation_loss"}
    with pytest.raises(GateError):
        again.evaluate("train")


@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_another_release_than_the_charged_one_is_refused(spec: TrainingSpec, fault: str) -> None:
    path = Path(str(spec.release))
    path.write_bytes(path.read_bytes()[:-1] + b"x") if fault == "changed" else path.unlink()
    with pytest.raises(TrainableError, match="release-unreadable"):
        ReleasedTraining(spec, NoCharges())  # type: ignore[arg-type]


def test_the_gain_multiplies_the_first_layer_of_what_is_shown_alone(spec: TrainingSpec) -> None:
    plain = ReleasedTraining(spec, NoCharges())  # type: ignore[arg-type]
    gained = ReleasedTraining(
        replace(spec, parameters={**spec.parameters, "feature_gain": 7.0}),
        NoCharges(),  # type: ignore[arg-type]
    )
    for training in (plain, gained):
        training.run_to(3)
        training.evaluate()  # writes the shown weights into the module
        training.run_to(6)
    want = weights_of(plain)
    want[: CLASSES * 4] *= 7
    assert np.allclose(weights_of(gained), want, rtol=1e-6)
    with pytest.raises(HyperparameterError, match="gain-not-linear"):
        first_linear(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Linear(1, 1)))
