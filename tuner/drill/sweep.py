"""One small sweep on scikit-learn's digits, in a folder of its own, whose processes can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.drill.books import Reconciliation, reconcile
from tuner.drill.counted import ORDER
from tuner.drill.draws import draws_begun, read_draws
from tuner.drill.processes import Process, descendants, kill, wait_until_gone

__all__ = ["CHARGE_ACTOR", "RAYLET", "TRIALS", "WORKER", "DrillSweep"]

TRIALS = 4
STEPS = 400
_FILE = f"""schema: 1
name: drill
dataset: {{name: digits}}
trainable: {{method: dp_sgd, model: logistic_regression, batch_size: 64, epochs: {STEPS * 64 / 1261!r}}}
privacy: {{epsilon: 500, noise_multiplier: 4.0}}   # a large budget, so that repeated steps fit
search:
  trials: {TRIALS}
  sampler: random
  rungs: 4
  space: {{learning_rate: {{log_uniform: [0.05, 1.0]}}}}
resources: {{concurrent_trials: 2, cpus_per_trial: CPUS, hung_after: HUNG}}
ledger: "LEDGER"
storage: "STORAGE"
tracking: {{uri: "TRACKING"}}
"""
_PROGRAM = (
    "import sys; from pathlib import Path; from tuner.drill.counted import count_draws; "
    "count_draws(Path(sys.argv[1]), pace=float(sys.argv[2])); del sys.argv[1:3]; from tuner.cli.app import main; main()"
)
# Titles of Ray's processes. A trial's ends in the name of the trainable's class, or of Ray's wrapper of it.
WORKER, CHARGE_ACTOR, RAYLET = "Trainable", "ray::ChargeActor", "raylet/raylet"


@dataclass
class DrillSweep:
    """A sweep of `TRIALS` trials, two at a time.

    Attributes:
        folder: its folder, empty at the start. On a cluster, all machines share it.
        address: address of a cluster, or None for this machine.
        ledger: address of its ledger; by default a file in its folder.
        tracking: address of MLflow; by default a file in its folder.
        hung_after: seconds after which a silent worker counts as lost.
        pace: seconds of pause before each draw.
        environment: variables of its processes, besides those of this one.
    """

    folder: Path
    address: str | None = None
    ledger: str = ""
    tracking: str = ""
    pace: float = 0.01
    cpus: float = 0.5
    hung_after: float = 600.0
    data_dir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _left: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "books").mkdir(parents=True, exist_ok=True)
        self.ledger = self.ledger or f"sqlite:///{self.folder / 'books' / 'ledger.db'}"
        self.tracking = self.tracking or f"sqlite:///{self.mlflow}"
        text = _FILE.replace("LEDGER", self.ledger).replace("STORAGE", str(self.folder / "runs"))
        text = text.replace("TRACKING", self.tracking).replace("CPUS", repr(self.cpus))
        text = text.replace("HUNG", repr(self.hung_after))
        (self.folder / "drill.yaml").write_text(text, "utf-8")

    @property
    def mlflow(self) -> Path:
        """The file of MLflow's store."""
        return self.folder / "mlflow.db"

    @property
    def sweep(self) -> Path:
        """The sweep's own folder, once it was created."""
        return next((self.folder / "runs").glob("drill-*"))

    @property
    def drawn(self) -> int:
        """The noise draws that began so far."""
        return draws_begun(read_draws(self.folder / "draws"))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The driver's process that was started last."""
        if self._process is None:
            raise RuntimeError("the sweep was not started")
        return self._process

    @property
    def running(self) -> bool:
        """Whether the driver runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the sweep, or resume it."""
        begun = any((self.folder / "runs").glob("drill-*/plan.json"))
        self._process = self._command(*(("resume", "drill") if begun else ("run", "drill.yaml")))

    def sync(self) -> int:
        """Send the records that wait for MLflow, and return the exit code."""
        with (self.folder / "output").open("ab") as output:
            words = [sys.executable, "-m", "tuner", "sync", "drill", "--storage", str(self.folder / "runs")]
            done = subprocess.run(
                words, cwd=self.folder, env=self._variables(), stdout=output, stderr=output, check=False
            )
        return done.returncode

    def wait_for_draws(self, count: int, *, seconds: float) -> None:
        """Wait until the sweep has drawn this often.

        Raises:
            RuntimeError: it ended before, or took too long.
        """
        until = time.monotonic() + seconds
        while self.drawn < count:
            if not self.running or time.monotonic() > until:
                raise RuntimeError(f"the sweep ended, or took too long, before a process was killed: {self.message}")
            time.sleep(0.02)

    def wait(self, *, seconds: float) -> int | None:
        """Wait for the end of the process and return its exit code; None if it still runs, and then kill it."""
        try:
            code: int | None = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
            self.kill()
        self.settle()
        return code

    def end_a_worker(self, *, seconds: float) -> None:
        """Let a worker on any machine end as by kill -9, before its next draw.

        Raises:
            RuntimeError: no worker did, or the sweep ended.
        """
        order = self.folder / ORDER
        order.touch()
        until = time.monotonic() + seconds
        while order.exists():
            if not self.running or time.monotonic() > until:
                raise RuntimeError(f"the sweep ended, or took too long, before a worker was killed: {self.message}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the driver, and wait until nothing of its Ray can draw or charge any more."""
        self._left += descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.settle()

    def settle(self) -> None:
        """Wait until no worker runs any more, and end what is left of a killed driver's Ray."""
        able = [each for each in self._left if WORKER in each.title or each.title.startswith(CHARGE_ACTOR)]
        wait_until_gone(able, seconds=30)
        kill(self._left)
        self._left.clear()

    def processes(self, title: str) -> list[Process]:
        """Return the processes of the sweep with a title, and remember all for the end."""
        found = descendants(self.process.pid)
        known = {(each.id, each.started) for each in self._left}
        self._left += [each for each in found if (each.id, each.started) not in known]
        if title == RAYLET:  # other processes of Ray name it among their options
            return [each for each in found if each.title.partition(" ")[0].endswith(title)]
        return [each for each in found if title in each.title]

    @property
    def message(self) -> str:
        """The last error that it printed, or its last line."""
        path = self.folder / "output"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "")

    def reconcile(self) -> Reconciliation:
        """Compare its books."""
        return reconcile(self.sweep, self.folder / "draws", self.ledger, self.mlflow)

    def _command(self, *words: str) -> subprocess.Popen[bytes]:
        more = ["--storage", str(self.folder / "runs")] if words[0] == "resume" else []
        more += ["--address", self.address] if self.address else []
        more += ["--data-dir", self.data_dir] if self.data_dir else []
        with (self.folder / "output").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(self.folder / "draws"), str(self.pace), *words, *more, "--quiet"],
                cwd=self.folder,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "DP_TUNER_LEDGER"}
        return {**kept, "XDG_DATA_HOME": str(self.folder), "OMP_NUM_THREADS": "1", **self.environment}
