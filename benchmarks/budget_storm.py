"""kill -9, again and again, in a sweep with four trials at a time: is the ledger ever below what was really drawn?

The sweep is `tune run` itself, on Ray, on scikit-learn's digits. Its driver, its workers and the actor through which
workers pay are killed at random moments; after the driver a user resumes. Noise draws are counted by
`benchmarks.budget_draws`, which shares nothing with the ledger or the engine's own counter. After every kill each
trial's leased steps are held against its draws.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.budget_common import Results, Settings, Table, child_environment, count
from benchmarks.budget_draws import Draws, read_draws
from benchmarks.budget_processes import Process, descendants, kill, wait_until_gone

__all__ = ["LEASE", "Gap", "gaps", "measure"]

LEASE = 200
"""Steps of one lease; the run's own constant is held against it."""

_KILLS, _QUICK_KILLS = 200, 10
_KILLS_A_LIFE, _QUICK_KILLS_A_LIFE = (8, 16), (4, 4)
_CONCURRENT = 4
# A trial of 8 000 steps takes 15 s where four of them share two cores; it reports, and saves, at each tenth.
_BATCH, _RECORDS, _STEPS, _RUNGS = 64, 1261, 8_000, 10
_FILE = f"""schema: 1
name: storm
dataset: {{name: digits}}
trainable: {{method: dp_sgd, model: logistic_regression, batch_size: {_BATCH}, epochs: {_STEPS * _BATCH / _RECORDS!r}}}
privacy: {{epsilon: 500, noise_multiplier: 4.0}}   # as much as a long storm needs; what is tested is the count
search:
  trials: 240          # 1 920 000 steps: the accountant takes 2 000 000
  sampler: random
  rungs: {_RUNGS}
  space: {{learning_rate: {{log_uniform: [0.05, 1.0]}}}}
resources: {{concurrent_trials: {_CONCURRENT}, cpus_per_trial: CPUS}}
"""
# How Ray titles its processes. A trial's ends in the name of the trainable's class, or of Ray's wrapper of it.
_WORKER, _CASHIER = "Trainable", "ray::Cashier"
# Of the lives of a driver, the part that ends while it starts or reconciles; of the other kills, the part that hits
# the actor through which workers pay.
_EARLY, _AT_THE_CASHIER = 0.2, 0.08
_BETWEEN_KILLS = 1.4  # seconds, on average
_LEAST_SECONDS = 70.0  # for a driver and a few kills
_PATIENCE = 90.0  # for a driver to bring a trial to its first draw, and for its processes to end after it


@dataclass(frozen=True)
class Gap:
    """One trial: what the ledger says, less what happened.

    Attributes:
        trial: its name.
        below: draws begun that the ledger does not know of; above 0 the ledger lies.
        above: steps leased whose draw never ended.
        attempts: how often a process tried the trial.
    """

    trial: str
    below: int
    above: int
    attempts: int


def gaps(leased: Mapping[str, int], before: Draws, after: Draws) -> list[Gap]:
    """Hold the ledger against the draws, also while trials run.

    Args:
        leased: steps of each trial in the ledger.
        before: draws counted before the ledger was read: all of them must be in it.
        after: draws counted after that: what these do not have is above.
    """
    found = []
    for trial in sorted(leased.keys() | before.keys() | after.keys()):
        attempts = after.get(trial, ())
        steps = leased.get(trial, 0)
        begun = sum(attempt.begun for attempt in before.get(trial, ()))
        done = sum(attempt.done for attempt in attempts)
        found.append(Gap(trial, below=begun - steps, above=steps - done, attempts=len(attempts)))
    return found


@dataclass
class _Storm:
    """One storm in a folder of its own.

    Attributes:
        folder: where the sweep runs.
        rng: of the moments and the victims.
        ledger: URL.
        kills: by what was killed.
        moments: by where in a lease a worker was when it was killed, itself or with its driver.
        checks: how often the ledger was held against the draws.
        worst_below: draws that the ledger did not know, at the worst check; 0 or less is right.
        worst_above_per_attempt: leases above the draws, at the worst check.
        strange: what should not have happened, one sentence each.
    """

    folder: Path
    rng: random.Random
    ledger: str
    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    worst_below: int = -(10**9)
    worst_above_per_attempt: float = 0.0
    strange: list[str] = field(default_factory=list)
    _left: list[Process] = field(default_factory=list)
    _driver: subprocess.Popen[bytes] | None = None
    _sweeps: int = 0

    @property
    def draws(self) -> Path:
        """Where draws are counted."""
        return self.folder / "draws"

    def leased(self) -> dict[str, int]:
        """Steps leased by every trial of every sweep of the storm."""
        from tuner.privacy.ledger.ledger import Ledger

        state = Ledger.open(self.ledger, create=False).dataset_state("digits")
        mine = {path.name for path in self.folder.glob("runs/storm-*")}
        searches = [search for search in state.searches if search.search in mine]
        return {name: trial.leased for search in searches for name, trial in search.trials.items()}

    def check(self) -> list[Gap]:
        """Compare now."""
        before = read_draws(self.draws)
        leased = self.leased()
        found = gaps(leased, before, read_draws(self.draws))
        self.checks += 1
        for gap in found:
            self.worst_below = max(self.worst_below, gap.below)
            lost = gap.above / (LEASE * gap.attempts) if gap.attempts else (float("inf") if gap.above else 0.0)
            self.worst_above_per_attempt = max(self.worst_above_per_attempt, lost)
        return found

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """The program, with its draws counted."""
        log = (self.folder / "log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.budget_draws", str(self.draws), *words],
                cwd=self.folder,
                env=child_environment({"RAY_TMPDIR": str(self.folder)}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> subprocess.Popen[bytes]:
        """Begin a sweep, or go on with the one that was cut off, as a user would."""
        whole = [path for path in self.folder.glob("runs/storm-*") if (path / "plan.json").exists()]
        words = ["resume", "storm", "--quiet"] if len(whole) > self._sweeps else ["run", "storm.yaml", "--quiet"]
        self._driver = self.command(*words)
        return self._driver

    def running(self) -> bool:
        """Whether the driver lives; an end of its own is noted, and the next start begins a new sweep."""
        assert self._driver is not None
        code = self._driver.poll()
        if code is None:
            return True
        if code != -signal.SIGKILL:
            said = (self.folder / "log").read_text(errors="replace").splitlines()
            self._sweeps = len(list(self.folder.glob("runs/storm-*/plan.json")))
            if code != 0 and not any("first 3 trials all failed" in line for line in said[-5:]):
                self.strange.append(f"exit code {code}: {said[-1] if said else 'nothing said'}")
        return False

    def wait_for_draws(self) -> bool:
        """Until a trial of this driver draws; False when the driver ended before, or took too long."""
        seen = _total(read_draws(self.draws))
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self.running():
            if _total(read_draws(self.draws)) > seen:
                return True
            time.sleep(0.1)
        if self.running():
            self.strange.append(f"no draw within {_PATIENCE:.0f} s of a start")
        return False

    def kill_one(self) -> bool:
        """Kill a worker, or now and then the cashier; False when there is none."""
        assert self._driver is not None
        started = descendants(self._driver.pid)
        workers = [process for process in started if _is_worker(process)]
        cashiers = [process for process in started if process.title.startswith(_CASHIER)]
        kind, victims = "worker", workers
        if cashiers and self.rng.random() < _AT_THE_CASHIER:
            kind, victims = "cashier", cashiers
        if not victims:
            return False
        victim = self.rng.choice(victims)
        kill([victim])
        wait_until_gone([victim], seconds=5)
        self.kills[kind] += 1
        self._note_moment([victim])
        return True

    def kill_driver(self) -> None:
        """Kill the driver; what it leaves behind ends by itself, and is not waited for at every second time."""
        assert self._driver is not None
        left = descendants(self._driver.pid)
        self._driver.send_signal(signal.SIGKILL)
        self._driver.wait()
        self.kills["driver"] += 1
        self._left += left
        if self.rng.random() < 0.5:
            self.wait_for_the_dead()
        self._note_moment(left)

    def wait_for_the_dead(self) -> None:
        """Until all that could draw or charge for a killed driver is gone; Ray's own helpers may take longer."""
        able = [process for process in self._left if _is_worker(process) or process.title.startswith(_CASHIER)]
        if wait_until_gone(able, seconds=_PATIENCE):
            self.strange.append(f"workers outlived their driver by {_PATIENCE:.0f} s")

    def finish(self) -> None:
        """Resume once more, ask the sweep to stop, and let its last trials end."""
        driver = self.start()
        if not self.wait_for_draws():
            return
        stopping = self.command("stop", "storm")
        stopping.wait()
        try:
            code = driver.wait(timeout=4 * _PATIENCE)
        except subprocess.TimeoutExpired:
            self.strange.append("the last sweep did not stop")
            self.kill_driver()
            return
        if code != 0:
            self.running()

    def clear(self) -> None:
        """End what is left: the driver, and the helpers of Ray that outlive a killed driver for a minute."""
        if self._driver is not None and self._driver.poll() is None:
            self._left += descendants(self._driver.pid)
            self._driver.kill()
            self._driver.wait()
        kill(self._left)

    def _note_moment(self, victims: list[Process]) -> None:
        """Where in a lease the kill hit, by the draws of the worker's last attempt."""
        attempts = [attempt for trial in read_draws(self.draws).values() for attempt in trial]
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
    """Run a storm and note its figures."""
    from trainables.training import LEASE_STEPS

    if LEASE_STEPS != LEASE:
        raise ValueError(f"a lease must be of {LEASE} steps for this check, got {LEASE_STEPS}: change LEASE")
    if not settings.time_for(_LEAST_SECONDS):
        results.remarks.append("storm: left out by --quick, for its minutes are used up")
        return
    wanted = _QUICK_KILLS if settings.quick else _KILLS
    folder = Path(tempfile.mkdtemp(prefix="storm-", dir="/tmp"))  # Ray's sockets need a short path
    started = time.perf_counter()
    try:
        storm = _prepared(folder, settings)
        try:
            _blow(storm, wanted, settings)
            if not settings.quick:
                storm.finish()
            storm.wait_for_the_dead()
            final = storm.check()
        finally:
            storm.clear()
        _note(storm, final, results, wanted=wanted, seconds=time.perf_counter() - started)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepared(folder: Path, settings: Settings) -> _Storm:
    cpus = max((os.cpu_count() or 1) / _CONCURRENT, 0.1)
    url = settings.ledger or f"sqlite:///{folder}/runs/ledger.db"
    text = _FILE.replace("CPUS", repr(min(1.0, cpus))) + (f"ledger: {settings.ledger}\n" if settings.ledger else "")
    (folder / "storm.yaml").write_text(text)
    return _Storm(folder, random.Random(settings.seed), url)


def _blow(storm: _Storm, wanted: int, settings: Settings) -> None:
    a_life, futile = _QUICK_KILLS_A_LIFE if settings.quick else _KILLS_A_LIFE, 0
    while storm.kills.total() < wanted and settings.time_for(_LEAST_SECONDS / 2):
        if futile == 3:
            raise RuntimeError(f"the sweep must run, but three drivers ended before a draw: {storm.strange[-1:]}")
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
            if (storm.folder / "runs" / "ledger.db").exists() or not storm.ledger.startswith("sqlite"):
                storm.check()


def _note(storm: _Storm, final: list[Gap], results: Results, *, wanted: int, seconds: float) -> None:
    kills, figures = storm.kills.total(), results.figures
    undisturbed = [gap for gap in final if gap.attempts == 1]
    draws = read_draws(storm.draws)
    lost = [gap.above / LEASE for gap in final]
    if wanted == _KILLS:
        figures["storm.kills"] = count(kills)
    figures["storm.draws_below"] = count(max(0, storm.worst_below), note=f"worst of {storm.checks} checks")
    figures["storm.leases_above_per_attempt"] = count(storm.worst_above_per_attempt, note="worst trial and check")
    figures["storm.leases_above_per_trial"] = count(max(lost, default=0.0), note="worst trial, over all its attempts")
    figures["storm.errors"] = count(len(storm.strange))
    figures["storm.draws"] = count(sum(attempt.done for attempts in draws.values() for attempt in attempts))
    figures["storm.leased"] = count(sum(storm.leased().values()))
    figures["storm.seconds"] = count(seconds)
    results.tables["Kills"] = Table(
        ("driver", "worker", "cashier", *storm.moments),
        ((storm.kills["driver"], storm.kills["worker"], storm.kills["cashier"], *storm.moments.values()),),
    )
    by_attempts: dict[int, list[float]] = {}
    for gap in final:
        by_attempts.setdefault(gap.attempts, []).append(gap.above / LEASE)
    results.tables["Leases above, by a trial's attempts"] = Table(
        ("attempts", "trials", "mean", "most"),
        tuple((n, len(values), sum(values) / len(values), max(values)) for n, values in sorted(by_attempts.items())),
    )
    results.remarks += [f"storm: {each}" for each in storm.strange]
    results.remarks.append(
        f"storm: {kills} of {wanted} kills, {storm.checks} checks, {len(final)} trials, {len(undisturbed)} of them "
        "with one attempt; a kill can cost each trial that runs then the rest of its lease, and each lease after a "
        "kill is half as long"
    )


def _total(draws: Draws) -> int:
    return sum(attempt.begun for attempts in draws.values() for attempt in attempts)


def _is_worker(process: Process) -> bool:
    return process.title.startswith("ray::") and _WORKER in process.title
