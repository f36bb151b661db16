"""The process that sends the records: it sees every record, ends with its search, and never holds the search up."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder_fakes import FakeBudget, recorder, run_trial, small_sweep

from tuner.recorder import mlflow_store as store
from tuner.recorder import sender_process
from tuner.recorder.sender_process import SenderProcess
from tuner.recorder.spool import read_spool
from tuner.recorder.sync import send_unsent

pytestmark = pytest.mark.slow


@pytest.fixture
def sending(tmp_path: Path) -> Iterator[SenderProcess]:
    """A started process for a small sweep, whose records it does not know of before it is told."""
    small_sweep(tmp_path, uri=store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db"))
    sender = SenderProcess(tmp_path)
    sender.start()
    yield sender
    sender.stop()


def gone(pid: int) -> bool:
    """Whether a process has ended within ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_all_records_of_a_search_arrive_and_the_process_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.recorder import recorder as module

    monkeypatch.setattr(module, "SenderProcess", SenderProcess)
    uri, budget = store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db"), FakeBudget()
    with recorder(tmp_path, uri, budget) as observer:
        pid = observer._sender._process.pid
        for signals in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as from a terminal or a manager of services
            time.sleep(0.5)  # before and while it loads MLflow
            os.kill(pid, signals)
        run_trial(observer, budget, 0, score=0.7)
        assert observer.flush(timeout=100).complete
        assert observer.status().sent == len(list(read_spool(tmp_path / "spool.jsonl")))
        run_trial(observer, budget, 1, score=0.8)
    assert gone(pid)
    assert send_unsent(tmp_path).sent == 0
    client = store.connect(uri)
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert len(runs) == 3


def test_a_process_that_was_started_early_sends_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    small_sweep(tmp_path, uri=store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db"))
    for dead in (False, True):
        sender_process._EARLY.append(sender_process._started())
        (early,) = sender_process._EARLY
        if dead:
            early.kill()
            early.wait()
        sender = SenderProcess(tmp_path)
        sender.start()
        assert dead or sender._process is early
        assert sender.flush(timeout=100).complete
        assert dead is (sender._process is not early)
        sender.stop()
        assert not sender_process._EARLY


@pytest.mark.parametrize("pause", [0.0, 1.0])  # it still loads MLflow, or starts to
def test_a_process_that_was_started_early_ends_with_a_command_that_starts_no_search(pause: float) -> None:
    code = (
        "import time; from tuner.recorder import sender_process as s; s.start_early(); "
        f"print(s._EARLY[0].pid, flush=True); time.sleep({pause})"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert gone(int(done.stdout))


def test_a_process_that_was_started_early_can_be_ended() -> None:
    sender_process._EARLY.append(sender_process._started())
    (early,) = sender_process._EARLY
    sender_process.end_early()
    assert early.returncode == -signal.SIGKILL
    assert not sender_process._EARLY


def test_a_process_that_dies_is_started_again(tmp_path: Path, sending: SenderProcess) -> None:
    for _ in range(2):
        before = sending._process
        before.kill()
        until = time.monotonic() + 10
        while sending._process is before and time.monotonic() < until:
            time.sleep(0.05)
    sending.notify()
    assert sending.flush(timeout=100).complete
    assert not sending.status().problem
    sending.stop()
    assert send_unsent(tmp_path).sent == 0


def test_a_flush_outlives_the_process_that_it_asked(tmp_path: Path, sending: SenderProcess) -> None:
    asking = threading.Thread(target=sending.flush, args=[100])
    asking.start()
    time.sleep(0.3)  # until it has asked
    sending._process.kill()
    asking.join(60)
    assert not asking.is_alive()
    assert sending.status().complete
    sending.stop()
    assert send_unsent(tmp_path).sent == 0


def test_a_process_that_dies_again_and_again_costs_no_record(
    tmp_path: Path, sending: SenderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_process, "_STARTS", 1)
    sending._process.kill()
    for _ in range(100):
        sending.notify()
    assert gone(sending._process.pid)
    until = time.monotonic() + 10
    while not sending.status().problem and time.monotonic() < until:
        time.sleep(0.05)
    assert sending.status().problem == sending.flush(timeout=20).problem
    status = sending.status()
    assert status.waiting == len(list(read_spool(tmp_path / "spool.jsonl")))
    assert status.problem == "the process that sends the records has ended"
    assert send_unsent(tmp_path).complete


def test_where_no_process_can_be_started_the_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.recorder import recorder as module

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(module, "SenderProcess", SenderProcess)
    monkeypatch.setattr(sender_process.subprocess, "Popen", refuse)
    uri, budget = store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db"), FakeBudget()
    with recorder(tmp_path, uri, budget) as observer:
        run_trial(observer, budget, 0, score=0.7)
        status = observer.flush(timeout=10)
        assert status.problem == "the process that sends the records has ended"
        assert status.waiting == len(list(read_spool(tmp_path / "spool.jsonl")))


def test_a_process_that_hangs_holds_nobody_up(
    tmp_path: Path, sending: SenderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_process, "_STOP_SECONDS", 0.5)
    sending._process.send_signal(signal.SIGSTOP)
    for _ in range(100_000):  # more than a pipe holds
        sending.notify()
    status = sending.flush(timeout=0.5)
    assert not status.complete
    assert status.problem == "the process that sends the records does not answer"
    sending._process.send_signal(signal.SIGCONT)
    assert sending.flush(timeout=60).complete
    sending._process.send_signal(signal.SIGSTOP)
    sending.stop()
    assert gone(sending._process.pid)
    assert send_unsent(tmp_path).sent == 0


def test_a_driver_that_is_killed_while_it_waits_frees_the_records_at_once(tmp_path: Path) -> None:
    with socket.socket() as silent:  # it takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        small_sweep(tmp_path, uri=f"http://127.0.0.1:{silent.getsockname()[1]}")
        driver = subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        time.sleep(3)  # until the driver waits in its flush, and the request for its answer
        driver.kill()
        driver.communicate()
        assert gone(pid)
    assert send_unsent(tmp_path, uri=store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db")).complete


STARTS = """
import os, signal, sys
from pathlib import Path
from tuner.recorder.sender_process import SenderProcess
sender = SenderProcess(Path(sys.argv[1]))
sender.start()
print(sender._process.pid, flush=True)
sender.flush(100)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_process_ends_when_its_search_is_killed(tmp_path: Path) -> None:
    small_sweep(tmp_path, uri=store.absolute_uri(f"sqlite:///{tmp_path}/mlflow.db"))
    done = subprocess.run([sys.executable, "-c", STARTS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gone(int(done.stdout))
    assert SenderProcess(tmp_path).status().complete, "nothing is unsent"
    assert json.loads((tmp_path / "spool.acknowledged.json").read_text())["end"] > 0
    assert send_unsent(tmp_path).sent == 0
