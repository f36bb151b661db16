"""Sending under faults: lost answers, dead servers, deleted runs, refused records, killed processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from errors_helper import raises_code
from recorder_fakes import URI, FakeBudget, FakeMLflow, metric, recorder, run_trial, sent, small_sweep, trial

from tuner.errors import TrackingError
from tuner.recorder.sender import Sender, drain
from tuner.recorder.spool import read_spool
from tuner.recorder.sync import attach, send_unsent


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 13, 21, 34, 55])
def test_sending_may_stop_at_any_request_and_the_result_is_the_same(tmp_path: Path, at: int) -> None:
    small_sweep(tmp_path)
    whole = sent(tmp_path)
    broken = FakeMLflow()
    broken.fail_at = at
    (tmp_path / "spool.acknowledged.json").unlink()
    try:
        drain(tmp_path, connect=broken.connect)
    except TrackingError:
        drain(tmp_path, connect=broken.connect)
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
    with raises_code(TrackingError, "tracking-unavailable"):
        drain(tmp_path, connect=server.connect)
    sent(tmp_path, server)
    assert len(server.runs) == 5


def test_of_two_runs_of_a_trial_the_one_with_records_is_kept(tmp_path: Path) -> None:
    """A request to create a run may arrive long after it was repeated, and its run may sort before the other one."""
    small_sweep(tmp_path)
    server = FakeMLflow()
    sent(tmp_path, server)
    before = server.state()
    late = server.create_run(
        "1", start_time=0, tags={"dp_tuner.sweep": "digits-0001", "dp_tuner.trial": "t0"}, run_name=""
    )
    own = server.create_run("1", start_time=0, tags={"dp_tuner.sweep": "digits-0001"}, run_name="of the user's own")
    server.runs = {late.info.run_id: server.runs.pop(late.info.run_id), **server.runs}
    (tmp_path / "spool.acknowledged.json").unlink()
    sent(tmp_path, server)
    assert server.runs[late.info.run_id].data.tags["state"] == "duplicate"
    assert server.runs[own.info.run_id].info.status == "RUNNING"
    del server.runs[late.info.run_id], server.runs[own.info.run_id]
    assert server.state() == before


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
        assert status.waiting == len(list(read_spool(tmp_path / "spool.jsonl")))
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
    with raises_code(TrackingError, "records-being-sent"):
        drain(tmp_path, connect=server.connect)
    leave.set()
    assert sender.flush(timeout=20).complete
    sender.stop()


CRASH = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[2])
from recorder_fakes import FakeBudget, recorder, run_trial, trial

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
    monkeypatch.setattr("tuner.recorder.sync.drain", lambda folder, uri: drain(folder, uri=uri, connect=server.connect))
    assert send_unsent(tmp_path).complete
    first = server.state()
    assert {name: (run[0], run[2]["state"]) for name, run in first.items()} == {
        "-": ("KILLED", "crashed"),
        "t0": ("FINISHED", "complete"),
        "t1": ("KILLED", "crashed"),
    }
    send_unsent(tmp_path)
    assert server.state() == first
    budget = FakeBudget(steps={"t0": 100})
    with recorder(tmp_path, URI, budget, send=False) as observer:
        send_unsent(tmp_path)
        assert server.state()["-"][0] == "RUNNING", "a living sweep is not ended by a sync"
        run_trial(observer, budget, 1)
    send_unsent(tmp_path)
    assert {name: run[0] for name, run in server.state().items()} == {
        "-": "FINISHED",
        "t0": "FINISHED",
        "t1": "FINISHED",
    }


def test_sync_of_a_folder_without_records_says_so(tmp_path: Path) -> None:
    with raises_code(TrackingError, "records-not-found"):
        send_unsent(tmp_path)
