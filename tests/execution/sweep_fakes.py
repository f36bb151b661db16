"""A tiny training, a ledger of one file and a space, to drive sweeps in milliseconds and across kills."""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import optuna

from search_spaces.domains import Suggest
from tuner.errors import BudgetRefusedError, LedgerError
from tuner.execution.common import Charge
from tuner.search.driver import StudyDriver
from tuner.search.pruners import make_pruner
from tuner.search.samplers import make_sampler
from tuner.search.storage import open_storage, open_study
from tuner.search.types import NullObserver, Stop, Suggestion, TrialView

STEPS = 100
RUNGS = (20, 40, 60, 80, 100)
METRIC = "validation_accuracy"
LEASE = 10


class FakeSpace:
    """Two numbers, a choice, and a number that only one of the choices has."""

    def sample(self, suggest: Suggest) -> dict[str, object]:
        values: dict[str, object] = {
            "learning_rate": suggest.uniform("learning_rate", 0.01, 1.0, log=True),
            "smoothing_radius": suggest.uniform("smoothing_radius", 0.0, 50.0, log=False),
            "schedule": suggest.choice("schedule", ("constant", "inverse_time")),
        }
        if values["schedule"] == "inverse_time":
            values["schedule.inverse_time.decay"] = suggest.uniform("schedule.inverse_time.decay", 0.5, 3.0, log=False)
        values["smoothing_samples"] = 10
        return values


def score(parameters: Mapping[str, object], step: int) -> float:
    """A learning curve: better near learning_rate 0.2 and radius 20; it rises, and falls at high rates."""
    off = abs(math.log(float(parameters["learning_rate"]) / 0.2)) + abs(float(parameters["smoothing_radius"]) - 20) / 40
    speed = 10 + float(parameters["smoothing_radius"])
    fade = 1 - min(0.9, float(parameters["learning_rate"])) * step / STEPS
    return math.exp(-off / 2) * (1 - math.exp(-step / speed)) * fade


@dataclass(frozen=True)
class FakeSpec:
    """What a `FakeTraining` does, by trial number where it misbehaves."""

    number: int
    parameters: dict[str, object]
    draws: str
    raise_in: tuple[int, ...] = ()
    nan_in: tuple[int, ...] = ()
    kill_once_at: int | None = None
    interrupt_at: int | None = None


class FakeTraining:
    """Implements what executors ask of `PrivateTraining`; every step it takes is one byte in the file `draws`."""

    def __init__(self, spec: FakeSpec, charge: Charge) -> None:
        self.spec, self.charge = spec, charge
        self.step = 0
        self.learning_rate = float(spec.parameters["learning_rate"])
        if spec.number in spec.raise_in:
            raise ValueError("record 17 says secret")

    def run_to(self, step: int) -> None:
        while self.step < step:
            take = min(LEASE, step - self.step)
            self.charge.lease(take)
            for _ in range(take):
                with Path(self.spec.draws).open("ab") as draws:
                    draws.write(b".")
                self.step += 1
                self._maybe_die()

    def _maybe_die(self) -> None:
        if self.step == self.spec.interrupt_at:
            signal.raise_signal(signal.SIGINT)
        if self.step == self.spec.kill_once_at:
            flag = Path(self.spec.draws + ".killed")
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        value = score(self.spec.parameters, self.step)
        if self.spec.number in self.spec.nan_in and self.step >= RUNGS[1]:
            value = math.nan
        return {METRIC: value, "validation_loss": 1 - value}

    def save(self, path: Path) -> None:
        part = path.with_suffix(".part")
        part.write_text(str(self.step))
        part.replace(path)

    def load(self, path: Path) -> None:
        self.step = int(path.read_text())


@dataclass(frozen=True)
class FileLedger:
    """A ledger in one file of JSON lines: reserve, lease and settle as `tuner.privacy` has them, with one cap."""

    path: str
    cap: int = 10**9

    def fits(self, steps: int) -> bool:
        return self._committed() + steps <= self.cap

    def reserve(self, trial: str, steps: int) -> None:
        if not self.fits(steps):
            raise BudgetRefusedError("full")
        if trial in self.settled():
            raise LedgerError(f"{trial} is settled")
        self._write("reserve", trial, steps)

    def lease(self, trial: str, steps: int) -> None:
        if steps > self.outstanding().get(trial, 0):
            raise BudgetRefusedError(f"{trial} has no reservation for {steps} steps")
        self._write("lease", trial, steps)

    def settle(self, trial: str, steps_taken: int) -> None:
        if trial not in self.outstanding():
            raise LedgerError(f"{trial} cannot be settled twice, or was never reserved")
        if steps_taken > self.leased(trial):
            raise LedgerError(f"{trial} took {steps_taken} steps and leased {self.leased(trial)}")
        self._write("settle", trial, steps_taken)

    def outstanding(self) -> dict[str, int]:
        left: dict[str, int] = {}
        for kind, trial, steps in self.entries():
            if kind == "reserve":
                left[trial] = left.get(trial, 0) + steps
            elif kind == "lease":
                left[trial] -= steps
            else:
                del left[trial]
        return left

    def settled(self) -> dict[str, int]:
        return {trial: steps for kind, trial, steps in self.entries() if kind == "settle"}

    def leased(self, trial: str | None = None) -> int:
        return sum(s for kind, name, s in self.entries() if kind == "lease" and trial in (None, name))

    def reserved(self, trial: str) -> int:
        return sum(s for kind, name, s in self.entries() if kind == "reserve" and name == trial)

    def charge_for(self, trial: str) -> FileCharge:
        return FileCharge(self, trial)

    def entries(self) -> list[tuple[str, str, int]]:
        path = Path(self.path)
        if not path.exists():
            return []
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()]

    def _committed(self) -> int:
        return self.leased() + sum(self.outstanding().values())

    def _write(self, kind: str, trial: str, steps: int) -> None:
        with Path(self.path).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps([kind, trial, steps]) + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class MemoryLedger(FileLedger):
    """The same ledger without a disk."""

    lines: list[tuple[str, str, int]] = field(default_factory=list)

    def entries(self) -> list[tuple[str, str, int]]:
        return self.lines

    def _write(self, kind: str, trial: str, steps: int) -> None:
        self.lines.append((kind, trial, steps))


@dataclass(frozen=True)
class FileCharge:
    """The charge of one trial."""

    ledger: FileLedger
    trial: str

    def lease(self, steps: int) -> None:
        self.ledger.lease(self.trial, steps)

    def leased(self) -> int:
        return self.ledger.leased(self.trial)


class Recorder(NullObserver):
    """Remembers what it is told, and may act on the n-th report."""

    def __init__(self, on_report: Callable[[int], None] | None = None) -> None:
        self.started: list[TrialView] = []
        self.reports: list[tuple[str, int]] = []
        self.finished: list[TrialView] = []
        self._on_report = on_report

    def trial_started(self, trial: TrialView) -> None:
        self.started.append(trial)

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        self.reports.append((trial.id, step))
        if self._on_report is not None:
            self._on_report(len(self.reports))

    def trial_finished(self, trial: TrialView) -> None:
        self.finished.append(trial)


@dataclass
class Sweep:
    """A sweep in a folder, as `run.py` would wire it."""

    folder: Path
    trials: int = 6
    cap: int = 10**9
    pruner: tuple[str, dict[str, object]] = ("none", {})
    sampler: str = "random"
    observers: tuple[object, ...] = ()
    faults: dict[str, object] = field(default_factory=dict)
    storage: object = None
    seed: int = 3

    @property
    def ledger(self) -> FileLedger:
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLedger(str(self.folder / "ledger.jsonl"), self.cap)

    @property
    def draws(self) -> int:
        path = self.folder / "draws"
        return path.stat().st_size if path.exists() else 0

    def study(self) -> optuna.Study:
        storage = self.storage or open_storage(self.folder)
        return open_study(
            storage,
            "sweep",
            mode="max",
            sampler=lambda before: make_sampler(self.sampler, seed=self.seed, trials_before=before),
            pruner=make_pruner(self.pruner[0], self.pruner[1], rung_steps=RUNGS),
        )

    def driver(self) -> StudyDriver:
        return StudyDriver(
            self.study(),
            FakeSpace(),
            trials=self.trials,
            steps_per_trial=STEPS,
            rung_steps=RUNGS,
            metric=METRIC,
            mode="max",
            budget=self.ledger,
            observers=self.observers,
        )

    def spec_for(self, suggestion: Suggestion) -> FakeSpec:
        return FakeSpec(suggestion.number, suggestion.parameters, str(self.folder / "draws"), **self.faults)

    def run_local(self, driver: StudyDriver | None = None) -> Stop:
        from tuner.execution import local

        return local.run(
            driver or self.driver(),
            self.spec_for,
            self.ledger.charge_for,
            folder=self.folder,
            make_training=FakeTraining,
        )

    def run_ray(self, driver: StudyDriver | None = None, **options: object) -> Stop:
        from tuner.execution import ray_runner

        return ray_runner.run(
            driver or self.driver(),
            self.spec_for,
            self.ledger.charge_for,
            folder=self.folder,
            make_training=FakeTraining,
            **options,
        )


def facts(study: optuna.Study) -> list[tuple[int, str, dict[str, object], dict[int, float], float | None]]:
    """What conformance compares of a study: number, state, parameters, intermediate values and value."""
    return [(t.number, t.state.name, t.params, t.intermediate_values, t.value) for t in study.get_trials()]
