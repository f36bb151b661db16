"""MLflow's pages: served where a port is free, and ended with every process that the server started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from errors_helper import raises_code

from tuner.errors import InputError
from tuner.recorder import ui

SERVER = """
import subprocess, sys, time
child = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"]
print(subprocess.Popen(child).pid, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_with_all_that_it_started(sign: signal.Signals) -> None:
    code = f"import sys; from tuner.recorder.ui import serve; sys.exit(serve([sys.executable, '-c', {SERVER!r}]))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(child, 0)
        process.send_signal(sign)
        assert process.wait(timeout=30) == 0
    for _ in range(100):
        try:
            state = Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # its new parent has not asked for it yet
            return
        time.sleep(0.05)
    pytest.fail("what the server started outlived it")


@pytest.mark.parametrize(("own", "code"), [(3, 3), (0, 1)])
def test_a_server_that_ends_by_itself_has_failed(own: int, code: int) -> None:
    assert ui.serve([sys.executable, "-c", f"raise SystemExit({own})"]) == code


def test_pages_are_served_at_a_free_port_of_a_store_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(ui, "connect", lambda _uri: None)
    monkeypatch.setattr(ui, "serve", lambda command: commands.append(list(command)) or 0)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with raises_code(InputError, "tracking-store-not-found"):
        ui.serve_ui(uri, port=1)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with raises_code(InputError, "port-in-use"):
            ui.serve_ui(uri, port=port)
    assert ui.serve_ui("http://127.0.0.1:9/", port=port) == 0, "a tracking server shows its own pages"
    assert commands == []
    assert ui.serve_ui(uri, port=port) == 0
    (command,) = commands
    assert command[1:4] == ["-m", "mlflow", "ui"]
    assert {uri, str(port)} <= set(command)
