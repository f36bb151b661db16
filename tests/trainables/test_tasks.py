"""Regression and binary tasks: the private step on their losses, hostile labels, and scores against scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from errors_helper import raises_code
from sklearn import metrics
from torch import Tensor, nn
from training_fakes import CountingCharge, MakeSpec

import trainables.engine.clip
from trainables import data
from trainables.data import DatasetRequest
from trainables.data.inspection import inspect_file
from trainables.data.loading import records_sha256
from trainables.engine.batches import BatchSum
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import TorchFuncSource
from trainables.engine.sources import per_sample_source
from trainables.engine.sums import SMALL
from trainables.engine.task_losses import each_loss, summed_loss
from trainables.errors import DatasetError, GateError, HyperparameterError, TrainableError
from trainables.scoring import Answered, exact_scores
from trainables.training import PrivateTraining

CLIP, RECORDS, LAMBDA = 1.3, 13, 0.2
HUGE = (0.0, 1e30, -3e38, float("inf"), float("nan"))


def model_of(kind: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)]
    if kind == "convolution":
        layers = [nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1)]
    return nn.Sequential(*layers).to(dtype)


def records(task: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(RECORDS, 1, 2, 2, generator=generator, dtype=torch.float64).to(dtype)
    if task == "binary":
        return 3 * inputs, torch.randint(0, 2, (RECORDS,), generator=generator)
    return inputs, (3 * torch.randn(RECORDS, generator=generator)).float()


def clipped_sum(model: nn.Module, task: str, x: Tensor, y: Tensor, *, slow: bool = False) -> Tensor:
    layout = Layout.of(model)
    source: Any = TorchFuncSource(model, layout, summed_loss(task))
    if not slow:
        source = per_sample_source(model, layout, example=torch.rand(3, 1, 2, 2).to(x.dtype), loss=summed_loss(task))
    points = Points(centre=layout.flatten(model), decay=LAMBDA)
    blocks = SMALL if x.dtype == torch.float32 else None
    sums = BatchSum(source=source, points=points, max_grad_norm=CLIP, clipping="flat", blocks=blocks)
    return sums.of(x, y, copies=1)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("task", ["regression", "binary"])
def test_the_clipped_sum_is_that_of_a_naive_loop(task: str, kind: str, *, slow: bool) -> None:
    """(f − y)² and log(1 + e^(−y·f)) with y = ±1, one autograd call a record, in float64."""
    model = model_of(kind, torch.float64)
    x, y = records(task, torch.float64)
    theta, expected, lengths = Layout.of(model).flatten(model), 0.0, []
    for one, label in zip(x, y, strict=True):
        output = model(one[None])[0, 0]
        loss = (output - label) ** 2 if task == "regression" else torch.log1p(torch.exp(-(2 * label - 1) * output))
        found = torch.autograd.grad(loss, list(model.parameters()))
        gradient = torch.cat([each.reshape(-1) for each in found]) + LAMBDA * theta
        lengths.append(float(gradient.norm()))
        expected = expected + gradient / max(1.0, lengths[-1] / CLIP)
    torch.testing.assert_close(clipped_sum(model, task, x, y, slow=slow), expected, rtol=1e-12, atol=1e-12)
    assert min(lengths) < CLIP < max(lengths), "the case clips some and spares some"


def largest_move(task: str, kind: str, dtype: torch.dtype) -> float:
    """How far one hostile record moves the clipped sum at most, at each place of a batch."""
    model = model_of(kind, dtype)
    x, y = records(task, dtype)
    inserted = [(x[:1] * 1e3, value) for value in HUGE] + [(torch.full_like(x[:1], 1e30), 1e30)]
    moved = []
    for number, (row, value) in enumerate(inserted):
        label = torch.tensor([value if task == "regression" else 1]).to(y.dtype)
        place = (0, 5, RECORDS)[number % 3]
        more = [torch.cat([old[:place], new, old[place:]]) for old, new in ((x, row), (y, label))]
        moved.append(float((clipped_sum(model, task, *more).double() - clipped_sum(model, task, x, y).double()).norm()))
    return max(moved)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("task", ["regression", "binary"])
def test_no_hostile_record_moves_the_sum_further_than_the_clip(task: str, kind: str, dtype: torch.dtype) -> None:
    slack = 1 + SMALL.slack if dtype == torch.float32 else 1 + 1e-9
    assert CLIP * 0.9 < largest_move(task, kind, dtype) <= CLIP * slack


def test_without_the_clip_a_hostile_label_moves_the_sum_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainables.engine.clip, "clip_factors", lambda norms, _c, **_more: torch.ones_like(norms))
    assert not largest_move("regression", "linear", torch.float64) <= 100 * CLIP


# -- scores ----------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(300, 2, generator=generator, dtype=torch.float64).round(decimals=1)  # many ties
    labels = (torch.rand(300, generator=generator) < 0.2).long()
    told = Answered.of([(logits[:120], labels[:120]), (logits[120:], labels[120:])], "classification")

    def score(name: str) -> float:
        found = exact_scores(told, split="validation", task="classification", metric=f"validation_{name}", finite=True)
        assert {"validation_accuracy", "validation_loss"} <= set(found)
        return found[f"validation_{name}"]

    margin = (logits[:, 1] - logits[:, 0]).numpy()
    assert score("auc") == pytest.approx(metrics.roc_auc_score(labels, margin), rel=1e-12)
    guesses = logits.argmax(1)
    assert score("balanced_accuracy") == pytest.approx(metrics.balanced_accuracy_score(labels, guesses), rel=1e-12)
    assert score("perplexity") == pytest.approx(np.exp(metrics.log_loss(labels, logits.softmax(1))), rel=1e-9)
    assert score("balanced_accuracy") != pytest.approx(score("accuracy"), rel=0.01), "the classes are not even"
    one = Answered.of([(logits, torch.zeros_like(labels))], "classification")
    alone = exact_scores(one, split="test", task="classification", metric="validation_auc", finite=True)
    assert np.isnan(alone["test_auc"])
    broken = exact_scores(told, split="test", task="classification", metric="validation_auc", finite=False)
    assert all(np.isnan(list(broken.values())))


def test_one_output_of_a_binary_task_counts_as_two_logits() -> None:
    outputs, labels = torch.tensor([[2.0], [-1.0], [0.5]], dtype=torch.float64), torch.tensor([1, 1, 0])
    told = Answered.of([(outputs, labels)], "binary")
    found = exact_scores(told, split="test", task="binary", metric="validation_accuracy", finite=True)
    assert found["test_accuracy"] == pytest.approx(1 / 3)
    assert found["test_loss"] == pytest.approx(float(each_loss("binary")(outputs, labels).mean()), rel=1e-12)


# -- trainings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task", "metric", "error", "code"),
    [
        ("regression_1d", "classification", "validation_loss", DatasetError, "task-mismatch"),
        ("digits", "regression", "validation_loss", DatasetError, "task-mismatch"),
        ("iris", "binary", "validation_loss", DatasetError, "task-mismatch"),
        ("regression_1d", "regression", "validation_accuracy", HyperparameterError, "metric-of-task"),
        ("digits", "classification", "validation_auc", HyperparameterError, "metric-of-task"),
    ],
)
def test_a_task_must_fit_the_labels_and_the_score(
    name: str, task: str, metric: str, error: type[TrainableError], code: str, make_spec: MakeSpec
) -> None:
    spec = make_spec(dataset=DatasetRequest(name=name, task=task), metric=metric)
    with raises_code(error, code):
        PrivateTraining(spec, CountingCharge())


@pytest.mark.parametrize("metric", ["validation_loss", "validation_perplexity", "validation_balanced_accuracy"])
def test_only_a_score_with_a_stated_sensitivity_is_protected(metric: str, make_spec: MakeSpec) -> None:
    spec = make_spec(dataset=DatasetRequest(name="digits"), metric=metric, score_noise=2.0)
    with raises_code(GateError, "metric-not-protectable"):
        PrivateTraining(spec, charge := CountingCharge())
    assert charge.releases == []


def test_a_binary_accuracy_is_protected_as_a_count(make_spec: MakeSpec) -> None:
    request = DatasetRequest(name="breast_cancer", task="binary")
    training = PrivateTraining(make_spec(dataset=request, score_noise=0.5), charge := CountingCharge())
    training.run_to(20)
    assert set(training.evaluate()) == {"validation_accuracy"}
    assert charge.releases == [1]


@pytest.mark.parametrize("method", ["dp_sgd", "dp_lssgd", "dplis", "dp_weight_decay", "composed"])
def test_every_method_learns_the_synthetic_regression(method: str, make_spec: MakeSpec) -> None:
    request = DatasetRequest(name="regression_2d", task="regression")
    own = {
        "batch_size": 180,
        "steps": 60,
        "noise_multiplier": 1.0,
        "sample_rate": 0.25,
        "private": False,
        "noise_seed": 1,
    }
    spec = make_spec(
        method=method,
        dataset=request,
        metric="validation_loss",
        parameters={"learning_rate": 1.0, "max_grad_norm": 1.0},
        **own,
    )
    training = PrivateTraining(spec, CountingCharge())
    before = training.evaluate()["validation_loss"]
    training.run_to(60)
    assert set(training.evaluate()) == {"validation_loss"}
    assert training.evaluate()["validation_loss"] < before / 50
    assert training.evaluate("test")["test_loss"] < before / 50


# -- files of one's own ----------------------------------------------------------------------------------------------


def own(folder: Path, name: str, y: Any, y_test: Any) -> Path:  # noqa: ANN401
    x = np.arange(2.0 * len(y)).reshape(-1, 2)
    np.savez(folder / name, x_train=x, y_train=y, x_test=x[: len(y_test)], y_test=y_test)
    return folder / name


def request_of(path: Path, task: str) -> DatasetRequest:
    return DatasetRequest(name="mine", path=str(path), public_size=6, validation_fraction=0.0, task=task)


def test_labels_that_training_cannot_use_are_left_out_silently(tmp_path: Path) -> None:
    bad = [0.5, float("nan"), 1e300, -2.0]
    splits = data.load_records(request_of(own(tmp_path, "r.npz", np.array(bad), np.array([1.5])), "regression"))
    assert splits.y_train.tolist() == [0.5, -2.0]
    assert splits.y_train.dtype == torch.float32
    signed = data.load_records(request_of(own(tmp_path, "b.npz", np.array([-1, 1, 0, 7]), np.array([-1, 1])), "binary"))
    assert signed.y_train.tolist() == [0, 1]
    plain = data.load_records(request_of(own(tmp_path, "p.npz", np.array([0, 1, -1, 7]), np.array([0, 1])), "binary"))
    assert plain.y_train.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("task", "y_test"), [("regression", [float("inf")]), ("binary", [-1, 0, 1]), ("binary", [0, 2]), ("regression", [])]
)
def test_public_labels_that_do_not_fit_are_refused(task: str, y_test: list[float], tmp_path: Path) -> None:
    path = own(tmp_path, "x.npz", np.array([0, 1]), np.array(y_test))
    with raises_code(DatasetError, "own-file-arrays"):
        data.info(request_of(path, task))


def test_numbers_with_fractions_are_other_records_and_whole_numbers_are_the_same() -> None:
    x = np.ones((3, 2))

    def of(*labels: float, kind: type = float) -> str:
        return records_sha256({"x_train": x, "y_train": np.array(labels, kind)})

    assert of(0.25, 1.0, 2.0) != of(0.75, 1.0, 2.0)
    assert of(0.0, 1.0, 2.0) == of(0, 1, 2, kind=int)
    assert of(0.25, 1.0, 2.0) == of(2.0, 0.25, 1.0), "in any order"


def test_labels_of_either_coding_are_the_same_records(tmp_path: Path) -> None:
    """Training takes −1 as 0, so a copy with the other labels must not pass as other records."""
    signed = request_of(own(tmp_path, "s.npz", np.array([-1, 1, 1]), np.array([-1, 1])), "binary")
    plain = request_of(own(tmp_path, "p.npz", np.array([0, 1, 1]), np.array([0, 1])), "binary")
    assert torch.equal(data.load_records(signed).y_train, data.load_records(plain).y_train)
    assert data.records_fingerprint(signed) == data.records_fingerprint(plain)
    numbers = request_of(own(tmp_path, "n.npz", np.array([-1.0, 1, 1]), np.array([-1, 0.5])), "regression")
    assert data.records_fingerprint(numbers) != data.records_fingerprint(plain)


def test_the_check_of_a_file_describes_numbers_and_signed_labels(tmp_path: Path) -> None:
    numbers = inspect_file(own(tmp_path, "r.npz", np.array([0.5, np.nan, 1.5]), np.array([1.0])), task="regression")
    assert numbers["labels"]["train"] == {"lowest": 0.5, "highest": 1.5, "outside": 1, "mean": 1.0, "deviation": 0.5}
    assert [each["level"] for each in numbers["findings"]].count("refused") == 0
    signed = inspect_file(own(tmp_path, "b.npz", np.array([-1, 1, 1, 7]), np.array([-1, 1])), task="binary")
    assert signed["labels"]["train"]["counts"] == [1, 2]
    refused = inspect_file(own(tmp_path, "c.npz", np.array([0.5]), np.array([1.5])))
    assert [each["level"] for each in refused["findings"]] == ["refused", "refused"]
