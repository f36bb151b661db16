"""The recorder, without a network: what it lets into the spool, and what stands in MLflow when that was sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracking_fakes import FakeBudget, FakeMLflow, recorder, run_trial, sweep, trial

from tuner.errors import SweepInterrupted, TrackingError
from tuner.recorder.recorder import MLflowRecorder
from tuner.recorder.replay import attach, replay
from tuner.recorder.sender import Sender, drain
from tuner.recorder.spool import read
from tuner.study.types import TrialStatus

URI = "sqlite:////nowhere/mlflow.db"


def small_sweep(folder: Path, budget: FakeBudget | None = None) -> FakeBudget:
    budget = budget or FakeBudget()
    with recorder(folder, URI, budget, send=False) as observer:
        run_trial(observer, budget, 0, score=0.7)
        run_trial(observer, budget, 1, score=0.9)
        run_trial(observer, budget, 2, state=TrialStatus.PRUNED, score=0.95)
        run_trial(observer, budget, 3, state=TrialStatus.FAILED, score=float("nan"))
        observer.finish("budget reached")
    return budget


def sent(folder: Path, server: FakeMLflow | None = None) -> FakeMLflow:
    server = server or FakeMLflow()
    drain(folder, connect=server.connect)
    return server


def metric(server: FakeMLflow, run: str, name: str) -> dict[int, float]:
    """Last value by step."""
    points = sorted((step, time, float(value)) for key, value, time, step in server.state()[run][3] if key == name)
    return {step: value for step, _, value in points}


def test_a_tag_of_the_parent_run_may_change(tmp_path: Path) -> None:
    budget = FakeBudget()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        observer.tag("unimodal", "stands")
        run_trial(observer, budget, 0)
        observer.tag("unimodal", "rejected: " + "why " * 4000)
    state = sent(tmp_path).state()
    tags = state["-"][2]
    assert tags["unimodal"].startswith("rejected: why")
    assert len(tags["unimodal"]) <= 8000
    assert tags["state"] == "done"
    assert "unimodal" not in state["t0"][2]


def test_every_trial_gets_its_final_status_and_the_parent_its_own(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    state = sent(tmp_path).state()
    assert {name: (status, tags["state"]) for name, (status, _, tags, _) in state.items()} == {
        "-": ("FINISHED", "budget reached"),
        "t0": ("FINISHED", "complete"),
        "t1": ("FINISHED", "complete"),
        "t2": ("KILLED", "pruned"),
        "t3": ("FAILED", "failed"),
    }


def test_children_point_to_their_parent_and_hold_every_parameter(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    server = sent(tmp_path)
    parent = next(name for name, run in server.runs.items() if run.data.tags["dp_tuner.trial"] == "-")
    state = server.state()
    for number in range(4):
        _, params, tags, _ = state[f"t{number}"]
        assert tags["mlflow.parentRunId"] == parent
        assert params == {"learning_rate": repr(0.1 + number), "schedule": "constant"}
    assert state["-"][1] == {"privacy.epsilon": "8.0", "privacy.delta": "1e-05", "search.trials": "3"}


def test_epsilon_in_tracking_is_the_ledgers_to_the_last_digit(tmp_path: Path) -> None:
    budget = small_sweep(tmp_path)
    server = sent(tmp_path)
    assert metric(server, "t1", "epsilon_trial") == {50: budget.epsilon(50), 100: budget.epsilon(100)}
    assert metric(server, "t1", "epsilon_search") == {50: budget.epsilon(150), 100: budget.epsilon(200)}
    spent = metric(server, "-", "epsilon_spent")
    assert spent == {steps: budget.epsilon(steps) for steps in range(0, 401, 50)}
    assert set(metric(server, "-", "epsilon_cap").values()) == {budget.epsilon(budget.cap)}


def test_a_trial_that_paid_twice_shows_what_it_paid(tmp_path: Path) -> None:
    budget = FakeBudget()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        budget.charge("t0", 130)
        observer.trial_reported(trial(0, step=100), 100, {"validation_accuracy": 0.5})
    server = sent(tmp_path)
    assert metric(server, "t0", "epsilon_trial") == {100: budget.epsilon(130)}
    assert metric(server, "t0", "steps_charged") == {100: 130.0}


def test_the_best_is_among_the_complete_and_pruned_or_nan_scores_never_are(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    server = sent(tmp_path)
    assert metric(server, "-", "best_validation_accuracy") == {200: 0.9, 300: 0.9, 400: 0.9, 100: 0.7}
    assert server.state()["-"][2]["best_trial"] == "t1"
    assert metric(server, "-", "trials_done")[400] == 4
    assert metric(server, "-", "trials_pruned")[400] == 1


def test_for_a_loss_the_best_is_the_smallest(tmp_path: Path) -> None:
    budget = FakeBudget()
    with recorder(tmp_path, URI, budget, send=False, metric="validation_loss", mode="min") as observer:
        for number, score in enumerate((0.5, 0.3, 0.4)):
            run_trial(observer, budget, number, score=score)
    assert sent(tmp_path).state()["-"][2]["best_trial"] == "t1"


@pytest.mark.parametrize("name", ["training_loss", "grad_norm", "batch_size", "samples_per_second", "clipped_fraction"])
def test_what_depends_on_private_records_is_withheld(tmp_path: Path, name: str) -> None:
    budget = FakeBudget()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        observer.trial_started(trial(0))
        observer.trial_reported(trial(0, step=50), 50, {"validation_accuracy": 0.5, name: 123.456})
        observer.trial_finished(trial(0, TrialStatus.FAILED, step=50, reason="ValueError: a batch of 123.456 records"))
        assert observer.withheld == {name}
    spool = (tmp_path / "spool.jsonl").read_text()
    assert "validation_accuracy" in spool
    assert name not in spool
    assert "123.456" not in spool


def test_a_sweep_that_is_not_private_says_so_and_has_no_epsilon(tmp_path: Path) -> None:
    with MLflowRecorder(tmp_path, sweep(URI), budget_view=None, trial_epsilon=None, send=False) as observer:
        run_trial(observer, FakeBudget(), 0)
    server = sent(tmp_path)
    assert "Not private" in server.state()["-"][2]["mlflow.note.content"]
    assert not any("epsilon" in key for run in server.state().values() for key, *_ in run[3])


def test_the_note_says_that_the_guarantee_is_the_cap(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    note = sent(tmp_path).state()["-"][2]["mlflow.note.content"]
    assert "The guarantee is the cap" in note
    assert "not a guarantee" in note


@pytest.mark.parametrize(
    ("error", "status", "state"),
    [
        (KeyboardInterrupt(), "KILLED", "interrupted"),
        (SweepInterrupted("stopped"), "KILLED", "interrupted"),
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


def test_a_resume_goes_on_in_the_same_runs(tmp_path: Path) -> None:
    budget, server = FakeBudget(), FakeMLflow()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        run_trial(observer, budget, 0, score=0.7)
        observer.trial_started(trial(1))
        observer.finish("interrupted")
    sent(tmp_path, server)
    assert server.state()["t1"][0] == "KILLED"
    more = {"privacy": {"epsilon": 8.0, "delta": 1e-5}, "search": {"trials": 5}}
    with recorder(tmp_path, URI, budget, send=False, settings=more) as observer:
        sent(tmp_path, server)
        assert server.state()["-"][0] == "RUNNING"
        run_trial(observer, budget, 1, score=0.6)
    sent(tmp_path, server)
    state = server.state()
    assert set(state) == {"-", "t0", "t1"}
    assert [run.info.status for run in server.runs.values()] == ["FINISHED"] * 3
    assert state["-"][2]["best_trial"] == "t0", "the first part of the sweep still counts"
    assert metric(server, "-", "trials_done")[200] == 2
    assert (state["-"][1]["search.trials"], state["-"][2]["resumed.search.trials"]) == ("3", "5")


@given(at=st.integers(min_value=1, max_value=60))
def test_sending_may_stop_at_any_request_and_the_result_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, at: int
) -> None:
    folder = tmp_path_factory.mktemp("sweep")
    small_sweep(folder)
    whole = sent(folder)
    broken = FakeMLflow()
    broken.fail_at = at
    (folder / "spool.acknowledged.json").unlink()
    try:
        drain(folder, connect=broken.connect)
    except TrackingError:
        drain(folder, connect=broken.connect)
    parent = "mlflow.parentRunId"
    assert {name: (s, p, {**t, parent: ""}, m) for name, (s, p, t, m) in broken.state().items()} == {
        name: (s, p, {**t, parent: ""}, m) for name, (s, p, t, m) in whole.state().items()
    }
    assert len(broken.runs) == 5


def test_replay_from_the_first_record_changes_nothing(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    server = sent(tmp_path)
    before = server.state()
    assert drain(tmp_path, connect=server.connect).sent == 0
    (tmp_path / "spool.acknowledged.json").unlink()
    assert drain(tmp_path, connect=server.connect).sent > 20
    assert server.state() == before


def test_a_run_whose_making_was_not_confirmed_is_found_again(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    server = FakeMLflow()
    server.die_after_create = True
    with pytest.raises(TrackingError, match="the answer was lost"):
        drain(tmp_path, connect=server.connect)
    sent(tmp_path, server)
    assert len(server.runs) == 5


def test_a_run_that_somebody_deleted_is_made_again_with_everything(tmp_path: Path) -> None:
    budget, server = FakeBudget(), FakeMLflow()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        sender = Sender(tmp_path, connect=server.connect)
        observer.trial_started(trial(0))
        observer.trial_reported(trial(0, step=50), 50, {"validation_accuracy": 0.5})
        sender.start()
        assert sender.flush(timeout=20).complete
        lost = next(run for run in server.runs.values() if run.data.tags["dp_tuner.trial"] == "t0")
        lost.info.lifecycle_stage = "deleted"
        observer.trial_reported(trial(0, step=100), 100, {"validation_accuracy": 0.6})
        assert sender.flush(timeout=20).complete
        sender.stop()
    assert metric(server, "t0", "validation_accuracy") == {50: 0.5, 100: 0.6}
    assert server.state()["t0"][1]["schedule"] == "constant"


def test_a_record_that_mlflow_refuses_is_set_aside_and_holds_up_no_other(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    attach(tmp_path, [], metrics={"unwelcome": 1.0}, tags={"before": "x"})
    attach(tmp_path, ["gone.txt"], tags={"after": "x"})
    server = FakeMLflow()
    server.refuse_metric = "unwelcome"
    status = drain(tmp_path, connect=server.connect)
    assert (status.refused, status.waiting, status.complete) == (2, 0, False)
    refused = (tmp_path / "spool.refused.jsonl").read_text()
    assert "unwelcome" in refused
    assert "gone.txt" in refused
    tags = server.state()["-"][2]
    assert tags["after"] == "x"
    assert tags["state"] == "budget reached"


def test_a_dead_server_stalls_nobody_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeMLflow()
    server.down = True
    budget = FakeBudget()
    with recorder(tmp_path, URI, budget, send=False) as observer:
        sender = Sender(tmp_path, connect=server.connect)
        sender.start()
        run_trial(observer, budget, 0)
        sender.notify()
        status = sender.flush(timeout=20)
        assert status.problem == "connection refused"
        assert status.waiting == len(list(read(tmp_path / "spool.jsonl")))
        assert "waiting" in str(status)
        server.down = False
        run_trial(observer, budget, 1)
        assert sender.flush(timeout=20).complete
        sender.stop()
    assert set(server.state()) == {"-", "t0", "t1"}
    assert len(metric(server, "t0", "validation_accuracy")) == 2


def test_two_processes_do_not_send_the_same_sweep(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    server, entered, leave = FakeMLflow(), threading.Event(), threading.Event()

    def slow(uri: str) -> FakeMLflow:
        entered.set()
        assert leave.wait(20)
        return server

    sender = Sender(tmp_path, connect=slow)
    sender.start()
    assert entered.wait(20)
    with pytest.raises(TrackingError, match="another one is doing it now"):
        drain(tmp_path, connect=server.connect)
    leave.set()
    assert sender.flush(timeout=20).complete
    sender.stop()


CRASH = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[2])
from tracking_fakes import FakeBudget, recorder, run_trial, trial

budget = FakeBudget()
observer = recorder(Path(sys.argv[1]), "sqlite:////nowhere/mlflow.db", budget, send=False)
run_trial(observer, budget, 0)
observer.trial_started(trial(1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def crashed(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(folder), str(Path(__file__).parent)], check=False, cwd=os.getcwd()
    )
    assert done.returncode == -signal.SIGKILL


def test_sync_gives_a_sweep_that_was_killed_its_end_and_a_resume_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(tmp_path)
    server = FakeMLflow()
    monkeypatch.setattr(
        "tuner.recorder.replay.drain", lambda folder, uri: drain(folder, uri=uri, connect=server.connect)
    )
    assert replay(tmp_path).complete
    first = server.state()
    assert {name: (run[0], run[2]["state"]) for name, run in first.items()} == {
        "-": ("KILLED", "crashed"),
        "t0": ("FINISHED", "complete"),
        "t1": ("KILLED", "crashed"),
    }
    replay(tmp_path)
    assert server.state() == first
    budget = FakeBudget(steps={"t0": 100})
    with recorder(tmp_path, URI, budget, send=False) as observer:
        replay(tmp_path)
        assert server.state()["-"][0] == "RUNNING", "a living sweep is not ended by a sync"
        run_trial(observer, budget, 1)
    replay(tmp_path)
    assert {name: run[0] for name, run in server.state().items()} == {
        "-": "FINISHED",
        "t0": "FINISHED",
        "t1": "FINISHED",
    }


def test_sync_of_a_folder_without_records_says_so(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="has none"):
        replay(tmp_path)


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

    with pytest.raises(TrackingError, match="No space left on device"):
        run()
    monkeypatch.undo()
    assert [entry.record["kind"] for entry in read(tmp_path / "spool.jsonl")] == ["sweep_started", "trial_started"]


def test_protected_scores_and_whom_the_guarantee_protects_are_told(tmp_path: Path) -> None:
    budget = FakeBudget()
    whole = budget.view

    def with_scores() -> object:
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
    assert "add or remove one user with all records, for everything the search shows. Test scores are outside" in note
    assert "durations mean nothing" in note
    assert "None" not in note
    assert metric(server, "t0", "learning_rate_now") == {50: 0.1, 100: 0.1}
    assert metric(server, "t0", "learning_rate") == {}, "that is a parameter"


def test_a_claim_that_is_given_stands_in_the_place_of_the_budgets(tmp_path: Path) -> None:
    info = sweep(URI, claim="Declared public.")
    with MLflowRecorder(tmp_path, info, budget_view=None, trial_epsilon=None, send=False):
        pass
    assert sent(tmp_path).state()["-"][2]["mlflow.note.content"] == "Declared public."
