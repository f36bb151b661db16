"""The training: leases before steps, scores that tell nothing of the training records, checkpoints, gates."""

from __future__ import annotations

import copy
import errno
import gc
import math
import os
import pickle
import stat
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from training_fakes import EXACT, CountingCharge, MakeSpec, Trained, raw

import trainables.gradients
import trainables.training
from trainables import data
from trainables.charge import LEASE_STEPS
from trainables.data import DatasetRequest, Splits
from trainables.engine.average import WeightAverage
from trainables.errors import DatasetError, GateError, HyperparameterError, InfrastructureError
from trainables.methods import STEP_METHODS
from trainables.spec import spec_fingerprint
from trainables.training import PrivateTraining, TrainingSpec

pytestmark = pytest.mark.usefixtures("fake_data")


@pytest.fixture
def images(fake_data: Splits, monkeypatch: pytest.MonkeyPatch) -> Splits:
    """The three clusters as images of two rows; each is its own mirror image."""

    def pictures(points: torch.Tensor) -> torch.Tensor:
        return torch.stack([points, points], 2).view(-1, 1, 2, 2)

    inputs = {name: pictures(getattr(fake_data, name)) for name in ("x_train", "x_validation", "x_test")}
    splits, about = replace(fake_data, **inputs), replace(data.info(DatasetRequest(name="fake")), input_shape=(1, 2, 2))
    monkeypatch.setattr(data, "load_records", lambda _request: splits)
    monkeypatch.setattr(data, "info", lambda _request: about)
    return splits


def same(first: PrivateTraining, second: PrivateTraining) -> bool:
    """Whether two trainings show the same parameters and go on from the same, to the bit."""
    states = [{**each.model.state_dict()}.values() for each in (first, second)]
    shown = all(torch.equal(one, other) for one, other in zip(*states, strict=True))
    return shown and torch.equal(raw(first), raw(second))


def exported(training: PrivateTraining) -> torch.Tensor:
    """The weights that are scored and exported, as one vector."""
    return torch.cat([value.flatten() for value in training.model.state_dict().values()]).clone()


def test_every_lease_comes_before_its_steps(trained: Trained, charge: CountingCharge) -> None:
    training = trained(0, steps=2 * LEASE_STEPS + 50)
    seen: list[tuple[int, int]] = []
    charge.before_lease = lambda: seen.append((charge.leased(), training.noise_draws))
    training.run_to(30)
    training.run_to(2 * LEASE_STEPS + 50)
    assert charge.leases == [30, *[LEASE_STEPS // 2] * 4, 20]
    assert seen == [(0, 0), *[(30 + done * LEASE_STEPS // 2,) * 2 for done in range(5)]]
    assert training.step == training.noise_draws == charge.leased() == 2 * LEASE_STEPS + 50


def test_a_trial_that_is_cut_off_again_and_again_loses_at_most_one_lease(make_spec: MakeSpec) -> None:
    """The last lease of every attempt may be lost: all of them together are no more than LEASE_STEPS."""
    lost = 0
    for restarts in range(4):
        charge = CountingCharge(cut_off=restarts)
        PrivateTraining(make_spec(steps=LEASE_STEPS), charge).run_to(LEASE_STEPS)
        assert sum(charge.leases) == LEASE_STEPS
        lost += max(charge.leases)
    assert LEASE_STEPS * 3 // 4 <= lost <= LEASE_STEPS


def test_a_refused_lease_takes_no_step_and_draws_nothing(trained: Trained, charge: CountingCharge) -> None:
    charge.cap = 5
    training = trained(5)
    before = training.state_dict()
    with pytest.raises(PermissionError):
        training.run_to(6)
    after = training.state_dict()
    assert after["step"] == after["noise_draws"] == 5
    assert torch.equal(after["secret"]["key"], before["secret"]["key"])
    with raises_code(HyperparameterError, "step-beyond-end"):
        training.run_to(21)


# -- learning and scoring --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", STEP_METHODS)
def test_every_method_learns(method: str, trained: Trained) -> None:
    training = trained(40, method=method, steps=40, parameters={"learning_rate": 0.5}, private=False, noise_seed=1)
    assert training.evaluate()["validation_accuracy"] > 0.9


def test_scores_are_those_of_the_split(trained: Trained, fake_data: Splits) -> None:
    training = trained(10)
    with torch.no_grad():
        logits = training.model(fake_data.x_test)
    right = (logits.argmax(1) == fake_data.y_test).double().mean()
    loss = torch.nn.functional.cross_entropy(logits, fake_data.y_test)
    scores = training.evaluate("test")
    assert scores == {"test_accuracy": pytest.approx(float(right)), "test_loss": pytest.approx(float(loss), rel=1e-5)}
    assert set(training.evaluate()) == {"validation_accuracy", "validation_loss"}


def test_training_records_are_never_scored(trained: Trained) -> None:
    with raises_code(GateError, "training-records-scored"):
        trained(0).evaluate("train")


def test_a_split_without_records_is_an_error(trained: Trained, fake_data: Splits) -> None:
    object.__setattr__(fake_data, "x_validation", fake_data.x_validation[:0])
    object.__setattr__(fake_data, "y_validation", fake_data.y_validation[:0])
    with raises_code(DatasetError, "split-empty"):
        trained(0).require_scores()


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_a_diverged_model_scores_nan(decay: float, trained: Trained) -> None:
    training = trained(5, parameters={"learning_rate": 1e38, "max_grad_norm": 1e6, "ema_decay": decay})
    assert all(math.isnan(score) for score in training.evaluate().values())


def test_the_learning_rate_follows_the_schedule(trained: Trained) -> None:
    parameters = {"learning_rate": 0.4, "schedule": "inverse_time", "schedule.inverse_time.decay": 3.0}
    training = trained(0, parameters=parameters)
    assert training.learning_rate == 0.4
    training.run_to(10)
    assert training.learning_rate == pytest.approx(0.4 / 2.5)


def test_initialisation_is_public_and_only_a_study_repeats_its_noise(trained: Trained) -> None:
    first, second, other = (trained(0, seed=seed) for seed in (3, 3, 4))
    assert same(first, second)
    assert not same(first, other)
    seeded = [trained(0, private=False, noise_seed=5) for _ in range(2)]
    for training in (first, second, *seeded):
        training.run_to(2)
    assert not same(first, second)
    assert same(*seeded)


def test_what_a_model_keeps_of_a_batch_is_neither_stored_nor_scored(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate refuses such a model, if it notices."""

    class Keeping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(2, 3)
            self.register_buffer("kept", torch.zeros(2))
            self.register_buffer("late", None)
            self.register_buffer("wide", torch.ones(1).expand(2))  # no operation in place is allowed on it
            self.scale = torch.nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.flatten(1)
            if torch.is_grad_enabled():
                with torch.no_grad():
                    self.kept.lerp_(x.mean(0), 0.5)
                    self.scale.lerp_(x.mean(0), 0.5)
                    self.late = x.mean(0)
                    self.wide = self.wide + x.mean(0)
            return self.last(x)

    monkeypatch.setattr(trainables.training, "build", lambda *_, **__: Keeping())
    training = trained(0)
    training.run_to(3)
    assert training._model.kept.any(), "the control: the model does keep something"
    for held in (training.state_dict()["model"], training.model.state_dict()):
        assert not held["kept"].any()
        assert all(torch.equal(held[name], torch.ones(2)) for name in ("scale", "wide"))
        assert "late" not in held
        assert held["last.weight"].any()


def test_a_loaded_model_has_the_fixed_values_with_which_it_was_trained(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may draw or round them differently. The trained weights would not fit them."""

    def model(scale: float) -> torch.nn.Module:
        made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 3))
        made.register_buffer("scale", torch.tensor([scale, torch.nan]))
        made.register_buffer("unstored", torch.tensor(scale), persistent=False)
        return made

    monkeypatch.setattr(trainables.training, "build", lambda *_, **__: model(1.0))
    training = trained(3)
    state, weights = training.state_dict(), raw(training)
    monkeypatch.setattr(trainables.training, "build", lambda *_, **__: model(2.0))
    loaded = trained(0)
    loaded._model.unstored.fill_(3.0)  # a pass may have changed it
    loaded.load_state_dict(state)
    assert (float(loaded.model.scale[0]), float(loaded.model.unstored)) == (1.0, 2.0)
    assert torch.equal(raw(loaded).nan_to_num(), weights.nan_to_num())
    assert float(loaded.state_dict()["model"]["scale"][0]) == 1.0


def test_a_training_is_freed_with_its_last_reference(trained: Trained) -> None:
    """The other workers of a trial end with it, and the memory of a GPU is free for the next trial."""
    gc.collect()
    gc.disable()
    try:
        training = trained(2)
        training.evaluate()
        gone = weakref.ref(training)
        del training
        assert gone() is None
    finally:
        gc.enable()


# -- options of the step ---------------------------------------------------------------------------------------------


def test_the_average_is_what_is_scored_and_exported(trained: Trained, fake_data: Splits) -> None:
    training = trained(0, parameters={"ema_decay": 0.8, "learning_rate": 1.0})
    average = WeightAverage(raw(training), decay=0.8, steps=20)
    assert torch.equal(exported(training), raw(training)), "before the first step there is nothing to average"
    for step in range(1, 13):
        training.run_to(step)
        average.update(raw(training))
        assert torch.equal(exported(training), average.value())
    assert not torch.equal(exported(training), raw(training))
    with torch.no_grad():
        logits = training.model(fake_data.x_validation)
    right = (logits.argmax(1) == fake_data.y_validation).double().mean()
    assert training.evaluate()["validation_accuracy"] == pytest.approx(float(right))


def test_averaging_changes_no_step(trained: Trained) -> None:
    seeded: dict[str, Any] = {"private": False, "noise_seed": 5}
    plain, averaged = (trained(0, **seeded, parameters={"ema_decay": decay}) for decay in (0.0, 0.9))
    for training in (plain, averaged):
        training.run_to(9)
    assert torch.equal(raw(plain), raw(averaged))
    assert torch.equal(exported(plain), raw(plain))


def test_after_a_checkpoint_without_an_average_it_starts_from_the_loaded_weights(trained: Trained) -> None:
    plain = trained(3)
    averaged = trained(0, parameters={"ema_decay": 0.9})
    averaged.load_state_dict(plain.state_dict())
    assert averaged.step == 3
    assert torch.equal(exported(averaged), raw(plain))


def test_mirrors_of_what_is_its_own_mirror_change_nothing(
    trained: Trained, images: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(parameters: dict[str, Any]) -> torch.Tensor:
        training = trained(4, parameters=parameters, **EXACT)
        assert training.noise_draws == 4
        return raw(training)

    flipped = {"augmentation": "flip", "augmentation_multiplicity": 3}
    torch.testing.assert_close(weights(flipped), weights({}), rtol=1e-5, atol=1e-6)
    lopsided = images.x_train.clone()
    lopsided[..., 0] += 1.0
    monkeypatch.setattr(data, "load_records", lambda _request: replace(images, x_train=lopsided))
    assert not torch.allclose(weights(flipped), weights({}), rtol=1e-3, atol=1e-4), "the comparison would see it"


def test_the_source_checks_itself_on_inputs_that_are_public(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, fake_data: Splits
) -> None:
    real, examples = trainables.gradients.per_sample_source, []

    def source(*args: Any, example: torch.Tensor, **options: Any) -> object:  # noqa: ANN401 - whatever it takes
        examples.append(example)
        return real(*args, example=example, **options)

    monkeypatch.setattr(trainables.gradients, "per_sample_source", source)
    trained(0)
    others = replace(fake_data, x_train=fake_data.x_train + 1.0)
    monkeypatch.setattr(data, "load_records", lambda _request: others)
    trained(0, seed=1)
    assert torch.equal(*examples), "whatever the records are"
    assert examples[0].shape[1:] == (2,)
    assert examples[0].dtype == fake_data.x_train.dtype


# -- checkpoints -----------------------------------------------------------------------------------------------------

VARIANTS = (
    {"parameters": {"schedule": "cosine"}, "momentum": 0.9},
    {"optimizer": "adam", "method": "dplis", "parameters": {"smoothing_samples": 2}},
    {"optimizer": "adam_corrected", "method": "dp_lssgd", "parameters": {"adam_beta2": 0.9}},
    {"private": False, "noise_seed": 2},
    {"parameters": {"ema_decay": 0.9, "clipping": "automatic"}},
    {"parameters": {"schedule": "gen", "clipping": "automatic", "schedule.warmup": 0.2}, "momentum": 0.5},
    {"optimizer": "adam", "precision": "bfloat16", "parameters": {"ema_decay": 0.5, "clipping": "per_layer"}},
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_training_continues_bit_for_bit(
    variant: dict[str, Any], make_spec: MakeSpec, charge: CountingCharge, tmp_path: Path
) -> None:
    spec = make_spec(**variant)
    whole = PrivateTraining(spec, charge)
    whole.run_to(7)
    whole.save(tmp_path / "trial" / "state.pt")
    resumed = PrivateTraining(pickle.loads(pickle.dumps(spec)), copy.deepcopy(charge))
    resumed.load(tmp_path / "trial" / "state.pt")
    assert (resumed.step, resumed.noise_draws) == (7, 7)
    whole.run_to(20)
    resumed.run_to(20)
    assert same(whole, resumed)


@pytest.mark.parametrize("later", [{"optimizer": "adam"}, {"momentum": 0.9}])
def test_another_optimizer_continues_from_a_checkpoint_without_moments(
    later: dict[str, Any], make_spec: MakeSpec, charge: CountingCharge
) -> None:
    """As population-based training does when it changes the optimizer of a copied trial."""
    before = PrivateTraining(make_spec(), charge)
    before.run_to(7)
    after = PrivateTraining(make_spec(**later), charge)
    after.load_state_dict(before.state_without_key())
    assert (after.step, after.noise_draws) == (7, 7)
    weights = [training.state_dict()["model"] for training in (before, after)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    after.run_to(20)
    assert charge.leased() == 20


def test_repeated_steps_get_fresh_noise_and_are_paid(trained: Trained, charge: CountingCharge, tmp_path: Path) -> None:
    crashed = trained(5)
    crashed.save(tmp_path / "state.pt")
    crashed.run_to(8)
    resumed = trained(0)
    resumed.load(tmp_path / "state.pt")
    resumed.run_to(8)
    assert not same(crashed, resumed)
    assert charge.leased() == 5 + 3 + 3


def test_a_checkpoint_after_a_repeat_continues_again(trained: Trained, charge: CountingCharge) -> None:
    """Leases of lost steps do not make every later checkpoint look stale."""
    charge.leases.append(100)
    training = trained(3)
    resumed = PrivateTraining(training.spec, copy.deepcopy(charge))
    resumed.load_state_dict(training.state_dict())
    training.run_to(5)
    resumed.run_to(5)
    assert same(training, resumed)


@pytest.mark.parametrize("at_once", [True, False])
def test_two_processes_that_load_one_checkpoint_draw_different_noise(
    trained: Trained, charge: CountingCharge, at_once: bool
) -> None:
    """Both load before either leases. `at_once`: both lease before either of them looks at the count again."""
    state = trained(3).state_dict()
    first, second = trained(0), trained(0)
    for each in (first, second):
        each.load_state_dict(state)
    if at_once:
        charge.after_lease = lambda: second.run_to(5) if charge.leased() == 5 else None
    first.run_to(5)
    charge.after_lease = lambda: None
    second.run_to(5)
    assert charge.leased() == 3 + 2 + 2
    assert not same(first, second)


@pytest.mark.parametrize("scores_first", [True, False])
def test_a_score_and_a_step_of_two_processes_get_different_noise(trained: Trained, *, scores_first: bool) -> None:
    state = trained(3, score_noise=1.0).state_dict()
    scoring, stepping = trained(0, score_noise=1.0), trained(0, score_noise=1.0)
    payments = [scoring.evaluate, lambda: stepping.run_to(5)]
    for each in (scoring, stepping):
        each.load_state_dict(state)
    for pay in payments if scores_first else reversed(payments):
        pay()
    keys = [each.state_dict()["secret"]["key"] for each in (scoring, stepping)]
    assert not torch.equal(*keys)


def test_a_checkpoint_does_not_count_what_another_process_leased(trained: Trained, charge: CountingCharge) -> None:
    """That process may have drawn noise from the same stream."""
    training = trained(3)
    charge.leases.append(2)
    training.run_to(5)
    state = training.state_dict()
    assert (state["leased"], charge.leased()) == (5, 7)
    resumed = trained(0)
    resumed.load_state_dict(state)
    assert not torch.equal(resumed.state_dict()["secret"]["key"], state["secret"]["key"])


def test_another_specification_never_gets_the_stored_noise(trained: Trained) -> None:
    """The same noise on two clipping norms would cancel in their difference."""
    training = trained(3)
    state = training.state_dict()
    other = trained(0, parameters={"max_grad_norm": 0.5})
    other.load_state_dict(state)
    assert not torch.equal(other.state_dict()["secret"]["key"], state["secret"]["key"])
    elsewhere = trained(0, threads=1)
    elsewhere.load_state_dict(state)
    assert torch.equal(elsewhere.state_dict()["secret"]["key"], state["secret"]["key"])


def test_a_checkpoint_is_whole_or_absent_and_its_owners_only(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trained(0)
    training.save(tmp_path / "state.pt")
    assert stat.S_IMODE(os.stat(tmp_path / "state.pt").st_mode) == 0o600
    before = (tmp_path / "state.pt").read_bytes()

    def full_disk(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_disk)
    training.run_to(2)
    with raises_code(InfrastructureError, "checkpoint-unwritable") as caught:
        training.save(tmp_path / "state.pt")
    assert "the disk is full" in str(caught.value)
    assert (tmp_path / "state.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


# -- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"noise_multiplier": 0.0}, GateError, "noise-missing"),
        ({"noise_multiplier": math.nan}, GateError, "noise-missing"),
        ({"noise_multiplier": math.inf}, GateError, "noise-missing"),
        ({"noise_seed": 1}, GateError, "noise-seed-private"),
        ({"normalization": "batch"}, GateError, "samples-mixed"),
        ({"sample_rate": math.nan}, HyperparameterError, "value-illegal"),
        ({"sample_rate": 1.01}, HyperparameterError, "value-illegal"),
        ({"noise_multiplier": math.nan, "private": False}, HyperparameterError, "value-illegal"),
        ({"method": "dp_sdg"}, HyperparameterError, "method-unknown"),
        ({"parameters": {"smoothing_radius": 1.0}}, HyperparameterError, "parameter-unknown"),
        ({"device": "tpu"}, HyperparameterError, "value-illegal"),
        ({"precision": "float16"}, HyperparameterError, "value-illegal"),
        ({"parameters": {"augmentation": "flip"}}, HyperparameterError, "augmentation-needs-images"),
        ({"parameters": {"augmentation_multiplicity": 2}}, HyperparameterError, "copies-without-augmentation"),
    ],
)
def test_gates(
    changes: dict[str, Any], error: type[Exception], code: str, trained: Trained, charge: CountingCharge
) -> None:
    with raises_code(error, code):
        trained(0, **changes)
    assert charge.leases == []


def test_a_sealed_run_that_is_made_again_is_the_same_run(make_spec: MakeSpec) -> None:
    """From the beginning and from a checkpoint; every other training that repeats steps draws them anew."""
    spec = make_spec(steps=12)
    sealed = replace(spec, replay_key=bytes(range(32)))

    def trained(of: TrainingSpec, *, lose_at: int | None = None) -> torch.Tensor:
        training = PrivateTraining(of, CountingCharge())
        training.run_to(5)
        if lose_at is not None:
            state = training.state_dict()
            training.run_to(lose_at)
            training = PrivateTraining(of, CountingCharge())
            training.load_state_dict(state)
        training.run_to(12)
        return raw(training)

    once = trained(sealed)
    assert torch.equal(trained(sealed), once)
    assert torch.equal(trained(sealed, lose_at=8), once)
    assert not torch.equal(trained(replace(sealed, replay_key=bytes(32))), once)
    assert not torch.equal(trained(spec), trained(spec))
    assert "replay_key" not in repr(sealed)


def test_a_training_takes_the_weights_of_a_checkpoint_and_nothing_else_of_it(
    trained: Trained, make_spec: MakeSpec, tmp_path: Path
) -> None:
    first = trained(20)
    first.save(tmp_path / "step-00000020.pt")
    start = str(tmp_path / "step-00000020.pt")
    of = spec_fingerprint(first.spec)
    second = PrivateTraining(make_spec(noise_multiplier=0.5, steps=40, initial=start, initial_of=of), CountingCharge())
    assert torch.equal(raw(second), raw(first))
    assert (second.step, second.noise_draws) == (0, 0)
    mine, other = second.state_dict()["secret"], first.state_dict()["secret"]
    assert not torch.equal(mine["key"], other["key"]), "the noise has a key of its own"
    second.run_to(40)
    second.save(tmp_path / "step-00000040.pt")
    again = PrivateTraining(make_spec(noise_multiplier=0.5, steps=40), CountingCharge(leases=[40]))
    again.load(tmp_path / "step-00000040.pt")
    assert torch.equal(raw(again), raw(second)), "a checkpoint of the run needs the start no more"
    with raises_code(InfrastructureError, "checkpoint-damaged"):  # the search has charged another training
        PrivateTraining(make_spec(initial=start, initial_of=spec_fingerprint(second.spec)), CountingCharge())
    Path(start).write_bytes(b"torn")
    with raises_code(InfrastructureError, "checkpoint-damaged"):
        PrivateTraining(make_spec(initial=start, initial_of=of), CountingCharge())
