"""Server of MLflow's web pages on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from tuner.errors import InputError
from tuner.recorder.mlflow_store import absolute_uri, connect

__all__ = ["TrackedRuns", "serve", "serve_ui"]

_SECONDS_TO_END = 5.0  # for a server, after a signal
_SECONDS_TO_LOOK = 0.2  # between two checks of a stop
_PAGE = "#/experiments?workflowType=machine_learning"  # MLflow's default view, for language models, shows no runs


@dataclass(frozen=True, kw_only=True)
class TrackedRuns:
    """The runs of one sweep in MLflow: address, experiment, sweep, command to send them, objective that sorts them."""

    uri: str
    experiment: str
    sweep: str
    sync: str
    metric: str
    ascending: bool


def serve_ui(uri: str, *, port: int, runs: TrackedRuns | None = None) -> int:
    """Serve a tracking store's MLflow pages to this machine only, and return the server's exit code.

    The page that is printed shows the given runs, the best one first, or all experiments.

    If `uri` is a tracking server, nothing is started, and the address of the server's own pages is printed.

    Raises:
        InputError: the store is a file that does not exist, or the port is in use.
    """
    store = absolute_uri(uri)
    if store.startswith(("http://", "https://")):
        page = _PAGE if runs is None else _page_of(connect(store), runs)
        click.echo(f"{store.rstrip('/')}/{page}   (a page of the tracking server; no local server was started)")
        return 0
    if store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).exists():
        raise InputError(
            "tracking-store-not-found",
            f"No tracking store found at {uri}. Run a search first, or choose another store with `--uri`.",
        )
    _require_free(port)
    client = connect(store)  # creates or migrates the database before the server's processes open it together
    click.echo(f"http://127.0.0.1:{port}/{_PAGE if runs is None else _page_of(client, runs)}   (press Ctrl-C to stop)")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store, "--host", "127.0.0.1"]
    return serve([*command, "--port", str(port)])


def _page_of(client: Any, runs: TrackedRuns) -> str:  # noqa: ANN401 - mlflow has no types that mypy could follow
    found = client.get_experiment_by_name(runs.experiment)
    if found is None:
        raise InputError(
            "tracking-store-not-found",
            f"MLflow has no experiment {runs.experiment!r} at {runs.uri}. To send its records, use: {runs.sync}",
        )
    query = {
        "workflowType": "machine_learning",
        "searchFilter": f"tags.`dp_tuner.sweep` = '{runs.sweep}'",
        "orderByKey": f"metrics.`{runs.metric}`",
        "orderByAsc": str(runs.ascending).lower(),
    }
    return f"#/experiments/{found.experiment_id}/runs?{urlencode(query)}"


def serve(command: Sequence[str]) -> int:
    """Run a server until it ends or until Ctrl-C or SIGTERM stops it.

    The processes that the server started are stopped too. MLflow's server starts about twelve, which would otherwise
    keep running.

    Returns:
        0 if Ctrl-C or SIGTERM stopped the server, else the server's exit code, or 1 if that is 0: MLflow's server also
        ends with 0 if it cannot have its port.
    """
    stopped = threading.Event()
    before = {sign: signal.signal(sign, lambda *_: stopped.set()) for sign in (signal.SIGINT, signal.SIGTERM)}
    server = subprocess.Popen(command, start_new_session=True)
    try:
        while not stopped.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return server.wait(timeout=_SECONDS_TO_LOOK) or 1
        return 0
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):  # all processes have ended
                os.killpg(server.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=_SECONDS_TO_END)
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _require_free(port: int) -> None:
    """Raise an `InputError` if the port is in use or not allowed.

    Without this check, MLflow's server would fail after its address was printed.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # allow a port whose server has just ended
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(
                "port-in-use",
                f"Port {port} is in use or not allowed ({error.strerror}). Choose another one with `--port`.",
            ) from error
