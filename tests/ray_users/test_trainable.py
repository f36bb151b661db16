"""`dp_trainable` in a Tuner: every draw was leased, the cap holds, and a copied checkpoint draws noise of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from ray.tune import ResultGrid
from ray_fakes import counted, draws, leased, skipping

import trainables.engine.step as engine
from trainables import data
from trainables.charge import NoCharge
from trainables.checkpoint import read_state
from trainables.data import DatasetRequest
from trainables.errors import GateError, TrainableError
from trainables.training import PrivateTraining
from tuner.errors import BudgetRefusedError, InputError, LedgerError, TunerError
from tuner.privacy.ledger.ledger import Ledger
from tuner.ray_users.budget import RunCharge
from tuner.ray_users.trainable import CHECKPOINT, DPTrainable, dp_trainable
from tuner.report.budget import budget_values

pytestmark = pytest.mark.usefixtures("ray_two_slots")

CONFIG = {"learning_rate": 1.0, "max_grad_norm": 1.0}
STEPS = 20
ORIGINAL = engine.add_noise


def made(folder: Path, **others: object) -> type[DPTrainable]:
    asked: dict[str, Any] = {
        "method": "dp_sgd", "dataset": "digits", "ledger": f"sqlite:///{folder}/ledger.db", "epsilon": 3.0,
        "delta": 1e-5, "batch_size": 128, "steps": STEPS, "full_runs": 2,
    }  # fmt: skip
    return dp_trainable(**(asked | others))


def run(trainable: type[DPTrainable], folder: Path, scheduler: object, trials: int, **config: object) -> ResultGrid:
    from ray import tune

    return tune.Tuner(
        trainable,
        param_space={**CONFIG, "learning_rate": tune.loguniform(0.1, 5), **config},
        tune_config=tune.TuneConfig(
            metric="validation_accuracy", mode="max", num_samples=trials, scheduler=scheduler, reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    folder = tmp_path / "draws"
    folder.mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.timeout(300)  # workers start slowly on a busy machine
def test_concurrent_trials_under_asha_stay_within_the_cap_and_every_draw_was_leased(
    tmp_path: Path, counts: Path
) -> None:
    from ray.tune.schedulers import ASHAScheduler

    trainable = made(tmp_path)
    budget = trainable.budget
    scheduler = ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2)
    results = run(counted(trainable, counts), tmp_path, scheduler, 4)
    assert draws(counts) == leased(budget.ledger, budget.search)
    # The first of two trials to reach a rung continues. So one trial takes all its steps, another one at least five,
    # and the third does not fit.
    refused = [str(result.error) for result in results if result.error is not None]
    assert len(refused) == 2
    assert all("[cap-exceeded]" in error for error in refused)
    assert len(draws(counts)) == 2
    assert STEPS < sum(draws(counts).values()) <= 2 * STEPS

    budget.close()
    (shown,) = budget_values(budget.ledger, "digits")["datasets"]
    assert shown["committed"]["epsilon"] == 3.0
    assert budget.view().epsilon_spent <= budget.view().epsilon_cap <= 3.0
    assert budget.view().reserved_steps == 0


@pytest.mark.slow
def test_population_based_training_pays_for_every_step_also_of_copied_checkpoints(tmp_path: Path, counts: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    trainable = made(tmp_path, full_runs=20)
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",  # the default is seconds, and a short trial would end before it is compared
        perturbation_interval=1,
        hyperparam_mutations={"learning_rate": tune.loguniform(0.1, 5)},
    )
    rates = [0.01, 1.0]
    results = run(counted(trainable, counts), tmp_path, scheduler, 4, learning_rate=tune.grid_search(rates))
    assert [result.error for result in results if result.error is not None] == []
    assert any(result.config["learning_rate"] not in rates for result in results)  # a checkpoint was copied
    runs = Ledger.open(trainable.budget.ledger).search_state(trainable.budget.search).trials
    assert len(runs) > len(results)
    assert draws(counts) == leased(trainable.budget.ledger, trainable.budget.search)


def test_a_trial_that_restarts_from_a_checkpoint_pays_again_for_what_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(engine, "add_noise", lambda *a, **k: drawn.append(1) or ORIGINAL(*a, **k))
    trainable = made(tmp_path, full_runs=4)
    first = trainable(config=CONFIG)
    first.train()
    first.save(str(tmp_path / "saved"))
    first.train()
    first.stop()
    again = trainable(config=CONFIG)
    again.restore(str(tmp_path / "saved"))
    result = again.train()
    again.stop()
    assert result["trial_step"] == 10
    assert len(drawn) == 15
    view = trainable.budget.view()
    assert (view.spent_steps, view.reserved_steps) == (15, 0)
    assert "secret" not in read_state(tmp_path / "saved" / CHECKPOINT)


def test_trials_on_one_machine_share_the_records(tmp_path: Path) -> None:
    data._loaded.cache_clear()
    trial = made(tmp_path)(config=CONFIG)
    trial.train()
    records = trial._training._records["train"][0]
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "/memfd:dp-tuner-" in line]
    trial.stop()
    data._loaded.cache_clear()
    ranges = [[int(end, 16) for end in fields[0].split("-")] for fields in maps]
    assert any(low <= records.data_ptr() < high for low, high in ranges)


def test_a_checkpoint_of_another_search_or_ledger_is_refused_also_by_rays_name(tmp_path: Path) -> None:
    """The claim of its weights may be larger."""
    dear = made(tmp_path, epsilon=50.0, full_runs=1)
    donor = dear(config=CONFIG)
    donor.train()
    donor.save(str(tmp_path / "saved"))
    donor.stop()
    elsewhere = {"ledger": f"sqlite:///{tmp_path}/another.db", "search": dear.budget.search, "epsilon": 50.0}
    for other in (made(tmp_path, epsilon=0.1), made(tmp_path, **elsewhere)):
        trial = other(config=CONFIG)
        with raises_code(TrainableError, "checkpoint-foreign"):
            trial.restore(str(tmp_path / "saved"))
        trial.stop()
        assert other.budget.view().spent_steps == 0
    assert made(tmp_path).__name__ != dear.__name__, "Ray finds a trainable by its name"


def test_an_older_copy_of_the_ledger_is_refused_with_a_checkpoint_that_it_does_not_know(tmp_path: Path) -> None:
    trainable = made(tmp_path, search="mine")
    older = shutil.copy(tmp_path / "ledger.db", tmp_path / "older.db")
    trial = trainable(config=CONFIG)
    trial.train()
    trial.save(str(tmp_path / "first"))
    trial.restore(str(tmp_path / "first"))
    trial.save(str(tmp_path / "saved"))  # of a run that took no step
    trial.stop()
    shutil.copy(older, tmp_path / "ledger.db")
    trial = made(tmp_path, search="mine")(config=CONFIG)
    with raises_code(TunerError, "search-not-charged"):
        trial.restore(str(tmp_path / "saved"))


def test_a_copy_that_averages_its_weights_starts_the_average_from_those_that_it_gets(tmp_path: Path) -> None:
    trainable = made(tmp_path)
    donor = trainable(config=CONFIG)
    donor.train()
    donor.save(str(tmp_path / "saved"))
    donor.stop()
    copy = trainable(config={**CONFIG, "ema_decay": 0.9})
    copy.restore(str(tmp_path / "saved"))
    reached = read_state(tmp_path / "saved" / CHECKPOINT)["model"]
    assert all(torch.equal(value, copy._training.model.state_dict()[name]) for name, value in reached.items())
    assert copy.train()["trial_step"] == 10
    copy.stop()


@pytest.mark.slow
def test_two_trials_from_one_checkpoint_draw_different_noise(tmp_path: Path) -> None:
    trainable = made(tmp_path, full_runs=4)
    donor = trainable(config=CONFIG)
    donor.save(str(tmp_path / "saved"))  # before its first step, where a stored key would not be seen to be used
    donor.stop()
    reached = []
    for _ in range(2):
        copy = trainable(config=CONFIG)
        copy.restore(str(tmp_path / "saved"))
        copy.train()
        reached.append(copy._training._theta)
        copy.stop()
    assert not torch.equal(*reached)


def test_a_state_with_its_key_would_repeat_the_noise(tmp_path: Path) -> None:
    """The control of the test above: the state that our own sweeps write, copied into two trainings."""
    spec = made(tmp_path).spec
    state = PrivateTraining(spec, NoCharge()).state_dict()
    reached = []
    for _ in range(2):
        copy = PrivateTraining(spec, NoCharge())
        copy.load_state_dict(state)
        copy.run_to(1)
        reached.append(copy._theta)
    assert torch.equal(*reached)


def test_a_trainable_that_skips_the_lease_is_found(tmp_path: Path) -> None:
    trainable = made(tmp_path)
    honest, planted = trainable(config=CONFIG), skipping(trainable)(config=CONFIG)
    honest.train()
    with raises_code(LedgerError, "steps-not-leased"):
        planted.train()
    honest.stop()
    planted.stop()
    assert trainable.budget.view().spent_steps == 5


def test_after_the_end_of_the_search_no_noise_is_drawn(tmp_path: Path) -> None:
    trainable = made(tmp_path)
    running, late = trainable(config=CONFIG), trainable(config=CONFIG)
    running.train()
    trainable.budget.close()
    for each in (running, late):
        with raises_code(TunerError, "charge-actor-lost"):
            each.train()
    assert (running._draws, late._draws) == (5, 0)
    assert trainable.budget.view().spent_steps == 5


def test_a_lost_worker_frees_its_steps_when_its_trial_runs_again(tmp_path: Path) -> None:
    trainable = made(tmp_path, full_runs=2)
    config = {**CONFIG, "__trial_info__": SimpleNamespace(trial_id="one")}
    silent = trainable(config=dict(config))  # Ray takes it for lost, but it still runs
    silent.train()
    again = trainable(config=dict(config))
    again.train()
    assert trainable.budget.view().reserved_steps == STEPS - 5
    with raises_code(LedgerError, "trial-settled"):
        silent.train()
    assert silent._draws == 5


def test_a_trial_whose_end_the_ledger_missed_frees_its_steps_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainable = made(tmp_path)
    running = trainable(config=CONFIG)
    running.train()
    raising = trainable(config=CONFIG)
    raising.train()
    with monkeypatch.context() as patch:
        patch.delattr(RunCharge, "settle")  # as while the actor is away
        patch.delattr(RunCharge, "forfeit")
        running._end()
        raising._end(forfeits=True)
    assert trainable.budget.view().reserved_steps == 2 * (STEPS - 5)
    running.stop()
    assert trainable.budget.view().reserved_steps == STEPS - 5
    raising.stop()
    view = trainable.budget.view()
    assert (view.spent_steps, view.reserved_steps) == (5 + STEPS, 0), "what raised pays for all that it had reserved"


def test_a_trial_that_runs_again_without_room_says_what_to_do(tmp_path: Path) -> None:
    trainable = made(tmp_path, full_runs=1)
    config = {**CONFIG, "__trial_info__": SimpleNamespace(trial_id="one")}
    trainable(config=dict(config)).train()  # its worker is lost before a checkpoint
    again = trainable(config=dict(config))
    with raises_code(BudgetRefusedError, "cap-exceeded") as caught:
        again.train()
    assert "'one' runs again and needs 20 more steps, but only 15 are left" in str(caught.value)
    assert "larger `full_runs`" in str(caught.value)
    assert trainable.budget.view().spent_steps == 5


def test_a_search_is_continued_with_the_same_arguments_only(tmp_path: Path) -> None:
    first = made(tmp_path, search="mine")
    trial = first(config=CONFIG)
    trial.train()  # its worker is then lost
    again = made(tmp_path, search="mine")
    view = again.budget.view()
    assert (view.spent_steps, view.reserved_steps) == (5, 0)
    with raises_code(TunerError, "ledger-mismatch"):
        made(tmp_path, search="mine", model="mlp_64")
    with raises_code(TunerError, "ledger-mismatch"):
        made(tmp_path, search="mine", epsilon=4.0)
    with raises_code(TunerError, "ledger-mismatch"):
        made(tmp_path, search="mine", reports=5)


def test_a_data_set_without_room_refuses_before_the_first_trial(tmp_path: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    ledger.set_cap("digits", 2.0, 1e-5)
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        made(tmp_path)
    assert ledger.dataset_state("digits").searches == ()


@pytest.mark.parametrize(
    ("others", "kind", "code"),
    [
        ({"method": "pate"}, InputError, "ray-method"),
        ({"dataset": DatasetRequest(name="digits", unit="user")}, InputError, "ray-unit"),
        ({"dataset": None}, InputError, "ray-dataset"),
        ({"reports": STEPS + 1}, InputError, "ray-reports"),
        ({"full_runs": 0.5}, InputError, "ray-full-runs"),
        ({"full_runs": float("nan")}, InputError, "ray-full-runs"),
        ({"steps": 0}, InputError, "count-out-of-range"),
        ({"seed": 1.5}, InputError, "ray-seed"),
        ({"search": ""}, InputError, "ledger-name-invalid"),
        ({"metric": "validation_perplexit"}, TrainableError, "metric-of-task"),
        ({"optimizer": "lion"}, TrainableError, "value-illegal"),
        ({"dataset": DatasetRequest(name="digits", validation_fraction=0.0)}, TrainableError, "split-empty"),
        ({"dataset": DatasetRequest(name="digits", blocks=("a",))}, InputError, "block-invalid"),
        ({"batch_size": 10**6}, InputError, "sample-rate-out-of-range"),
        ({"epsilon": float("nan")}, InputError, "epsilon-out-of-range"),
        ({"delta": 0}, InputError, "delta-out-of-range"),
        ({"delta": 1e-3}, InputError, "delta-too-large"),
        ({"model": "mlp"}, TrainableError, "model-unknown"),
        ({"model": "ray_fakes:centred"}, GateError, "samples-mixed"),
    ],
)
def test_what_cannot_be_run_is_refused_and_makes_no_ledger(
    tmp_path: Path, others: dict[str, Any], kind: type[Exception], code: str
) -> None:
    with raises_code(kind, code):
        made(tmp_path, **others)
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    ("config", "code"),
    [({"noise_multiplier": 0.1}, "parameter-priced"), ({"learning_rat": 0.1}, "parameter-unknown"),
     ({1: 0.1}, "parameter-unknown"), ({"learning_rate": -1.0}, "value-illegal")],
)  # fmt: skip
def test_a_configuration_that_is_wrong_ends_its_trial_before_a_step(
    tmp_path: Path, config: dict[str, float], code: str
) -> None:
    trainable = made(tmp_path)
    trial = trainable(config={**CONFIG, **config})
    with raises_code(Exception, code):
        trial.train()
    view = trainable.budget.view()
    assert (view.spent_steps, view.reserved_steps) == (0, 0)


def test_a_training_that_raises_is_charged_whole_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("record 7")

    trainable = made(tmp_path)
    trial = trainable(config=CONFIG)
    trial.train()
    monkeypatch.setattr(engine, "add_noise", fails)
    with raises_code(Exception, "records-failed") as caught:
        trial.train()
    assert "record 7" not in str(caught.value)
    assert trainable.budget.view().spent_steps == STEPS
