"""The training: leases before steps, scores that tell nothing of the training records, checkpoints, gates."""

from __future__ import annotations

import math
import os
import pickle
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from trainables import data
from trainables.data import DatasetInfo, DatasetRequest, Splits
from trainables.errors import DatasetError, GateError, HyperparameterError
from trainables.hyperparameters import HYPERPARAMETERS
from trainables.training import LEASE_STEPS, PrivateTraining, TrainingSpec

MakeSpec = Callable[..., TrainingSpec]
pytestmark = pytest.mark.usefixtures("fake_data")


@dataclass
class CountingCharge:
    """Keeps the leases in memory; refuses what would pass `cap`."""

    cap: int = 10**9
    leases: list[int] = field(default_factory=list)
    before_lease: Callable[[], None] = lambda: None

    def lease(self, steps: int) -> None:
        self.before_lease()
        if self.leased() + steps > self.cap:
            raise PermissionError("refused")
        self.leases.append(steps)

    def leased(self) -> int:
        return sum(self.leases)


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
    monkeypatch.setattr(data, "load", lambda _request: splits)
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


def same(first: PrivateTraining, second: PrivateTraining) -> bool:
    """Whether two trainings stand at the same parameters, to the bit."""
    pairs = zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


# -- paying ----------------------------------------------------------------------------------------------------------


def test_every_lease_comes_before_its_steps(make_spec: MakeSpec, charge: CountingCharge) -> None:
    training = PrivateTraining(make_spec(steps=2 * LEASE_STEPS + 50), charge)
    seen: list[tuple[int, int]] = []
    charge.before_lease = lambda: seen.append((charge.leased(), training.noise_draws))
    training.run_to(30)
    training.run_to(2 * LEASE_STEPS + 50)
    assert charge.leases == [30, LEASE_STEPS, LEASE_STEPS, 20]
    assert seen == [(0, 0), (30, 30), (30 + LEASE_STEPS,) * 2, (30 + 2 * LEASE_STEPS,) * 2]
    assert training.step == training.noise_draws == charge.leased() == 2 * LEASE_STEPS + 50


def test_a_refused_lease_takes_no_step_and_draws_nothing(make_spec: MakeSpec, charge: CountingCharge) -> None:
    charge.cap = 5
    training = PrivateTraining(make_spec(), charge)
    training.run_to(5)
    before = training.state_dict()
    with pytest.raises(PermissionError):
        training.run_to(6)
    after = training.state_dict()
    assert after["step"] == after["noise_draws"] == 5
    assert torch.equal(after["secret"]["key"], before["secret"]["key"])


def test_steps_beyond_the_spec_are_refused(make_spec: MakeSpec, charge: CountingCharge) -> None:
    with pytest.raises(HyperparameterError, match="at most steps = 20; got 21"):
        PrivateTraining(make_spec(), charge).run_to(21)
    assert charge.leases == []


def test_empty_batches_are_steps_too(make_spec: MakeSpec, charge: CountingCharge) -> None:
    training = PrivateTraining(make_spec(sample_rate=1e-12), charge)
    start = training.model.state_dict()["1.weight"].clone()
    training.run_to(3)
    assert training.noise_draws == 3
    assert not torch.equal(start, training.model.state_dict()["1.weight"])


# -- learning and scoring --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", HYPERPARAMETERS)
def test_every_method_learns(method: str, make_spec: MakeSpec, charge: CountingCharge) -> None:
    spec = make_spec(method=method, steps=60, parameters={"learning_rate": 0.5}, private=False, noise_seed=1)
    training = PrivateTraining(spec, charge)
    training.run_to(60)
    assert training.evaluate()["validation_accuracy"] > 0.9


def test_scores_are_those_of_the_split(make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits) -> None:
    training = PrivateTraining(make_spec(), charge)
    training.run_to(10)
    with torch.no_grad():
        logits = training.model(fake_data.x_test)
    right = (logits.argmax(1) == fake_data.y_test).double().mean()
    loss = torch.nn.functional.cross_entropy(logits, fake_data.y_test)
    scores = training.evaluate("test")
    assert scores == {"test_accuracy": pytest.approx(float(right)), "test_loss": pytest.approx(float(loss), rel=1e-5)}
    assert set(training.evaluate()) == {"validation_accuracy", "validation_loss"}


def test_training_records_are_never_scored(make_spec: MakeSpec, charge: CountingCharge) -> None:
    with pytest.raises(GateError, match="never training records"):
        PrivateTraining(make_spec(), charge).evaluate("train")


def test_a_split_without_records_is_an_error(make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits) -> None:
    object.__setattr__(fake_data, "x_validation", fake_data.x_validation[:0])
    object.__setattr__(fake_data, "y_validation", fake_data.y_validation[:0])
    with pytest.raises(DatasetError, match="no records"):
        PrivateTraining(make_spec(), charge).evaluate()


def test_a_diverged_model_scores_nan(make_spec: MakeSpec, charge: CountingCharge) -> None:
    spec = make_spec(parameters={"learning_rate": 1e38, "max_grad_norm": 1e6})
    training = PrivateTraining(spec, charge)
    training.run_to(5)
    assert all(math.isnan(score) for score in training.evaluate().values())


def test_the_learning_rate_follows_the_schedule(make_spec: MakeSpec, charge: CountingCharge) -> None:
    parameters = {"learning_rate": 0.4, "schedule": "inverse_time", "schedule.inverse_time.decay": 3.0}
    training = PrivateTraining(make_spec(parameters=parameters), charge)
    assert training.learning_rate == 0.4
    training.run_to(10)
    assert training.learning_rate == pytest.approx(0.4 / 2.5)


def test_initialisation_is_public_and_noise_is_not(make_spec: MakeSpec, charge: CountingCharge) -> None:
    first, second, other = (PrivateTraining(make_spec(seed=seed), charge) for seed in (3, 3, 4))
    assert same(first, second)
    assert not same(first, other)
    first.run_to(1)
    second.run_to(1)
    assert not same(first, second)


def test_a_study_repeats_its_noise(make_spec: MakeSpec, charge: CountingCharge) -> None:
    first, second = (PrivateTraining(make_spec(private=False, noise_seed=5), charge) for _ in range(2))
    first.run_to(4)
    second.run_to(4)
    assert same(first, second)


# -- checkpoints -----------------------------------------------------------------------------------------------------

VARIANTS = (
    {"parameters": {"schedule": "cosine"}, "momentum": 0.9},
    {"optimizer": "adam", "method": "dplis", "parameters": {"smoothing_samples": 2}},
    {"private": False, "noise_seed": 2},
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_training_continues_bit_for_bit(
    variant: dict[str, Any], make_spec: MakeSpec, charge: CountingCharge, tmp_path: Path
) -> None:
    spec = make_spec(**variant)
    whole = PrivateTraining(spec, charge)
    whole.run_to(7)
    whole.save(tmp_path / "trial" / "state.pt")
    resumed = PrivateTraining(pickle.loads(pickle.dumps(spec)), charge)
    resumed.load(tmp_path / "trial" / "state.pt")
    assert (resumed.step, resumed.noise_draws) == (7, 7)
    whole.run_to(20)
    resumed.run_to(20)
    assert same(whole, resumed)


def test_repeated_steps_get_fresh_noise_and_are_paid(
    make_spec: MakeSpec, charge: CountingCharge, tmp_path: Path
) -> None:
    crashed = PrivateTraining(make_spec(), charge)
    crashed.run_to(5)
    crashed.save(tmp_path / "state.pt")
    crashed.run_to(8)
    resumed = PrivateTraining(make_spec(), charge)
    resumed.load(tmp_path / "state.pt")
    resumed.run_to(8)
    assert not same(crashed, resumed)
    assert charge.leased() == 5 + 3 + 3


def test_a_checkpoint_after_a_repeat_continues_again(make_spec: MakeSpec, charge: CountingCharge) -> None:
    """Leases of lost steps do not make every later checkpoint look stale."""
    charge.leases.append(100)
    training = PrivateTraining(make_spec(), charge)
    training.run_to(3)
    resumed = PrivateTraining(make_spec(), charge)
    resumed.load_state_dict(training.state_dict())
    training.run_to(5)
    resumed.run_to(5)
    assert same(training, resumed)


def test_another_specification_never_gets_the_stored_noise(make_spec: MakeSpec, charge: CountingCharge) -> None:
    """The same noise on two clipping norms would cancel in their difference."""
    training = PrivateTraining(make_spec(), charge)
    training.run_to(3)
    state = training.state_dict()
    other = PrivateTraining(make_spec(parameters={"max_grad_norm": 0.5}), charge)
    other.load_state_dict(state)
    assert not torch.equal(other.state_dict()["secret"]["key"], state["secret"]["key"])
    elsewhere = PrivateTraining(make_spec(threads=1), charge)
    elsewhere.load_state_dict(state)
    assert torch.equal(elsewhere.state_dict()["secret"]["key"], state["secret"]["key"])


def test_a_checkpoint_is_whole_or_absent_and_its_owners_only(
    make_spec: MakeSpec, charge: CountingCharge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = PrivateTraining(make_spec(), charge)
    training.save(tmp_path / "state.pt")
    assert stat.S_IMODE(os.stat(tmp_path / "state.pt").st_mode) == 0o600
    before = (tmp_path / "state.pt").read_bytes()

    def full_disk(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    training.run_to(2)
    with pytest.raises(OSError, match="no space left"):
        training.save(tmp_path / "state.pt")
    assert (tmp_path / "state.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


# -- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"noise_multiplier": 0.0}, GateError, "greater than 0; got 0.0"),
        ({"noise_multiplier": math.nan}, GateError, "finite"),
        ({"noise_multiplier": math.inf}, GateError, "finite"),
        ({"noise_seed": 1}, GateError, "private: false"),
        ({"normalization": "batch"}, GateError, "within one sample"),
        ({"sample_rate": math.nan}, HyperparameterError, "sample_rate"),
        ({"sample_rate": 1.01}, HyperparameterError, "sample_rate"),
        ({"noise_multiplier": math.nan, "private": False}, HyperparameterError, "noise_multiplier"),
        ({"method": "dp_sdg"}, HyperparameterError, "did you mean 'dp_sgd'"),
        ({"parameters": {"smoothing_radius": 1.0}}, HyperparameterError, "has no parameter"),
        ({"device": "tpu"}, HyperparameterError, "auto, cpu or cuda"),
    ],
)
def test_gates(
    changes: dict[str, Any], error: type[Exception], message: str, make_spec: MakeSpec, charge: CountingCharge
) -> None:
    with pytest.raises(error, match=message):
        PrivateTraining(make_spec(**changes), charge)
    assert charge.leases == []
