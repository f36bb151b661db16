"""Fakes for sweeps that take milliseconds and survive kills: a training, a ledger in one file, and a space."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import logging
import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import optuna
import torch
from ledger_fakes import FileCharge, FileLedger

from search_spaces.domains import Suggest
from trainables.charge import Charge
from trainables.engine.ranks import Ranks
from trainables.rungs import writing_checkpoint
from tuner.executors.base import ChargeFor, ExecutorSettings, TrialSetup
from tuner.executors.local import LocalExecutor
from tuner.executors.registry import EXECUTORS
from tuner.study.best import best_trial
from tuner.study.committed import Commitment, Committed
from tuner.study.driver import StudyDriver
from tuner.study.pauses import Levels, levels_of
from tuner.study.pruners.make import make_pruner
from tuner.study.rung_wise import asks_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.storage import open_storage, open_study
from tuner.study.types import Observer, Stop, Suggestion, TrialShape, TrialView, WhenSure
from tuner.study.unimodal.options import Along, Unimodality

STEPS = 100
RUNGS = (20, 40, 60, 80, 100)
METRIC = "validation_accuracy"
LEASE = 10
SECRET = "record 17 says secret"
UNIMODALITY = Unimodality(parameters=(Along("smoothing_radius"),), last_step=STEPS, tolerance=0.02)


class FakeSpace:
    """Space of two numbers, a choice, and a number that only one of the choices has."""

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
    """Return a point of a learning curve, best near learning_rate 0.2 and radius 20; high rates fall at the end."""
    off = abs(math.log(float(parameters["learning_rate"]) / 0.2)) + abs(float(parameters["smoothing_radius"]) - 20) / 40
    speed = 10 + float(parameters["smoothing_radius"])
    fade = 1 - min(0.9, float(parameters["learning_rate"])) * step / STEPS
    return math.exp(-off / 2) * (1 - math.exp(-step / speed)) * fade


@dataclass(frozen=True)
class FakeSpec:
    """Behaviour of a `FakeTraining`; faults are given by trial number."""

    number: int
    parameters: dict[str, object]
    draws: str
    raise_in: tuple[int, ...] = ()
    nan_in: tuple[int, ...] = ()
    raise_at: int | None = None
    full_disk_in: tuple[int, ...] = ()
    kill_once_at: int | None = None
    stop_once_at: int | None = None
    interrupt_at: int | None = None
    device: str = "cpu"


def tell_all() -> None:
    """Tell of a record in every way that code has by accident, and raise."""
    print(SECRET)
    print(SECRET, file=sys.stderr)
    os.write(1, SECRET.encode())
    os.write(2, SECRET.encode())
    subprocess.run(["echo", SECRET], check=True)
    ctypes.CDLL(None).puts(SECRET.encode())  # stays in a buffer of the C library
    logging.getLogger("some.package").warning(SECRET)
    logging.getLogger().error(SECRET)
    warnings.warn(SECRET, RuntimeWarning, stacklevel=1)
    try:
        {}[SECRET]
    except KeyError as error:
        raise ValueError(SECRET) from error


class FakeTraining:
    """Training as executors see it. Every step appends one byte to the file `draws`."""

    def __init__(self, spec: FakeSpec, charge: Charge) -> None:
        self.spec, self.charge = spec, charge
        self.step = 0
        self.learning_rate = float(spec.parameters["learning_rate"])
        if spec.number in spec.raise_in:
            raise ValueError(SECRET)

    def run_to(self, step: int) -> None:
        while self.step < step:
            take = min(LEASE, step - self.step)
            self.charge.lease(take, sample_rate=1.0, noise_multiplier=1.0)
            for _ in range(take):
                with Path(self.spec.draws).open("ab") as draws:
                    draws.write(b".")
                self.step += 1
                if self.step == self.spec.raise_at and self.spec.number == 0:
                    tell_all()
                self._maybe_die()

    def _maybe_die(self) -> None:
        if self.step == self.spec.interrupt_at:
            signal.raise_signal(signal.SIGINT)
        if self.step in (self.spec.kill_once_at, self.spec.stop_once_at):
            flag = Path(self.spec.draws + ".killed")
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL if self.step == self.spec.kill_once_at else signal.SIGSTOP)

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        value = score(self.spec.parameters, self.step)
        if self.spec.number in self.spec.nan_in and self.step >= RUNGS[1]:
            value = math.nan
        return {METRIC: value, "validation_loss": 1 - value}

    def save(self, path: Path) -> None:
        if self.spec.number in self.spec.full_disk_in:
            with writing_checkpoint(path.parent):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = path.with_suffix(".part")
        part.write_bytes(with_checksum(str(self.step).encode()))
        part.replace(path)

    def load(self, path: Path) -> None:
        content = path.read_bytes()
        if content != with_checksum(content[:-32]):
            raise ValueError(content)
        self.step = int(content[:-32])


class FakeRanks(FakeTraining):
    """Training of two ranks. Every step adds a number of each, and only rank 0 draws. `kill_once_at` kills rank 1."""

    def __init__(self, spec: FakeSpec, charge: Charge, *, ranks: Ranks) -> None:
        super().__init__(replace(spec, kill_once_at=None), charge)
        self.ranks, self.kill_once_at = ranks, spec.kill_once_at

    def run_to(self, step: int) -> None:
        while self.step < step:
            take = min(LEASE, step - self.step)
            self.charge.lease(take, sample_rate=1.0, noise_multiplier=1.0)
            for _ in range(take):
                self.ranks.send({"step": self.step + 1})
                if float(self.ranks.add(torch.ones(1))) != 2.0:
                    raise ValueError("a rank did not add its share")
                with Path(self.spec.draws).open("ab") as draws:
                    draws.write(b".")
                self.step += 1

    def help(self) -> None:
        self.spec = replace(self.spec, kill_once_at=self.kill_once_at)
        while True:
            self.step = int(self.ranks.receive()["step"])
            self._maybe_die()
            self.ranks.add(torch.ones(1))


def with_checksum(content: bytes) -> bytes:
    """Return the content of a checkpoint file, as `trainables.checkpoint` writes it."""
    return content + hashlib.sha256(content).digest()


@dataclass(frozen=True)
class KilledCharge(FileCharge):
    """Charge whose process is killed once in the fifth lease of a trial: before it is written, or after."""

    after: bool = False

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        flag = Path(f"{self.ledger.path}.{self.trial}.killed")
        dies = self.leased() == 4 * LEASE and not flag.exists()
        if not dies or self.after:
            super().lease(steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier)
        if dies:
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def best_again(trials: Sequence[TrialView]) -> Commitment | None:
    """Return the configuration of the best trial, for a committed run."""
    best = best_trial(trials, mode="max")
    return None if best is None else Commitment(parameters=dict(best.parameters), source=best.id)


LONG_RUN = Committed(
    shape=TrialShape(steps=2 * STEPS, rungs=tuple(2 * rung for rung in RUNGS), save_every=25), choose=best_again
)
"""A committed run of twice the steps. It writes a checkpoint at every 25th step, and at its reports."""


class Recorder(Observer):
    """Observer that keeps what it sees, and may act on the n-th report."""

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


class MostRunning(Observer):
    """Observer that counts the most trials that ran at once."""

    def __init__(self) -> None:
        self.most = 0
        self._running: set[str] = set()

    def trial_started(self, trial: TrialView) -> None:
        self._running.add(trial.id)
        self.most = max(self.most, len(self._running))

    def trial_finished(self, trial: TrialView) -> None:
        self._running.discard(trial.id)


@dataclass
class Sweep:
    """A sweep in a folder, wired as the runner does it."""

    folder: Path
    trials: int = 6
    cap: int = 10**9
    pruner: tuple[str, dict[str, object]] = ("none", {})
    sampler: str = "random"
    observers: tuple[object, ...] = ()
    faults: dict[str, object] = field(default_factory=dict)
    storage: object = None
    seed: int = 3
    when_sure: WhenSure = "go_on"
    committed: Committed | None = None
    full_runs: float | None = None
    make_training: Callable[..., FakeTraining] = FakeTraining

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
            sampler=lambda before: make_sampler(
                self.sampler, seed=self.seed, trials_before=before, unimodality=UNIMODALITY
            ),
            pruner=make_pruner(self.pruner[0], self.pruner[1], rung_steps=RUNGS, unimodality=UNIMODALITY),
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
            when_sure=self.when_sure,
            committed=self.committed,
            levels=None if self.full_runs is None else self.levels(),
            asks_pruner=asks_pruner(self.pruner[0]),
        )

    def levels(self) -> Levels:
        return levels_of(*self.pruner, RUNGS, trials=self.trials, full_runs=self.full_runs)

    def spec_for(self, suggestion: Suggestion) -> FakeSpec:
        return FakeSpec(suggestion.number, suggestion.parameters, str(self.folder / "draws"), **self.faults)

    def setup(self, charge_for: ChargeFor | None = None) -> TrialSetup:
        return TrialSetup(
            spec_for=self.spec_for,
            charge_for=charge_for or self.ledger.charge_for,
            folder=self.folder,
            make_training=self.make_training,
        )

    def run_local(self, driver: StudyDriver | None = None) -> Stop:
        return LocalExecutor().run(driver or self.driver(), self.setup())

    def run_ray(
        self, driver: StudyDriver | None = None, charge_for: ChargeFor | None = None, **options: object
    ) -> Stop:
        return EXECUTORS["ray"](ExecutorSettings(**options)).run(driver or self.driver(), self.setup(charge_for))


def facts(study: optuna.Study) -> list[tuple[int, str, dict[str, object], dict[int, float], float | None]]:
    """Return what conformance compares: number, state, parameters, intermediate values and value of each trial."""
    return [(t.number, t.state.name, t.params, t.intermediate_values, t.value) for t in study.get_trials()]


def run_script(script: str, *arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, which may be killed."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def states(sweep: Sweep) -> list[str]:
    """Return the states of a sweep's trials, in their order."""
    return [trial.state.name for trial in sweep.study().get_trials()]
