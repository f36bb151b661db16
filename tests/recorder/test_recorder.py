"""The recorder without a network: the records in the spool, and their content in MLflow after sending."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from errors_helper import raises_code
from recorder_fakes import URI, FakeBudget, FakeMLflow, metric, recorder, run_trial, sent, small_sweep, sweep, trial

from tuner.errors import SweepInterrupted, TrackingError
from tuner.recorder.recorder import MLflowRecorder
from tuner.recorder.spool import read_spool
from tuner.study.types import TrialStatus


def test_a_tag_of_the_parent_run_may_change(tmp_path: Path) -> None:
    budget = FakeBudget()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        observer.tag("unimodal", "holds")
        run_trial(observer, budget, 0)
        observer.tag("unimodal", "rejected: " + "why " * 4000)
    state = sent(tmp_path).state()
    tags = state["-"][2]
    assert tags["unimodal"].startswith("rejected: why")
    assert len(tags["unimodal"]) <= 8000
    assert tags["state"] == "done"
    assert "unimodal" not in state["t0"][2]


def test_a_sweep_is_a_parent_with_its_trials_their_states_and_the_ledgers_epsilon(tmp_path: Path) -> None:
    budget = small_sweep(tmp_path)
    server = sent(tmp_path)
    state = server.state()
    assert {name: (status, tags["state"]) for name, (status, _, tags, _) in state.items()} == {
        "-": ("FINISHED", "budget reached"),
        "t0": ("FINISHED", "complete"),
        "t1": ("FINISHED", "complete"),
        "t2": ("FINISHED", "pruned"),
        "t3": ("FAILED", "failed"),
    }
    best = {name: tags.get("best") for name, (_, _, tags, _) in state.items()}
    assert best == {"-": None, "t0": "0", "t1": "1", "t2": "0", "t3": "0"}
    parent = next(name for name, run in server.runs.items() if run.data.tags["dp_tuner.trial"] == "-")
    for number in range(4):
        _, params, tags, _ = state[f"t{number}"]
        assert tags["mlflow.parentRunId"] == parent
        assert params == {"learning_rate": repr(0.1 + number), "schedule": "constant"}
    assert state["-"][1] == {"privacy.epsilon": "8.0", "privacy.delta": "1e-05", "search.trials": "3"}
    # To the last digit:
    assert metric(server, "t1", "epsilon_trial") == {50: budget.epsilon(50), 100: budget.epsilon(100)}
    assert metric(server, "t1", "epsilon_search") == {50: budget.epsilon(150), 100: budget.epsilon(200)}
    spent = metric(server, "-", "epsilon_spent")
    assert spent == {steps: budget.epsilon(steps) for steps in range(0, 401, 50)}
    assert set(metric(server, "-", "epsilon_cap").values()) == {budget.epsilon(budget.cap)}


def test_a_trial_has_all_that_decides_it_and_what_was_searched_counts(tmp_path: Path) -> None:
    settings = {
        "seed": 3, "dataset": {"name": "digits", "path": None}, "privacy": {"epsilon": 8.0, "noise_multiplier": 1.5},
        "trainable": {"method": "dplis", "model": "own:net", "batch_size": 64, "epochs": 2.0, "freeze": []},
    }  # fmt: skip
    info = sweep(URI, settings=settings)
    searched = trial(0, parameters={"batch_size": 128, "learning_rate": 0.5})
    expected = {
        "dataset": "digits", "method": "dplis", "model": "own:net", "batch_size": "128", "epochs": "2.0",
        "noise_multiplier": "1.5", "seed": "3", "learning_rate": "0.5",
    }  # fmt: skip
    assert info.trial_settings(searched) == expected
    committed = trial(1, parameters={"learning_rate": 0.5}, committed=True)
    assert "noise_multiplier" not in info.trial_settings(committed), "its noise is another one"


def test_metrics_that_depend_on_private_records_are_withheld(tmp_path: Path) -> None:
    private = ("training_loss", "grad_norm", "batch_size", "samples_per_second", "clipped_fraction")
    metrics = {"validation_accuracy": 0.5, **dict.fromkeys(private, 123.456)}
    with recorder(tmp_path, URI, FakeBudget(), send=False) as observer:
        observer.trial_started(trial(0))
        observer.trial_reported(trial(0, step=50), 50, metrics)
        observer.trial_finished(trial(0, TrialStatus.FAILED, step=50, reason="ValueError: a batch of 123.456 records"))
        assert observer.withheld == set(private)
    spool = (tmp_path / "spool.jsonl").read_text()
    assert "validation_accuracy" in spool
    assert [name for name in (*private, "123.456") if name in spool] == []


def test_a_sweep_that_is_not_private_has_no_epsilon(tmp_path: Path) -> None:
    with MLflowRecorder(tmp_path, sweep(URI), budget=None, send=False) as observer:
        run_trial(observer, FakeBudget(), 0)
    server = sent(tmp_path)
    assert "`private: false`" in server.state()["-"][2]["mlflow.note.content"]
    assert not any("epsilon" in key for run in server.state().values() for key, *_ in run[3])


@pytest.mark.parametrize(
    ("error", "status", "state"),
    [
        (KeyboardInterrupt(), "KILLED", "interrupted"),
        (SweepInterrupted("interrupted", "stopped"), "KILLED", "interrupted"),
        (RuntimeError("a secret"), "FAILED", "failed"),
    ],
)
def test_however_a_sweep_ends_nothing_is_left_running(
    tmp_path: Path, error: BaseException, status: str, state: str
) -> None:
    budget = FakeBudget()

    def run() -> None:
        with recorder(tmp_path, URI, budget, send=False) as observer:
            observer.trial_started(trial(0))
            raise error

    with pytest.raises(type(error)):
        run()
    seen = sent(tmp_path).state()
    assert (seen["-"][0], seen["-"][2]["state"]) == (status, state)
    assert (seen["t0"][0], seen["t0"][2]["state"]) == ("KILLED", "interrupted")
    assert "secret" not in str(seen)


@pytest.mark.parametrize(("later", "winner"), [(0.6, "t0"), (0.8, "t1")])
def test_a_resume_goes_on_in_the_same_runs(tmp_path: Path, later: float, winner: str) -> None:
    budget, server = FakeBudget(), FakeMLflow()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        run_trial(observer, budget, 0, score=0.7)
        observer.trial_started(trial(1))
        observer.finish("interrupted")
    sent(tmp_path, server)
    assert server.state()["t1"][0] == "KILLED"
    assert server.state()["t0"][2]["best"] == "1"
    more = {"privacy": {"epsilon": 8.0, "delta": 1e-5}, "search": {"trials": 5}}
    with recorder(tmp_path, URI, budget, send=False, settings=more) as observer:
        sent(tmp_path, server)
        assert server.state()["-"][0] == "RUNNING"
        assert server.state()["t0"][2]["best"] == "0", "the sweep has no winner yet"
        run_trial(observer, budget, 1, score=later)
    sent(tmp_path, server)
    state = server.state()
    assert set(state) == {"-", "t0", "t1"}
    assert [run.info.status for run in server.runs.values()] == ["FINISHED"] * 3
    assert state["-"][2]["best_trial"] == winner, "the first part of the sweep still counts"
    assert {name for name in state if state[name][2].get("best") == "1"} == {winner}
    assert metric(server, "-", "trials_done")[200] == 2
    assert (state["-"][1]["search.trials"], state["-"][2]["resumed.search.trials"]) == ("3", "5")


def test_a_disk_that_refuses_stops_the_sweep_with_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    def run() -> None:
        with recorder(tmp_path, URI, FakeBudget(), send=False) as observer:
            observer.trial_started(trial(0))
            monkeypatch.setattr(os, "pwrite", refuse)
            observer.trial_reported(trial(0, step=50), 50, {"validation_accuracy": 0.5})

    with raises_code(TrackingError, "disk-full"):
        run()
    monkeypatch.undo()
    assert [entry.record["kind"] for entry in read_spool(tmp_path / "spool.jsonl")] == [
        "sweep_started",
        "trial_started",
    ]


def test_protected_scores_and_whom_the_guarantee_protects_are_told(tmp_path: Path) -> None:
    budget = FakeBudget()
    whole = budget.view

    def with_scores(*, live: bool = False, compose: bool = True) -> object:
        view = whole()
        view.step_cap = None
        view.validation = SimpleNamespace(spent_steps=3, epsilon_spent=0.25)
        return view

    budget.view = with_scores  # type: ignore[method-assign]
    settings = {"privacy": {"unit": "user"}}
    with recorder(tmp_path, URI, budget, send=False, settings=settings) as observer:
        run_trial(observer, budget, 0)
    server = sent(tmp_path)
    _, _, tags, _ = server.state()["-"]
    assert set(metric(server, "-", "scores_spent").values()) == {3.0}
    assert set(metric(server, "-", "epsilon_scores").values()) == {0.25}
    note = tags["mlflow.note.content"]
    assert "one user" in note
    assert "None" not in note
    assert metric(server, "t0", "learning_rate_now") == {50: 0.1, 100: 0.1}
    assert metric(server, "t0", "learning_rate") == {}, "that is a parameter"
