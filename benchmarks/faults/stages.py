"""What a sweep needs besides its folder: small disks, an MLflow server, a PostgreSQL server, a cluster of two nodes."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness.machine import ROOT
from tuner.drill.sweep import DrillSweep

Options = Mapping[str, Any]


class CannotStageError(Exception):
    """This account or machine cannot make what a fault needs."""


@contextlib.contextmanager
def plain(folder: Path) -> Iterator[Options]:
    """Nothing more."""
    yield {}


@contextlib.contextmanager
def _disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, check=False, capture_output=True).returncode == 0
    except OSError:
        done = False
    if not done:
        raise CannotStageError("this account may not mount a disk")
    try:
        yield
    finally:
        while subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True).returncode == 0:
            pass


@contextlib.contextmanager
def small_storage(folder: Path) -> Iterator[Options]:
    """A disk of eight megabytes for the sweep's folder."""
    with _disk(folder / "runs", "8m"):
        yield {}


@contextlib.contextmanager
def own_books(folder: Path) -> Iterator[Options]:
    """A disk of its own for the ledger."""
    with _disk(folder / "books", "8m"):
        yield {}


class Tracker:
    """An MLflow server on this machine, with its store in the sweep's folder."""

    _known: ClassVar[dict[Path, Tracker]] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._known[folder] = self
        self._start()

    @classmethod
    def of(cls, folder: Path) -> Tracker:
        """Return the server of a sweep's folder."""
        return cls._known[folder]

    def _start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2),
            ):
                return
            time.sleep(0.3)
        raise RuntimeError("the MLflow server did not start")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server and all of its workers."""
        os.killpg(self.process.pid, number)
        if number is signal.SIGKILL:
            self.process.wait()

    def revive(self) -> None:
        """Let a stopped server go on, or start a killed one again."""
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
        else:
            self._start()

    def end(self) -> None:
        """End it with all of its workers."""
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self._known.pop(self.folder, None)


@contextlib.contextmanager
def tracker(folder: Path) -> Iterator[Options]:
    """An MLflow server. The waits of its client are short, as they may be set by everyone."""
    server = Tracker(folder)
    try:
        yield {"tracking": f"http://127.0.0.1:{server.port}"}
    finally:
        server.end()


_SERVERS: dict[Path, Any] = {}  # of PostgreSQL and clusters, by the sweep's folder


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Options]:
    """A ledger in PostgreSQL."""
    module = _of_tests("postgres_server")
    programs = module.binaries()
    if programs is None:
        raise CannotStageError("PostgreSQL is not installed")
    server = _SERVERS[folder] = module.PostgresServer(programs)
    try:
        yield {"ledger": server.database()}
    finally:
        _SERVERS.pop(folder).remove()


def restart_postgres(sweep: DrillSweep) -> Callable[[], None]:
    """Let the server crash and start again after three seconds."""
    server = _SERVERS[sweep.folder]
    server.stop("immediate")
    time.sleep(3.0)
    server.start()
    return lambda: None


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[Options]:
    """A Ray cluster of two nodes on this machine, with a slot for one trial each."""
    module = _of_tests("two_nodes", "cli")
    if not module.can_unshare():
        raise CannotStageError("this account may not give a node mounts of its own")
    cluster = _SERVERS[folder] = module.Cluster()
    try:
        yield {"address": cluster.address, "environment": cluster.environment(), "cpus": 1.0}
    finally:
        _SERVERS.pop(folder).stop()


def kill_node(sweep: DrillSweep) -> Callable[[], None]:
    """Kill all processes of the node that does not have the driver."""
    node = _SERVERS[sweep.folder]._processes[1]
    os.killpg(node.pid, signal.SIGKILL)
    return lambda: None


@contextlib.contextmanager
def impatient(folder: Path) -> Iterator[Options]:
    """A limit of seconds after which a worker without progress counts as lost."""
    yield {"hung_after": 60.0}


def _of_tests(name: str, *under: str) -> Any:  # noqa: ANN401 - a module
    """Return a module of the tests, which start the same servers."""
    folder = str(Path(ROOT, "tests", *under))
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
