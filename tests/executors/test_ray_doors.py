"""Who may enter Ray: on one machine nobody else, and a cluster is asked before it is joined."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from errors_helper import raises_code

from tuner.errors import InputError
from tuner.executors.base import ExecutorSettings
from tuner.executors.ray import address, machine, session


def test_on_one_machine_ray_listens_on_the_loopback_alone_and_asks_for_a_token(ray_two_slots: None) -> None:
    node = ray.nodes()[0]
    head = ray.get_runtime_context().gcs_address
    ports = [int(head.rpartition(":")[2]), node["NodeManagerPort"], node["ObjectManagerPort"]]
    wide = machine._wide_sockets().values()
    assert not set(ports) & set(wide)
    for port in ports:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    script = "import sys\nfrom ray._raylet import GcsClient\nGcsClient(address=sys.argv[1])"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-c", script, head]
    stranger = subprocess.run(command, capture_output=True, text=True, check=False, env=plain, timeout=60)
    assert "AuthenticationError" in stranger.stderr
    guest = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ), timeout=60)
    assert guest.returncode == 0, "the control: who has the token may enter"


def test_a_session_in_another_thread_waits_and_leaves_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sessions that overlapped would restore each other's changes to the environment and to Ray."""
    from ray.tune.execution import class_cache

    monkeypatch.setattr(session, "_ONE", threading.RLock())  # the tests' own session holds the real one
    monkeypatch.setattr(session, "_own_token", contextlib.nullcontext)  # that session keeps its token
    started, begun, leaves = [], threading.Event(), threading.Event()

    def start(**_: object) -> None:
        started.append(threading.get_ident())
        begun.set()
        assert leaves.wait(60)

    for name, stand_in in {"init": start, "is_initialized": lambda: False, "shutdown": lambda: None}.items():
        monkeypatch.setattr(ray, name, stand_in)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    before = dict(os.environ), dict(class_cache.DEFAULT_ENV_VARS), set(class_cache.ENV_VARS_TO_PROPAGATE)

    def hold() -> None:
        with session.ray_session(ExecutorSettings(concurrent_trials=2)):
            pass

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    threads[0].join(0.2)
    threads[1].join(0.2)
    assert len(started) == 1, "the other one waits"
    leaves.set()
    for thread in threads:
        thread.join(60)
    assert len(set(started)) == 2
    after = dict(os.environ), dict(class_cache.DEFAULT_ENV_VARS), set(class_cache.ENV_VARS_TO_PROPAGATE)
    assert after == before


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a program that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_where_no_cluster_answers_is_refused_soon(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "_PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    for named in (silent, closed, "127.0.0.1", "no-such-host.invalid:6379", "127.0.0.1:99999"):
        with raises_code(InputError, "cluster-unreachable") as refused:
            address.check_address(named)
        assert named in str(refused.value)


@pytest.mark.parametrize("named", ["ray://head:10001", "local"])
def test_what_is_no_address_of_a_head_is_refused(named: str) -> None:
    with raises_code(InputError, "cluster-address"):
        address.check_address(named)


def test_a_token_file_that_is_missing_is_said_before_ray_reads_it(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would end the process, with a trace of C++."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    with raises_code(InputError, "cluster-token"):
        address.check_address(silent)
    (tmp_path / "none").touch()
    with raises_code(InputError, "cluster-token"):
        address.check_address(silent)


def test_a_port_that_others_can_reach_is_seen() -> None:
    with socket.create_server(("0.0.0.0", 0)) as wide, socket.create_server(("127.0.0.1", 0)) as own:
        ports = machine._ports_of(Path("/proc/self"), machine._wide_sockets())
        assert wide.getsockname()[1] in ports
        assert own.getsockname()[1] not in ports
