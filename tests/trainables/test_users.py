"""Users as samples: what one user does is bounded whatever their records are, and a training over users is whole.

That each step is the one of a naive loop over users is tested in `test_reference.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from covering import pairs
from errors_helper import raises_code
from torch import Tensor, nn
from training_fakes import EXACT, CountingCharge, MakeSpec, Trained, raw, step_over

import trainables.training
from trainables import data
from trainables.data import DatasetRequest, Splits
from trainables.engine.clip import CLIPPINGS
from trainables.engine.layout import Layout
from trainables.engine.per_sample import PerSampleSource, TorchFuncSource
from trainables.engine.sampling import user_records
from trainables.engine.sources import per_sample_source
from trainables.engine.step import PrivateStep
from trainables.engine.sums import SMALL
from trainables.errors import DatasetError
from trainables.timing import seconds_per_step
from trainables.training import PrivateTraining

CLIP, MOST = 0.7, 4
OWN = {"name": "mine", "unit": "user", "records_per_user": MOST, "public_users": 40, "validation_fraction": 0.25}


def quiet_step(model: nn.Module, *, clipping: str = "flat", fallback: bool = False) -> PrivateStep:
    """Every user in the batch, and no noise."""
    layout = Layout.of(model)
    source: PerSampleSource = TorchFuncSource(model, layout) if fallback else per_sample_source(model, layout)
    return step_over(source, layout.flatten(model), clip=CLIP, clipping=clipping)


def table(*owned: list[int]) -> Tensor:
    return torch.tensor([[*mine, *[-1] * (MOST - len(mine))] for mine in owned])


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("clipping", "kind", "fallback", "dtype"),
    pairs(CLIPPINGS, ("linear", "convolution"), (False, True), (torch.float64, torch.float32)),
)
def test_one_user_moves_the_sum_by_the_clip_at_most(
    clipping: str, kind: str, fallback: bool, dtype: torch.dtype
) -> None:
    model = make_model(kind).to(dtype)
    theta = Layout.of(model).flatten(model)
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(12, 1, 4, 4, generator=generator, dtype=dtype) * 100  # each far beyond the clip
    labels = torch.randint(0, 3, (12,), generator=generator)
    inputs[9:] = inputs[8]  # a user who says one thing four times, and it is wrong
    with torch.no_grad():
        labels[8:] = model(inputs[8:]).argmin(1)
    others, whole = table([0, 1], [2]), table([0, 1], [2], [8, 9, 10, 11])

    def gradient(users: Tensor | None, rows: slice = slice(None)) -> Tensor:
        step = quiet_step(model, clipping=clipping, fallback=fallback)
        taken = step.take(theta, inputs[rows], labels[rows], learning_rate=1.0, users=users)
        return (theta - taken).double()

    moved = float((gradient(whole) - gradient(others)).norm())
    slack = SMALL.slack if dtype == torch.float32 else 0.0
    assert 0.5 * CLIP < moved <= CLIP * (1 + slack + 1e-5)
    # The control: with records as samples, the same four records move it by more.
    records = float((gradient(None) - gradient(None, slice(0, 8))).norm())
    assert records > 2 * CLIP


def test_places_without_a_record_show_the_users_own_and_are_ignored() -> None:
    users = table([5, 2], [7], [1, 3, 4, 6])
    rows, missing = user_records(users, torch.tensor([0, 1]))
    assert rows.tolist() == [5, 2, 5, 5, 7, 7, 7, 7]
    assert missing.tolist() == [False, False, True, True, False, True, True, True]


@pytest.mark.parametrize("fallback", [False, True])
def test_a_user_without_a_finite_gradient_is_left_out_and_harms_nobody(fallback: bool) -> None:
    model = make_model("linear").double()
    theta = Layout.of(model).flatten(model)
    inputs, labels = torch.randn(6, 1, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    spoilt = inputs.clone()
    spoilt[4] = math.nan

    def after(records: Tensor, users: Tensor) -> Tensor:
        return quiet_step(model, fallback=fallback).take(theta, records, labels, learning_rate=0.1, users=users)

    with_bad, without = after(spoilt, table([0, 1], [4, 5], [2])), after(spoilt, table([0, 1], [2]))
    torch.testing.assert_close(with_bad, without, rtol=0, atol=1e-15)
    assert not torch.allclose(after(inputs, table([0, 1], [4, 5], [2])), without), "the control: sound, they count"


# -- a training over a file of one's own -----------------------------------------------------------------------------


@pytest.fixture
def own_file(tmp_path: Path) -> DatasetRequest:
    """Three noisy clusters in the plane; 40 users with 1 to 9 records each."""
    rng = np.random.default_rng(0)
    owners = np.repeat([f"user {number}" for number in range(40)], rng.integers(1, 10, 40))
    centres = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])

    def cluster(records: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, 3, records)
        return (centres[labels] + 0.5 * rng.normal(size=(records, 2))).astype(np.float32), labels

    (x, y), (x_test, y_test) = cluster(len(owners)), cluster(50)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, user_train=owners)
    return DatasetRequest(**OWN, path=str(tmp_path / "own.npz"))  # type: ignore[arg-type]


def test_a_step_over_users_moves_no_further_than_every_user_at_the_clip(
    trained: Trained, own_file: DatasetRequest
) -> None:
    parameters = {"max_grad_norm": 0.01, "learning_rate": 2.0}

    def length(dataset: DatasetRequest) -> float:
        training = trained(0, dataset=dataset, parameters=parameters, **EXACT)
        before = raw(training)
        training.run_to(1)
        return float((raw(training) - before).double().norm())

    splits = data.load_records(own_file)
    assert splits.users_train is not None
    bound = 2.0 * 0.01 * len(splits.users_train) / 30
    assert 0.2 * bound < length(own_file) <= bound * (1 + 1e-5)
    as_records = replace(own_file, unit="record", public_size=200)
    assert length(as_records) > 2 * bound, "the control: as records they move it further"


def test_a_protected_score_of_users_is_the_mean_of_their_shares(
    trained: Trained, own_file: DatasetRequest, charge: CountingCharge, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trained(5, dataset=own_file, score_noise=2.0)
    splits = data.load_records(own_file)
    assert splits.users_validation is not None
    with torch.no_grad():
        right = (training.model(splits.x_validation).argmax(1) == splits.y_validation).double()
    shares = [float(right[splits.users_validation == user].mean()) for user in splits.users_validation.unique()]
    assert len(shares) > 3
    assert training.evaluate() != training.evaluate(), "noised"
    monkeypatch.setattr(trainables.training, "add_noise", lambda count, **_: count)
    score = training.evaluate()["validation_accuracy"]
    assert score == pytest.approx(sum(shares) / 10, abs=len(shares) * 2**-20)  # a quarter of the public 40
    assert charge.releases == [1, 1, 1]


def test_users_are_never_taken_for_granted(
    make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "public_validation_size", lambda _request: 4)
    request = DatasetRequest(name="fake", unit="user")
    for splits in (fake_data, replace(fake_data, users_train=table([0], [1]))):
        with raises_code(DatasetError, "users-missing"):
            PrivateTraining(make_spec(dataset=request, score_noise=1.0), charge, splits=splits)


def test_steps_over_users_are_timed_without_a_record(own_file: DatasetRequest, make_spec: MakeSpec) -> None:
    asked: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load_records", asked.append)
        seconds = seconds_per_step(make_spec(dataset=own_file, score_noise=1.0), steps=3, at_most=60.0)
    assert len(seconds) == 3
    assert asked == []


@pytest.mark.data
def test_the_next_word_is_learnt_from_speakers(data_dir: Path, make_spec: MakeSpec, charge: CountingCharge) -> None:
    dataset = DatasetRequest(name="state_union", data_dir=str(data_dir), unit="user", records_per_user=64)
    changes: dict[str, Any] = {"private": False, "noise_seed": 1, "noise_multiplier": 0.01, "steps": 12}
    spec = make_spec(dataset=dataset, model="next_word_lstm", batch_size=4, sample_rate=4 / 9, **changes)
    training = PrivateTraining(replace(spec, parameters={"learning_rate": 2.0}), charge)
    before = training.evaluate("test")["test_loss"]
    training.run_to(12)
    assert training.evaluate("test")["test_loss"] < before - 0.5
