"""A search along one top, from an experiment file to its end: excluded trials, reasons, stopping, a kill, its curve."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import optuna
import pytest
from command_fakes import STEPS, Tune, until

from tuner.study import candidates as drawing
from tuner.study.storage import open_storage

SPACE = {"smoothing_radius": {"uniform": [0, 100]}, "smoothing_samples": 1, "learning_rate": 0.5}
# Stern: once three trials are complete, every candidate is excluded that is not next to the best one.
STERN = {"name": "unimodal", "tolerance": 0.005, "risk": 0.99}
# Easy: sure after the first two trials and one in each of the three gaps that these leave.
EASY = {"name": "unimodal", "tolerance": 0.9, "sure": 0.01, "at_once": 1}


def write(tune: Tune, **changes: object) -> str:
    values = {"trainable__method": "dplis", "search__sampler": "unimodal", "search__space": SPACE, **changes}
    return tune.write(**values)


def study_of(folder: Path) -> list[optuna.trial.FrozenTrial]:
    study = optuna.load_study(study_name=folder.name, storage=open_storage(folder))
    return study.get_trials()


def settled(tune: Tune, sweep: str) -> Any:  # noqa: ANN401
    state = tune.search_state(sweep)
    assert all(trial.settled for trial in state.trials.values())
    assert state.status == "closed"
    return state


def test_a_sweep_excludes_trials_before_they_start_and_says_why_it_stops_others(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With many tries a candidate next to the best one is drawn, and it runs to its end.
    monkeypatch.setattr(drawing, "TRIES", 2)
    name = write(tune, seed=1, search__trials=8, search__sampler="random", search__pruner=STERN, privacy__epsilon=20.0)
    said = tune("run", name, "--local")
    (folder,) = tune.sweeps
    excluded = [trial for trial in study_of(folder) if "rejected" in trial.user_attrs]
    assert excluded
    assert {trial.state.name for trial in excluded} == {"PRUNED"}
    for trial in excluded:
        assert trial.user_attrs["reason"].endswith("before its first step")
        assert "trial_id" not in trial.user_attrs
        assert trial.intermediate_values == {}
    shown = tune("show", "tiny", "--json").json["trials"]
    assert len(shown) == 8, "what never started is none of the trials"
    pruned = [row for row in shown if row["state"] == "pruned"]
    assert pruned
    for row in pruned:
        assert "smoothing_radius" in row["reason"]
        assert row["reason"].endswith("after 50 % of its steps")
        assert row["step"] == STEPS // 2
    state = settled(tune, folder.name)
    assert len(state.trials) == 8
    assert sum(trial.leased for trial in state.trials.values()) == sum(row["step"] for row in shown)
    runs = [run.data.tags for run in tune.mlflow_runs()]
    assert {tags["reason"] for tags in runs if tags["state"] == "pruned"} == {row["reason"] for row in pruned}
    assert pruned[0]["reason"] in said.text
    assert pruned[0]["reason"] in tune("show", "tiny", str(pruned[0]["number"])).text


def test_a_sweep_that_is_sure_ends_keeps_its_budget_and_goes_on_when_it_is_told_to(tune: Tune) -> None:
    thirds = SPACE | {"smoothing_radius": {"uniform": [1, 100]}}  # lacks the first of the usual starts
    stops = {"search__trials": 8, "search__sampler": EASY, "search__when_sure": "stop"}
    name = write(tune, **stops, search__space=thirds, privacy__epsilon=20.0)
    said = tune("run", name, "--local")
    (folder,) = tune.sweeps
    cap = json.loads((folder / "plan.json").read_text())["step_cap"]
    taken = sum(trial.leased for trial in settled(tune, folder.name).trials.values())
    assert 4 * STEPS < taken <= 5 * STEPS, "the last one may be stopped once it has a score"
    assert f"{cap - taken} steps are not spent" in said.text
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert (status["state"], status["trials"]["planned"]) == ("best found", 8)
    (sweep_run,) = [run for run in tune.mlflow_runs() if run.data.tags["state"] == "best found"]
    assert sweep_run.info.status == "FINISHED"
    assert tune("resume", "tiny", "--local", "--json").json["finished_before"] is True
    tune("resume", "tiny", "--local", "--set", "search.when_sure=go_on", "--set", "search.trials=6")
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert status["state"] == "done"
    assert sum(status["trials"].values()) == 2 * 6, "planned and ended"
    tune("export", "tiny")
    exported = (tune.folder / "exports" / "tiny" / "experiment.yaml").read_text()
    assert "when_sure: go_on" in exported
    assert "unimodal" not in exported


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_is_settled(tune: Tune) -> None:
    name = write(tune, search__trials=200, search__sampler="random", search__pruner=STERN, privacy__epsilon=60.0)
    process = tune.process("run", name, "--local")
    until(process, "  2/200 trials")  # excluded ones have numbers, too
    process.send_signal(signal.SIGKILL)  # while others are drawn and excluded
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (folder,) = tune.sweeps
    begun = sum("trial_id" in trial.user_attrs for trial in study_of(folder))
    tune("resume", "tiny", "--local", "--quiet", "--set", f"search.trials={begun + 3}")
    trials = study_of(folder)
    assert all(trial.state.is_finished() for trial in trials)
    assert sum("rejected" in trial.user_attrs for trial in trials) > 0
    assert sum("trial_id" in trial.user_attrs for trial in trials) == begun + 3
    settled(tune, folder.name)


def test_its_curve_is_shown_everywhere_and_reaches_mlflow_after_a_dead_server(tune: Tune) -> None:
    changes = {"search__trials": 3, "search__pruner": "unimodal", "tracking__uri": "http://127.0.0.1:9"}
    told = tune("run", write(tune, **changes), "--local", "--json").json
    assert told["tracking"]["waiting"] > told["tracking"]["sent"] == 0
    (sweep,) = tune.sweeps
    numbers = json.loads((sweep / "curves" / "smoothing_radius.json").read_text())
    shown = tune("show", "tiny", "--json").json
    places = [(row["parameters"]["smoothing_radius"], row["score"]) for row in shown["trials"]]
    assert [(point["value"], point["score"]) for point in numbers["points"]] == [pytest.approx(each) for each in places]
    assert told["curves"] == shown["curves"]
    assert shown["curves"][0]["sentences"] == numbers["sentences"], "the file is of the end"
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert len(status["curves"]) == 1
    tune("report", "tiny")
    page = (sweep / "report.html").read_text()
    assert "<h2>Curve of smoothing_radius</h2>" in page
    budget = status["budget"]
    assert f"Spent so far: {budget['spent_steps']} steps, ε {budget['epsilon_spent']:.4g}." in page
    tune("sync", "tiny", "--uri", "sqlite:///runs/mlflow.db")
    from tuner.recorder.mlflow_store import connect

    (parent,) = (run for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-")
    assert parent.data.tags["unimodal"] == "stands"
    client = connect(f"sqlite:///{tune.folder / 'runs' / 'mlflow.db'}")
    files = [item.path for item in client.list_artifacts(parent.info.run_id, "curves")]
    assert sorted(files) == ["curves/smoothing_radius.json", "curves/smoothing_radius.svg"]
