"""Records made up, and specifications of trainings on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from training_fakes import CountingCharge, MakeSpec, Trained

from trainables import data
from trainables.data import DatasetInfo, DatasetRequest, Splits
from trainables.training import PrivateTraining, TrainingSpec


@pytest.fixture
def charge() -> CountingCharge:
    return CountingCharge()


@pytest.fixture
def fake_data(monkeypatch: pytest.MonkeyPatch) -> Splits:
    """Three noisy clusters in the plane, 120 training records."""
    generator = torch.Generator().manual_seed(0)

    def cluster(records: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 3, (records,), generator=generator)
        centres = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
        return centres[labels] + 0.5 * torch.randn(records, 2, generator=generator), labels

    parts = [tensor for records in (120, 40, 50) for tensor in cluster(records)]
    names = ("x_train", "y_train", "x_validation", "y_validation", "x_test", "y_test")
    splits = Splits(**dict(zip(names, parts, strict=True)))
    about = DatasetInfo(
        name="fake", public_train_size=160, test_size=50, input_shape=(2,), classes=3, provenance="made", licence="none"
    )
    monkeypatch.setattr(data, "load_records", lambda _request: splits)
    monkeypatch.setattr(data, "info", lambda _request: about)
    return splits


@pytest.fixture
def make_spec() -> Callable[..., TrainingSpec]:
    def make(**changes: object) -> TrainingSpec:
        values: dict[str, Any] = {
            "method": "dp_sgd",
            "dataset": DatasetRequest(name="fake"),
            "batch_size": 30,
            "steps": 20,
            "noise_multiplier": 1.0,
            "sample_rate": 0.25,
            "parameters": {},
            "device": "cpu",
        }
        return TrainingSpec(**(values | changes))

    return make


@pytest.fixture
def trained(make_spec: MakeSpec, charge: CountingCharge) -> Trained:
    """Makes a training of a changed specification and takes this many steps."""

    def train(upto: int, /, **changes: object) -> PrivateTraining:
        training = PrivateTraining(make_spec(**changes), charge)
        training.run_to(upto)
        return training

    return train
