"""One ε everywhere: plan, ledger, MLflow, status and card; and the steps charged are the draws of noise made."""

from __future__ import annotations

import json
from pathlib import Path

import dp_accounting
import pytest
from command_fakes import STEPS, Tune
from dp_accounting.pld import PLDAccountant

from trainables.engine import step as engine_step
from trainables.engine.sums import LARGE
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import discretisation_error


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The standard deviation of every draw of noise that is really made."""
    made: list[float] = []
    real = engine_step.add_noise

    def counted(clipped: object, *, standard_deviation: float, **others: object) -> object:
        made.append(standard_deviation)
        return real(clipped, standard_deviation=standard_deviation, **others)

    monkeypatch.setattr(engine_step, "add_noise", counted)
    return made


def independent(plan: dict[str, float], steps: int) -> float:
    """ε by dp_accounting alone, from rate, noise and steps, on a grid of 1e-4."""
    accountant = PLDAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4
    )
    one = dp_accounting.PoissonSampledDpEvent(
        plan["sample_rate"], dp_accounting.GaussianDpEvent(plan["noise_multiplier"])
    )
    return float(accountant.compose(one, steps).get_epsilon(plan["delta"]))


def test_plan_ledger_mlflow_status_and_card_say_one_epsilon(tune: Tune, draws: list[float]) -> None:
    file = tune.write(privacy__noise_multiplier="auto", privacy__epsilon=3.0)
    plan = tune("plan", file, "--json", "--no-timing").json
    report = tune("run", file, "--local", "--json").json
    sweep = report["sweep"]
    assert plan["step_cap"] == 2 * STEPS
    assert len(draws) == 2 * STEPS, "no trial was pruned"
    (deviation,) = set(draws)
    # The clipping norm is 1; what rounding may add to the sensitivity is covered on top.
    assert plan["noise_multiplier"] <= deviation <= plan["noise_multiplier"] * (1 + LARGE.slack)
    state = tune.search_state(sweep)
    assert state.leased_steps == len(draws)
    assert (state.epsilon, state.delta, state.filter.step_cap) == (plan["epsilon"], plan["delta"], plan["step_cap"])
    assert state.mechanism.noise_multiplier == plan["noise_multiplier"]

    runs = {run.data.tags["dp_tuner.trial"]: run.data for run in tune.mlflow_runs()}
    parent = runs.pop("-")
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    tune("export", "tiny")
    card = json.loads(Path("exports/tiny/privacy_card.json").read_text())
    said = {
        "plan": plan["epsilon_planned"],
        "cap of the plan": plan["epsilon_at_cap"],
        "ledger": tune("budget", "--json", "show", "digits").json["datasets"][0]["odometer"]["epsilon_spent"],
        "mlflow": parent.metrics["epsilon_spent"],
        "status": status["budget"]["epsilon_spent"],
        "run": report["budget"]["epsilon_spent"],
        "card": card["training_cap"]["epsilon_at_cap"],
    }
    assert max(said.values()) - min(said.values()) <= 1e-9, said
    caps = [plan["epsilon"], state.epsilon, parent.metrics["epsilon_cap"], status["budget"]["epsilon_cap"]]
    assert {*caps, card["claim"]["epsilon"]} == {3.0}
    assert said["plan"] <= 3.0

    assert len(runs) == 2
    for run in runs.values():
        assert run.metrics["epsilon_trial"] == pytest.approx(plan["epsilon_trial"], abs=1e-9)
        assert run.metrics["steps_charged"] == STEPS
    assert max(run.metrics["epsilon_search"] for run in runs.values()) == pytest.approx(said["plan"], abs=1e-9)
    assert card["winner"]["single_run_epsilon"] == pytest.approx(plan["epsilon_trial"], abs=1e-9)

    mechanism = SampledGaussian(plan["sample_rate"], plan["noise_multiplier"])
    for claimed, steps in ((plan["epsilon_trial"], STEPS), (plan["epsilon_planned"], 2 * STEPS)):
        # Ours is on a finer grid: it lies below the independent one, by no more than what that grid adds.
        other = independent(plan, steps)
        assert abs(claimed - other) <= discretisation_error(mechanism, steps, plan["delta"]) + 2e-3


def test_a_pruned_trial_is_charged_for_what_it_drew(tune: Tune, draws: list[float]) -> None:
    # No score reaches 1.1, so every trial is stopped at its first report, half way.
    file = tune.write(search__pruner={"name": "threshold", "lower": 1.1})
    report = tune("run", file, "--local", "--json").json
    assert [trial["state"] for trial in report["trials"]] == ["pruned", "pruned"]
    state = tune.search_state(report["sweep"])
    assert state.leased_steps == len(draws) == STEPS
    assert state.reserved_steps == 0, "what a pruned trial did not take is back in the budget"
    assert report["budget"]["epsilon_spent"] < tune("plan", file, "--json", "--no-timing").json["epsilon_planned"]


def test_a_study_that_is_not_private_charges_nothing_and_claims_nothing(tune: Tune) -> None:
    file = tune.write(privacy__private=False, privacy__noise_seed=1)
    said = tune("run", file, "--local")
    assert "NOT PRIVATE" in said.text
    assert tune.entries == []
    tune("resume", "tiny", "--local", "--set", "search.trials=3")
    assert tune.entries == []
    assert "[sweep-not-private]" in tune("export", "tiny", code=2).err
    assert not Path("exports").exists()
    folders = tune.sweeps
    file = tune.write(search__trials=1, search__space={"learning_rate": 0.5}, privacy__private=False)
    assert "[train-not-private]" in tune("train", file, "--local", code=2).err
    assert tune.sweeps == folders, "refused before anything is trained"
