"""A Ray cluster of two machines on one: the second has mounts of its own, so that it can lose a folder while it runs.

The head is called `good`, the other machine `bad`. Both ask for a token. `Cluster.hide` puts an empty folder in the
place of one, on the bad machine alone, as if it had not been mounted or copied there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOKEN = "7" * 64
_APART = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
_RAY = [sys.executable, "-c", "import sys; from ray.scripts.scripts import main; sys.exit(main())"]


def can_unshare() -> bool:
    """Whether this account may give a process mounts of its own."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    return subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode == 0


class Cluster:
    """Two Ray nodes with a token; `address` is that of the head.

    With `jobs`, there is only the head, and it takes jobs at the URL `jobs`. A second node on this machine would share
    the head's copies of working directories, and delete them.
    """

    def __init__(self, *, token: bool = True, jobs: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ry"))  # short: a socket's path has 107 characters at most
        self.token = self._folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self._token = token
        self._port, port_of_jobs = _free_port(), _free_port()
        self.jobs = f"http://127.0.0.1:{port_of_jobs}"
        dashboard = ["--include-dashboard=false"]
        if jobs:  # the default port of the agent may be that of another cluster on this machine
            dashboard = [f"--dashboard-port={port_of_jobs}", f"--dashboard-agent-listen-port={_free_port()}"]
        self._processes = [self._start("good", "--head", f"--port={self._port}", *dashboard)]
        self.address = self._address()
        if not jobs:
            self._processes.append(self._start("bad", f"--address={self.address}", apart=True))
        self._wait(len(self._processes))

    def environment(self) -> dict[str, str]:
        """The variables of a process that may enter the cluster."""
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        plain["RAY_worker_niceness"] = "0"  # workers would starve where other tests run
        return {**plain, **(mode if self._token else {"RAY_AUTH_MODE": "disabled"}), "PYTHONPATH": paths}

    @contextlib.contextmanager
    def hide(self, *folders: Path) -> Iterator[None]:
        """Put an empty folder in the place of each, on the bad machine."""
        with contextlib.ExitStack() as stack:
            for folder in folders:
                stack.enter_context(self._mounted("-t", "tmpfs", "none", str(folder)))
            yield

    def replace(self, folder: Path, by: Path) -> contextlib.AbstractContextManager[None]:
        """Put another folder or file in the place of one, on the bad machine."""
        return self._mounted("--bind", str(by), str(folder))

    @contextlib.contextmanager
    def _mounted(self, *words: str) -> Iterator[None]:
        self._on_bad("mount", *words)
        try:
            yield
        finally:
            self._on_bad("umount", "--lazy", words[-1])

    def _on_bad(self, *words: str) -> None:
        how = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        subprocess.run(["nsenter", *how, "--mount", "--target", str(self._processes[1].pid), *words], check=True)

    def stop(self) -> None:
        """End both nodes, with whatever they started."""
        for process in reversed(self._processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str, *words: str, apart: bool = False) -> subprocess.Popen[bytes]:
        command = [*_RAY, "start", *words, f"--node-name={name}", "--num-cpus=1", "--disable-usage-stats", "--block"]
        command += [f"--temp-dir={self._folder / 'r'}"] if "--head" in words else []
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*(_APART if apart else []), *command],
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )

    def _address(self) -> str:
        """The head's address, once it answers: Ray replaces that of the loopback by another."""
        from ray._private.services import get_node_ip_address

        address = f"{get_node_ip_address()}:{self._port}"
        host, _, port = address.rpartition(":")
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return address
            time.sleep(0.1)
        raise AssertionError((self._folder / "good.log").read_text())

    def _wait(self, nodes: int) -> None:
        script = (
            "import sys, time\n"
            "from ray._raylet import GcsClient\n"
            "client = GcsClient(address=sys.argv[1])\n"
            "while len(client.get_all_node_info()) < int(sys.argv[2]): time.sleep(0.1)\n"
        )
        command = [sys.executable, "-c", script, self.address, str(nodes)]
        subprocess.run(command, env=self.environment(), check=True, timeout=60, capture_output=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
        return port


def said(cluster_environment: Mapping[str, str], folder: Path, *words: str) -> tuple[int, str, float]:
    """Run a command in a folder. Return its exit code, all that it printed, and how long it took."""
    return _said([sys.executable, "-m", "tuner", *words], cluster_environment, folder)


def job_said(cluster: Cluster, environment: Mapping[str, str], folder: Path, *words: str) -> tuple[int, str, float]:
    """Run a command as a job of Ray, with a copy of the folder. Return what `said` returns."""
    submit = [*_RAY, "job", "submit", "--address", cluster.jobs, "--working-dir", str(folder)]
    for _ in range(10):
        answer = _said([*submit, "--", sys.executable, "-m", "tuner", *words], environment, folder)
        if "No available agent" not in answer[1]:  # the head takes jobs some seconds after its start
            break
        time.sleep(1)
    return answer


def _said(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[int, str, float]:
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun
