"""Random kill -9 in a sweep with four concurrent trials: the ledger must hold every noise draw.

The sweep is `tune run` on Ray and scikit-learn's digits. Its driver, its workers and the actor that charges for the
workers are killed at random moments. After a kill of the driver a user resumes the sweep. `benchmarks.budget.program`
counts the noise draws. After every kill the leased steps of each trial are compared with its draws.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Results, Settings, Table, at_least, at_most
from benchmarks.harness.machine import child_environment
from trainables.charge import LEASE_STEPS as LEASE
from tuner.drill.draws import Draws, Gap, draws_begun, gaps, leased_steps, read_draws
from tuner.drill.processes import Process, descendants, kill, wait_until_gone

BARS = {
    "storm.kills": at_least(200, quick=False),
    "storm.draws_below": at_most(0),
    "storm.leases_above_per_trial": at_most(1),
    "storm.leases_above_per_attempt": at_most(1),  # the promise of docs/guarantees.md
    "storm.errors": at_most(0),
}

_KILLS, _QUICK_KILLS = 200, 10
_KILLS_A_LIFE, _QUICK_KILLS_A_LIFE = (8, 16), (4, 4)
_CONCURRENT = 4
# A trial of 8 000 steps takes 15 s where four of them share two cores; it reports, and saves, at each tenth.
_BATCH, _RECORDS, _STEPS, _RUNGS = 64, 1261, 8_000, 10
_FILE = f"""schema: 1
name: storm
dataset: {{name: digits}}
trainable: {{method: dp_sgd, model: logistic_regression, batch_size: {_BATCH}, epochs: {_STEPS * _BATCH / _RECORDS!r}}}
privacy: {{epsilon: 500, noise_multiplier: 4.0}}   # enough for a long storm; the count is tested
search:
  trials: 240          # 1 920 000 steps: the accountant accepts 2 000 000
  sampler: random
  rungs: {_RUNGS}
  space: {{learning_rate: {{log_uniform: [0.05, 1.0]}}}}
resources: {{concurrent_trials: {_CONCURRENT}, cpus_per_trial: CPUS}}
"""
# The titles of Ray's processes. A trial's ends in the name of the trainable's class, or of Ray's wrapper of it.
_WORKER, _CASHIER = "Trainable", "ray::ChargeActor"
_EARLY = 0.2  # share of the drivers that are killed while they start or reconcile
_AT_THE_CASHIER = 0.08  # share of the other kills that hit the actor that charges
_BETWEEN_KILLS = 1.4  # seconds, on average
_LEAST_SECONDS = 70.0  # for a driver and a few kills
_PATIENCE = 90.0  # seconds for a driver to bring a trial to its first draw, and for its processes to end


@dataclass
class _Storm:
    """One storm in a folder of its own."""

    folder: Path
    rng: random.Random  # of the moments and the victims
    kills: Counter[str] = field(default_factory=Counter)  # by victim
    moments: Counter[str] = field(default_factory=Counter)  # by the place in a lease where a worker was killed
    checks: int = 0
    worst_below: int = -(10**9)
    worst_above_per_attempt: float = 0.0  # in leases
    strange: list[str] = field(default_factory=list)  # a sentence for each unexpected event
    _left: list[Process] = field(default_factory=list)
    _driver: subprocess.Popen[bytes] | None = None
    _sweeps: int = 0

    @property
    def ledger(self) -> Path:
        """The file of the ledger."""
        return self.folder / "dp-tuner" / "ledger.db"

    @property
    def draws(self) -> Draws:
        """The draws counted so far."""
        return read_draws(self.folder / "draws")

    def leased(self) -> dict[str, int]:
        """Return the steps leased by every trial of every sweep of the storm."""
        return leased_steps(f"sqlite:///{self.ledger}")

    def check(self) -> list[Gap]:
        """Compare the ledger with the draws now."""
        before = self.draws
        leased = self.leased()
        found = gaps(leased, before, self.draws)
        self.checks += 1
        for gap in found:
            self.worst_below = max(self.worst_below, gap.below)
            lost = gap.above / (LEASE * gap.attempts) if gap.attempts else (float("inf") if gap.above else 0.0)
            self.worst_above_per_attempt = max(self.worst_above_per_attempt, lost)
        return found

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the program with its draws counted and its output appended to a log."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.budget.program", "--draws", "draws", *words],
                cwd=self.folder,
                env=child_environment({"RAY_TMPDIR": str(self.folder), "XDG_DATA_HOME": str(self.folder)}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> subprocess.Popen[bytes]:
        """Start a sweep, or resume the interrupted one, as a user would."""
        whole = [path for path in self.folder.glob("runs/storm-*") if (path / "plan.json").exists()]
        words = ["resume", "storm", "--quiet"] if len(whole) > self._sweeps else ["run", "storm.yaml", "--quiet"]
        self._driver = self.command(*words)
        return self._driver

    def running(self) -> bool:
        """Return whether the driver runs; if it ended without a kill, the next start begins a new sweep."""
        assert self._driver is not None
        code = self._driver.poll()
        if code is None:
            return True
        if code != -signal.SIGKILL:
            output = (self.folder / "log").read_text(errors="replace").splitlines()
            self._sweeps = len(list(self.folder.glob("runs/storm-*/plan.json")))
            if code != 0 and not any("first 3 trials all failed" in line for line in output[-5:]):
                self.strange.append(f"exit code {code}: {output[-1] if output else 'no output'}")
        return False

    def wait_for_draws(self) -> bool:
        """Wait until a trial of this driver draws; return False if the driver ends first or takes too long."""
        seen = draws_begun(self.draws)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self.running():
            if draws_begun(self.draws) > seen:
                return True
            time.sleep(0.1)
        if self.running():
            self.strange.append(f"no draw within {_PATIENCE:.0f} s of a start")
        return False

    def kill_one(self) -> bool:
        """Kill a worker, or sometimes the actor that charges; return False when there is none."""
        assert self._driver is not None
        started = descendants(self._driver.pid)
        kind, victims = "worker", [process for process in started if _is_worker(process)]
        cashiers = [process for process in started if process.title.startswith(_CASHIER)]
        if cashiers and self.rng.random() < _AT_THE_CASHIER:
            kind, victims = "cashier", cashiers
        if not victims:
            return False
        victim = self.rng.choice(victims)
        kill([victim])
        wait_until_gone([victim], seconds=5)
        self.kills[kind] += 1
        self._note_moments([victim])
        return True

    def kill_driver(self) -> None:
        """Kill the driver; half of the time, wait for its workers to end too."""
        assert self._driver is not None
        left = descendants(self._driver.pid)
        self._driver.send_signal(signal.SIGKILL)
        self._driver.wait()
        self.kills["driver"] += 1
        self._left += left
        if self.rng.random() < 0.5:
            self.wait_for_workers()
        self._note_moments(left)

    def wait_for_workers(self) -> None:
        """Wait until nothing can draw or charge for a killed driver; the helpers of Ray may take longer."""
        able = [process for process in self._left if _is_worker(process) or process.title.startswith(_CASHIER)]
        if wait_until_gone(able, seconds=_PATIENCE):
            self.strange.append(f"workers outlived their driver by {_PATIENCE:.0f} s")

    def finish(self) -> None:
        """Resume once more, stop the sweep, and let its last trials end."""
        driver = self.start()
        if not self.wait_for_draws():
            return
        self.command("stop", "storm").wait()
        try:
            code = driver.wait(timeout=4 * _PATIENCE)
        except subprocess.TimeoutExpired:
            self.strange.append("the last sweep did not stop")
            self.kill_driver()
            return
        if code != 0:
            self.running()

    def clear(self) -> None:
        """End all processes: the driver, and the helpers of Ray that outlive a killed driver for a minute."""
        if self._driver is not None and self._driver.poll() is None:
            self._left += descendants(self._driver.pid)
            self._driver.kill()
            self._driver.wait()
        kill(self._left)

    def _note_moments(self, victims: list[Process]) -> None:
        """Count at which place of a lease each worker was killed, by the draws of its last attempt."""
        attempts = [attempt for trial in self.draws.values() for attempt in trial]
        newest = {attempt.process: attempt for attempt in sorted(attempts, key=lambda attempt: attempt.started)}
        for process in filter(_is_worker, victims):
            attempt = newest.get(process.id)
            if attempt is None or attempt.begun == 0:
                self.moments["before its first draw"] += 1
            elif attempt.begun % (LEASE // 2):
                self.moments["inside a lease"] += 1
            else:
                self.moments["between leases"] += 1


def measure(settings: Settings, results: Results) -> None:
    """Kill until there are enough kills, and add the figures."""
    if not settings.time_for(_LEAST_SECONDS):
        results.leave_out("storm.*", "--quick has no time left")
        return
    folder = Path(tempfile.mkdtemp(prefix="storm-", dir="/tmp"))  # the sockets of Ray need a short path
    started = time.perf_counter()
    try:
        storm = _prepared(folder, settings)
        try:
            _blow(storm, settings)
            if not settings.quick:
                storm.finish()
            storm.wait_for_workers()
            final = storm.check()
        finally:
            storm.clear()
        _note(storm, final, results)
        results.count("storm.seconds", time.perf_counter() - started)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepared(folder: Path, settings: Settings) -> _Storm:
    cpus = min(1.0, max((os.cpu_count() or 1) / _CONCURRENT, 0.1))
    (folder / "storm.yaml").write_text(_FILE.replace("CPUS", repr(cpus)))
    return _Storm(folder, random.Random(settings.seed))


def _blow(storm: _Storm, settings: Settings) -> None:
    """Start, kill and resume until there are enough kills, or until no time is left."""
    wanted = _QUICK_KILLS if settings.quick else _KILLS
    a_life, futile = _QUICK_KILLS_A_LIFE if settings.quick else _KILLS_A_LIFE, 0
    while storm.kills.total() < wanted and settings.time_for(_LEAST_SECONDS / 2):
        if futile == 3:
            raise RuntimeError(f"three drivers ended before a draw: {storm.strange[-1:]}")
        storm.start()
        if storm.kills and not settings.quick and storm.rng.random() < _EARLY:
            time.sleep(storm.rng.uniform(0.0, 8.0))
        elif storm.wait_for_draws():
            futile = 0
            for _ in range(storm.rng.randint(*a_life)):
                time.sleep(storm.rng.expovariate(1 / _BETWEEN_KILLS))
                if not storm.running() or storm.kills.total() >= wanted - 1:
                    break
                if storm.kill_one():
                    storm.check()
        else:
            futile += 1
        if storm.running():
            storm.kill_driver()
            if storm.ledger.exists():
                storm.check()


def _note(storm: _Storm, final: list[Gap], results: Results) -> None:
    results.count("storm.kills", storm.kills.total())
    results.count("storm.draws_below", max(0, storm.worst_below), note=f"worst of {storm.checks} checks")
    results.count("storm.leases_above_per_attempt", storm.worst_above_per_attempt, note="worst trial and check")
    worst = max((gap.above / LEASE for gap in final), default=0.0)
    results.count("storm.leases_above_per_trial", worst, note="worst trial, over all its attempts")
    results.count("storm.errors", len(storm.strange), note="; ".join(storm.strange))
    results.count("storm.draws", draws_begun(storm.draws))
    results.count("storm.leased", sum(storm.leased().values()))
    results.tables["Kills"] = Table(
        ("driver", "worker", "cashier", *storm.moments),
        ((storm.kills["driver"], storm.kills["worker"], storm.kills["cashier"], *storm.moments.values()),),
    )
    by_attempts: dict[int, list[float]] = {}
    for gap in final:
        by_attempts.setdefault(gap.attempts, []).append(gap.above / LEASE)
    results.tables["Leases above, by the attempts of a trial"] = Table(
        ("attempts", "trials", "mean", "most"),
        tuple((n, len(values), sum(values) / len(values), max(values)) for n, values in sorted(by_attempts.items())),
    )


def _is_worker(process: Process) -> bool:
    return process.title.startswith("ray::") and _WORKER in process.title
