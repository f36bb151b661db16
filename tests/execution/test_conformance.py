"""One trial at a time, a plain `study.optimize`, the local executor and Ray leave the same study behind."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from sweep_fakes import RUNGS, FakeSpace, Sweep, facts, score

from tuner.search.pruners import make_pruner
from tuner.search.samplers import make_sampler
from tuner.search.types import StopReason

PRUNERS = {
    "median": {"n_startup_trials": 3},
    "successive_halving": {"reduction_factor": 2},
    "hyperband": {"reduction_factor": 2},
    "patient": {"wrapped_pruner": {"name": "median", "n_startup_trials": 2}, "patience": 1},
}
SAMPLERS = ["tpe", "random"]
TRIALS = 18


class PlainSuggest:
    """The space asked through Optuna's own calls, written apart from the driver's."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return self.trial.suggest_float(name, low, high, log=log)

    def choice(self, name: str, options: tuple[object, ...]) -> object:
        return self.trial.suggest_categorical(name, options)


def plain(pruner: str, sampler: str) -> optuna.Study:
    study = optuna.create_study(
        study_name="sweep",
        direction="maximize",
        sampler=make_sampler(sampler, seed=3),
        pruner=make_pruner(pruner, PRUNERS[pruner], rung_steps=RUNGS),
    )

    def objective(trial: optuna.Trial) -> float:
        parameters = FakeSpace().sample(PlainSuggest(trial))
        for step in RUNGS:
            trial.report(score(parameters, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return score(parameters, RUNGS[-1])

    study.optimize(objective, n_trials=TRIALS)
    return study


def sweep(folder: Path, pruner: str, sampler: str) -> Sweep:
    storage = optuna.storages.InMemoryStorage()
    return Sweep(folder, trials=TRIALS, pruner=(pruner, PRUNERS[pruner]), sampler=sampler, storage=storage)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("pruner", PRUNERS)
def test_local_is_study_optimize(tmp_path: Path, pruner: str, sampler: str) -> None:
    expected = facts(plain(pruner, sampler))
    states = {state for _, state, *_ in expected}
    assert states == {"COMPLETE", "PRUNED"}, "the comparison says little unless some trials are pruned and some not"
    ours = sweep(tmp_path, pruner, sampler)
    driver = ours.driver()
    assert ours.run_local(driver).reason is StopReason.DONE
    assert facts(driver.study) == expected


@pytest.mark.parametrize("pruner", PRUNERS)
def test_ray_is_study_optimize(tmp_path: Path, ray_two_slots: None, pruner: str) -> None:
    expected = facts(plain(pruner, "tpe"))
    ours = sweep(tmp_path, pruner, "tpe")
    driver = ours.driver()
    assert ours.run_ray(driver).reason is StopReason.DONE
    assert facts(driver.study) == expected


@pytest.mark.parametrize("pruner", PRUNERS)
def test_what_is_pruned_is_not_paid(tmp_path: Path, pruner: str) -> None:
    ours = sweep(tmp_path, pruner, "tpe")
    driver = ours.driver()
    ours.run_local(driver)
    steps = sum(max(t.intermediate_values) for t in driver.study.get_trials())
    assert ours.ledger.leased() == ours.draws == steps < TRIALS * RUNGS[-1]
    assert ours.ledger.outstanding() == {}
    pruned = [trial for trial in driver.study.get_trials() if trial.state.name == "PRUNED"]
    assert all(f"at step {trial.last_step} of" in trial.user_attrs["reason"] for trial in pruned)
