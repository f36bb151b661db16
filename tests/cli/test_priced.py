"""Sweeps whose trials differ in what they cost, or whose scores are protected: from the file to the ledger and back."""

from __future__ import annotations

from typing import Any

import pytest
from command_fakes import Tune

from tuner.privacy.accountant.mechanism import SampledGaussian

SIZE = 1261  # of digits, after the validation split
MENU = {"learning_rate": {"log_uniform": [0.1, 2.0]}, "batch_size": {"choice": [64, 128]}}
SPACES: dict[str, dict[str, Any]] = {
    "coupon_book": MENU,
    "fixed_order": {**MENU, "batch_size": {"log_integer": [64, 256]}},
    "total_steps": {"learning_rate": {"log_uniform": [0.1, 2.0]}, "epochs": {"uniform": [0.5, 2.0]}},
}
PROTECTED = {"fraction": 0.1, "protected": True, "epsilon": 2.0}


@pytest.mark.parametrize("cap", SPACES)
@pytest.mark.parametrize("noise", ["auto", 2.0])
def test_every_trial_pays_for_its_own_steps_of_its_own_mechanism(tune: Tune, cap: str, noise: object) -> None:
    file = tune.write(search__space=SPACES[cap], search__trials=4, privacy__noise_multiplier=noise)
    plan = tune("plan", file, "--json").json
    assert plan["cap"] == cap
    told = tune("run", file, "--local", "--json").json
    (sweep,) = tune.sweeps
    state = tune.search_state(sweep.name)
    assert state.filter.kind == cap
    assert state.filter.claim(1e-5) <= 8.5
    assert len(told["trials"]) == 4
    for trial in told["trials"]:
        batch, epochs = trial["parameters"].get("batch_size", 128), trial["parameters"].get("epochs", 1)
        steps = max(1, round(epochs * SIZE / batch))
        paid = state.trials[trial["id"]]
        assert (trial["step"], trial["steps_planned"], paid.leased, paid.outstanding) == (steps, steps, steps, 0)
        assert paid.mechanism == SampledGaussian(batch / SIZE, plan["noise_multiplier"])
    assert state.status == "closed"
    assert len(tune.mlflow_runs()) == 5


def test_a_priced_sweep_goes_on_and_keeps_its_cap(tune: Tune) -> None:
    file = tune.write(search__space=MENU, search__trials=2, privacy__noise_multiplier="auto", privacy__epsilon=3.0)
    tune("run", file, "--local", "--quiet")
    (sweep,) = tune.sweeps
    before = tune.search_state(sweep.name).filter
    tune("resume", "tiny", "--local", "--set", "search.trials=30", code=None)
    after = tune.search_state(sweep.name)
    assert after.filter == before
    for mechanism, quota in before.quotas:
        assert after.training.leased.get(mechanism, 0) <= quota
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert status["state"] == "budget reached"


@pytest.mark.parametrize("space", [SPACES["total_steps"], MENU], ids=["lengths", "menu"])
def test_every_protected_score_is_paid_for(tune: Tune, space: dict[str, Any]) -> None:
    file = tune.write(
        search__space=space, search__trials=3, dataset__validation=PROTECTED, privacy__noise_multiplier="auto"
    )
    told = tune("run", file, "--local", "--json").json
    (sweep,) = tune.sweeps
    state = tune.search_state(sweep.name)
    assert state.validation.leased_steps == 3 * 2, "two rungs a trial"
    assert state.validation_claim == (2.0, 1e-5)
    assert state.validation.filter.claim(1e-5) <= 2.0
    assert all(score["score"] is not None for score in told["trials"])
    assert state.validation.filter.step_cap == 3 * 2 + 1
    assert told["budget"]["validation"]["spent_steps"] == 6


def test_a_domain_of_the_noise_may_stand_in_its_section(tune: Tune) -> None:
    file = tune.write(search__trials=3, privacy__noise_multiplier={"choice": [2.0, 4.0]})
    told = tune("run", file, "--local", "--json").json
    (sweep,) = tune.sweeps
    state = tune.search_state(sweep.name)
    assert state.filter.kind == "coupon_book"
    for trial in told["trials"]:
        assert state.trials[trial["id"]].mechanism.noise_multiplier == trial["parameters"]["noise_multiplier"]
