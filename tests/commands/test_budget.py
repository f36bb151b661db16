"""The caps hold: of the search, of the data set, and what is refused leaves nothing behind."""

from __future__ import annotations

import pytest
from command_fakes import STEPS, Tune


def test_a_tenth_of_the_epsilon_starts_fewer_trials_and_passes_no_cap(tune: Tune) -> None:
    whole = tune("run", tune.write(search__trials=4), "--local", "--json").json
    tenth = tune("run", tune.write(search__trials=4, privacy__epsilon=0.85), "--local", "--json").json
    assert (whole["state"], len(whole["trials"])) == ("done", 4)
    assert (tenth["state"], len(tenth["trials"])) == ("budget reached", 1)
    for report, cap in ((whole, 8.5), (tenth, 0.85)):
        state = tune.search_state(report["sweep"])
        assert report["budget"]["epsilon_cap"] == state.epsilon == cap
        assert report["budget"]["epsilon_spent"] <= cap
        assert state.leased_steps <= state.step_cap
        assert state.status == "closed"
    assert tune.search_state(tenth["sweep"]).leased_steps == STEPS


def test_an_epsilon_that_no_trial_fits_is_refused_and_leaves_nothing(bare: Tune) -> None:
    said = bare("run", bare.write(privacy__epsilon=0.05), "--local", code=3)
    assert "one trial of 10 steps" in said.err
    assert bare.entries == []
    assert bare.sweeps == []
    assert bare.mlflow_runs() == []


@pytest.mark.parametrize("first_use", [True, False], ids=["set before any search", "set after the first"])
def test_the_cap_of_the_data_holds_over_searches(tune: Tune, first_use: bool) -> None:
    file = tune.write(search__trials=1)
    set_cap = ("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")
    if first_use:
        tune(*set_cap)
    tune("run", file, "--local", "--quiet")
    if not first_use:
        tune(*set_cap)
    folders, entries, runs = tune.sweeps, tune.entries, len(tune.mlflow_runs())
    refused = tune("run", file, "--local", code=3)
    assert "digits" in refused.err
    assert "10" in refused.err
    assert (tune.sweeps, tune.entries, len(tune.mlflow_runs())) == (folders, entries, runs)
    shown = tune("budget", "--json").json["datasets"][0]
    assert shown["committed"]["epsilon"] == 8.5
    assert shown["cap"] == {"epsilon": 10.0, "delta": 1e-4}
    assert len(shown["searches"]) == 1
    tune(*set_cap[:4], "20", *set_cap[5:])
    tune("run", file, "--local", "--quiet")


def test_the_second_search_sees_the_first_in_the_total_of_the_data(tune: Tune) -> None:
    file = tune.write(search__trials=1)
    tune("run", file, "--local", "--quiet")
    assert "1 search, committed ε = 8.5" in tune("plan", file, "--no-timing").text
    assert "2 searches, committed ε = 17" in tune("run", file, "--local").text


def test_a_cap_is_set_for_the_owner_of_the_records(bare: Tune) -> None:
    said = bare("budget", "set", "cifar10_10k2k", "--epsilon", "3", "--delta", "1e-5")
    assert "cifar10: " in said.out
    assert [each["dataset"] for each in bare("budget", "--json").json["datasets"]] == ["cifar10"]
    assert "no search has used it" in bare("budget", "set", "digit", "--epsilon", "3", "--delta", "1e-5").out


@pytest.mark.parametrize("epsilon", ["nan", "inf", "-1", "0"])
def test_a_cap_that_is_no_budget_is_refused_before_there_is_a_ledger(bare: Tune, epsilon: str) -> None:
    said = bare("budget", "set", "digits", "--epsilon", epsilon, "--delta", "1e-5", code=2)
    assert "epsilon" in said.err
    assert not (bare.folder / "runs").exists()


def test_the_budget_of_no_ledger_is_no_empty_budget(bare: Tune) -> None:
    assert "a ledger must be there" in bare("budget", code=2).err
    assert not (bare.folder / "runs").exists(), "looking makes nothing"


def test_a_plan_says_that_the_cap_of_the_data_would_refuse_it(tune: Tune) -> None:
    file = tune.write()
    tune("budget", "set", "digits", "--epsilon", "8", "--delta", "1e-4")
    said = tune("plan", file, "--no-timing", code=3)
    assert "must fit its cap" in said.err
    assert "next: tune run" not in said.out
    values = tune("plan", file, "--no-timing", "--json", code=3).json
    assert values["dataset_cap"] == {"epsilon": 8.0, "delta": 1e-4}
    assert "must fit its cap" in values["refused"]
    tune("budget", "set", "digits", "--epsilon", "9", "--delta", "1e-4")
    assert tune("plan", file, "--no-timing", "--json").json["refused"] is None
