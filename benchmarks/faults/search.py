"""One simulated search: its settings, drawn from a seed, and what must hold after every event and at its end."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler

from benchmarks.faults.replayed import (
    MECHANISM,
    METRIC,
    RUNGS,
    SCORE_NOISE,
    STEPS,
    CurveSpace,
    FailingBudget,
    FailingCharge,
    FailingStorage,
    Replay,
    ReplayedTraining,
    World,
    curve_of,
)
from trainables.rungs import TrainingLoop
from tuner.executors.base import TrialSetup
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import LedgerCharge, SearchBudget
from tuner.study import views
from tuner.study.best import best_trial
from tuner.study.committed import Commitment, Committed
from tuner.study.driver import StudyDriver
from tuner.study.pauses import levels_of
from tuner.study.pruners.make import make_pruner
from tuner.study.rung_wise import asks_pruner
from tuner.study.storage import open_study
from tuner.study.types import Observer, Stop, Suggestion, TrialShape, TrialView

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # else the disk for temporary files
_DELTA, _SCORE_CAP = 1e-5, 60


@dataclass
class _Watch(Observer):
    """Observer that counts the ends which it was told."""

    ends: Counter[str] = field(default_factory=Counter)

    def trial_finished(self, trial: TrialView) -> None:
        self.ends[trial.id] += 1


class Search:
    """One search in a folder, with its settings drawn from the seed."""

    def __init__(self, folder: Path, seed: int, flaw: str) -> None:
        rng = random.Random(seed)
        self.world = World(rng, rate=rng.choice((0.02, 0.05, 0.1, 0.2)), flaw=flaw)
        self.folder, self.rng = folder, rng
        self.trials, self.slots = rng.randint(2, 5), rng.randint(1, 3)
        self.pruner, self.protected = rng.choice(("none", "median", "asha")), rng.random() < 0.3
        self.full_runs = rng.choice((1.5, 2.0)) if rng.random() < 0.4 else None
        self.commits = self.full_runs is None and rng.random() < 0.25
        whole = self.trials if self.full_runs is None else self.full_runs
        self.cap = int(STEPS * whole * rng.choice((1.0, 1.3, 2.0))) + (100 if self.commits else 0)
        self.raises_in = rng.choice((None, None, None, 0, 1))
        self.storage, self.watch = FailingStorage(self.world), _Watch()
        (folder / "ledger.db").write_bytes(_filled(self.cap, protected=self.protected))
        self.ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}", create=False)
        self.budget = SearchBudget(self.ledger, "search")
        self.charges: dict[str, LedgerCharge] = {}
        self.copies: dict[Path, bytes] = {}  # of damaged checkpoints
        self.setup = TrialSetup(
            spec_for=self._spec,
            charge_for=lambda trial: FailingCharge(self.world, self._charge(trial)),
            folder=folder,
            make_training=ReplayedTraining,
        )

    def _charge(self, trial: str) -> LedgerCharge:
        """Return the charge that the charge actor keeps for a trial, with its own connection to the ledger."""
        return self.charges.setdefault(trial, LedgerCharge(self.ledger.url, "search", trial))

    def driver(self) -> StudyDriver:
        """Return the driver of a new process."""
        shape = TrialShape(steps=STEPS, rungs=RUNGS, releases=3 if self.protected else 0)
        shape = replace(shape, sample_rate=MECHANISM.sample_rate, noise_multiplier=MECHANISM.noise_multiplier)
        long_run = replace(shape, steps=80, rungs=(30, 55, 80), save_every=20)
        levels = None
        if self.full_runs is not None:
            levels = levels_of(self.pruner, _OPTIONS[self.pruner], RUNGS, trials=self.trials, full_runs=self.full_runs)
        study = open_study(
            self.storage,
            "search",
            mode="max",
            sampler=lambda before: RandomSampler(seed=self.trials + 97 * before),
            pruner=self._pruner(),
        )
        return StudyDriver(
            study,
            CurveSpace(),
            trials=self.trials,
            steps_per_trial=STEPS,
            rung_steps=RUNGS,
            metric=METRIC,
            budget=FailingBudget(self.world, self.budget),
            observers=[self.watch],
            max_first_failures=99,
            shape_of=lambda _: shape,
            committed=Committed(shape=long_run, choose=_best) if self.commits else None,
            levels=levels,
            asks_pruner=asks_pruner(self.pruner),
        )

    def _pruner(self) -> BasePruner:
        return make_pruner(self.pruner, _OPTIONS[self.pruner], rung_steps=RUNGS)

    def _spec(self, trial: Suggestion) -> Replay:
        raises = 35 if trial.number == self.raises_in and not trial.committed else 0
        scores = dict(zip(trial.shape.rungs[-3:], curve_of(trial.parameters), strict=False))
        return Replay(self.world, trial.trial_id, scores, self.protected, raises)

    def loop(self, trial: Suggestion) -> TrainingLoop:
        """Return what a worker runs for a trial."""
        return TrainingLoop(
            self.setup.make_training,
            self.setup.spec_for(trial),
            self.setup.charge_for(trial.trial_id),
            folder=self.folder,
            trial_id=trial.trial_id,
            rung_steps=trial.shape.rungs,
            saves=trial.shape.stops,
            scored=trial.scored,
        )

    def check(self) -> None:
        """Compare the ledger with the independent counts."""
        state = self.ledger.search_state("search")
        pools = [(state.training, self.world.draws, self.cap, "steps")]
        if state.validation is not None:
            pools.append((state.validation, self.world.score_draws, _SCORE_CAP, "scores"))
        for pool, drawn, cap, unit in pools:
            for trial, count in drawn.items():
                if count > (leased := pool.account(trial).leased):
                    self.breaks(f"{count} {unit} drawn and {leased} leased")
            if pool.leased_steps + pool.reserved_steps > cap or drawn.total() > cap:
                self.breaks(f"{pool.leased_steps} {unit} leased, {pool.reserved_steps} reserved, cap {cap}")

    def check_end(self, stop: Stop | None, driver: StudyDriver | None) -> None:
        """Check that the search has ended, with every trial accounted for."""
        if stop is None or driver is None or driver.running:
            self.breaks("it did not end")
            return
        ledger = self.ledger.search_state("search").training.trials
        if any(not trial.settled for trial in ledger.values()):
            self.breaks("a reservation is left")
        known = set()
        for trial in driver.study.get_trials(deepcopy=False):
            name = str(trial.user_attrs.get(views.TRIAL_ID, ""))
            known.add(name)
            if not trial.state.is_finished() and trial.state.name != "WAITING":
                self.breaks("a trial is left running")
            elif name and not self.watch.ends[name]:
                self.breaks("the end of a trial was never announced")
            taken = int(trial.user_attrs.get(views.STEPS_TAKEN, 0))
            if taken > self.world.draws[name]:
                self.breaks(f"a trial says {taken} steps and drew {self.world.draws[name]}")
            whole = trial.state.name == "COMPLETE" and views.COMMITTED not in trial.user_attrs
            if whole and (taken != STEPS or trial.value != curve_of(trial.params)[-1]):
                self.breaks(f"a complete trial has {taken} steps and the score {trial.value}")
        # The driver reserves before it stores a trial, so it may die in between. Such a trial never ran.
        if any(account.leased for name, account in ledger.items() if name not in known):
            self.breaks("a trial that the study does not know has leased steps")

    def breaks(self, what: str) -> None:
        """Note a promise that was broken."""
        if what not in self.world.broken:
            self.world.broken.append(what)


_OPTIONS: dict[str, dict[str, object]] = {"none": {}, "median": {}, "asha": {"reduction_factor": 2}}


def _best(trials: Sequence[TrialView]) -> Commitment | None:
    best = best_trial(trials, mode="max")
    return None if best is None else Commitment(parameters=dict(best.parameters), source=best.id)


@cache
def _filled(cap: int, *, protected: bool) -> bytes:
    """Return the file of a ledger with one open search. To make one takes longer than a whole schedule."""
    scores = TotalSteps(SampledGaussian(1.0, SCORE_NOISE), _SCORE_CAP) if protected else None
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
        ledger.open_search(
            "data",
            "search",
            filter=TotalSteps(MECHANISM, cap),
            epsilon=max(epsilon(MECHANISM, cap, _DELTA), 2.0),
            delta=_DELTA,
            validation=scores,
        )
        return Path(folder, "ledger.db").read_bytes()
