"""Conformance: a plain `study.optimize`, the local executor and Ray produce the same study, one trial at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from sweep_fakes import RUNGS, FakeSpace, MostRunning, Sweep, facts, score, states

from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.types import StopReason

PRUNERS = {
    "median": {"n_startup_trials": 3},
    "successive_halving": {"reduction_factor": 2},
    "hyperband": {"reduction_factor": 2},
    "patient": {"wrapped_pruner": {"name": "median", "n_startup_trials": 2}, "patience": 0},
}
SAMPLERS = ["tpe", "random"]
TRIALS = 18


class PlainSuggest:
    """The space through Optuna's own calls, independent of the driver."""

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
            if trial.should_prune() and step < RUNGS[-1]:  # a trial that has run to its end is complete
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
    trials = driver.study.get_trials()
    steps = sum(max(trial.intermediate_values) for trial in trials)
    assert ours.ledger.leased() == ours.draws == steps, "pruned steps are not charged"
    assert ours.ledger.outstanding() == {}
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert all(f"at step {trial.last_step} of" in trial.user_attrs["reason"] for trial in pruned)


@pytest.mark.slow
@pytest.mark.parametrize("pruner", PRUNERS)
def test_ray_is_study_optimize(tmp_path: Path, ray_two_slots: None, pruner: str) -> None:
    expected = facts(plain(pruner, "tpe"))
    ours = sweep(tmp_path, pruner, "tpe")
    driver = ours.driver()
    assert ours.run_ray(driver).reason is StopReason.DONE
    assert facts(driver.study) == expected


def unimodal(folder: Path) -> Sweep:
    storage = optuna.storages.InMemoryStorage()
    pruner: tuple[str, dict[str, object]] = ("unimodal", {"risk": 0.2})
    return Sweep(folder, trials=TRIALS, pruner=pruner, sampler="unimodal", storage=storage, when_sure="replicate")


@pytest.mark.parametrize(
    "pruner",
    [
        pytest.param(("asha", {"reduction_factor": 2}), marks=pytest.mark.slow),
        pytest.param(("none", {}), marks=pytest.mark.slow),
        pytest.param(("median", {"n_startup_trials": 1}), marks=pytest.mark.slow),
    ],
)
def test_a_rung_wise_search_is_the_same_on_ray(
    tmp_path: Path, ray_two_slots: None, pruner: tuple[str, dict[str, object]]
) -> None:
    options = {"trials": 6, "cap": 300, "full_runs": 3.0, "pruner": pruner}
    local, on_ray = Sweep(tmp_path / "local", **options), Sweep(tmp_path / "ray", **options)
    local.run_local()
    on_ray.run_ray()
    assert facts(on_ray.study()) == facts(local.study())
    assert on_ray.draws == on_ray.ledger.leased() == local.ledger.leased() <= 300
    two = Sweep(tmp_path / "two", **options)
    two.run_ray(concurrent_trials=2)
    assert "COMPLETE" in states(two)
    assert two.draws == two.ledger.leased() <= 300
    assert two.ledger.outstanding() == {}
    if pruner[0] != "median":  # its decisions depend on who has reported
        assert sorted(facts(two.study())) == sorted(facts(local.study()))


@pytest.mark.slow
def test_a_unimodal_search_is_the_same_on_ray(tmp_path: Path, ray_two_slots: None) -> None:
    here, there = unimodal(tmp_path / "here"), unimodal(tmp_path / "there")
    drivers = [here.driver(), there.driver()]
    assert here.run_local(drivers[0]).reason is StopReason.DONE
    assert there.run_ray(drivers[1]).reason is StopReason.DONE
    found = [facts(driver.study) for driver in drivers]
    assert found[0] == found[1]
    trials = drivers[0].study.get_trials()
    assert {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}
    assert any("replica_of" in trial.user_attrs for trial in trials)


@pytest.mark.slow
def test_a_unimodal_search_limits_concurrent_trials(tmp_path: Path, ray_two_slots: None) -> None:
    watch = MostRunning()
    ours = unimodal(tmp_path)
    ours.observers, ours.trials = (watch,), 6
    driver = ours.driver()
    for each in driver.study.sampler.each:
        each.rules = replace(each.rules, at_once=1)
    assert ours.run_ray(driver, concurrent_trials=2).reason is StopReason.DONE
    assert watch.most == 1
    assert ours.ledger.outstanding() == {}
