"""What the tests of the driver share: starting trials, running them, and dying between two writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import optuna
import pytest
from ledger_fakes import Held, MemoryLedger
from sweep_fakes import METRIC, RUNGS, STEPS, FakeSpace

from tuner.executors.base import act
from tuner.study import views
from tuner.study.driver import StudyDriver
from tuner.study.types import Stop, Suggestion, TrialStatus


def random_study(pruner: optuna.pruners.BasePruner | None = None) -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=1)
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner or optuna.pruners.NopPruner())


def driver_of(study: optuna.Study, budget: MemoryLedger | None = None, **options: Any) -> StudyDriver:  # noqa: ANN401
    settings = {"space": FakeSpace(), "trials": 10, "steps_per_trial": STEPS, "rung_steps": RUNGS, **options}
    return StudyDriver(study, settings.pop("space"), budget=budget, metric=METRIC, **{"mode": "max", **settings})


def started(driver: StudyDriver) -> Suggestion:
    suggestion = driver.next()
    assert isinstance(suggestion, Suggestion), suggestion
    return suggestion


def run_through(
    driver: StudyDriver, ledger: MemoryLedger | None, trial: Suggestion, score: float = 0.5, until: int | None = None
) -> None:
    """Lease, step and report up to `until`, or until the driver has had enough."""
    step = 0
    for rung in trial.shape.rungs:
        if until is not None and rung > until:
            return
        if ledger is not None:
            ledger.lease(trial.trial_id, rung - step)
        step = rung
        if not act(driver, trial.trial_id, rung, {METRIC: score}):
            return


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.trials]


class Crash(BaseException):
    """The process dies here."""


@contextmanager
def dying(owner: type, name: str, *, after: bool = False, at: int = 1) -> Iterator[None]:
    """Die in the `at`-th call of a method, before or after its work; what is done inside must reach it."""
    calls = 0
    real: Callable[..., object] = getattr(owner, name)

    def call(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            raise Crash
        answer = real(*arguments, **options)
        if calls == at:
            raise Crash
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, call)
        with pytest.raises(Crash):
            yield


@dataclass
class Machine:
    """A sweep that is driven, interrupted and resumed at random, with the remaining steps of each running trial."""

    make: Callable[[], StudyDriver]
    ledger: MemoryLedger
    running: dict[str, tuple[Suggestion, int, bool]] = field(default_factory=dict)
    """Trial id → the trial, its step, and whether it has to score its checkpoint first."""
    saved: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.crash()

    def crash(self) -> None:
        self.running = {}
        self.driver = self.make()
        self.driver.reconcile(self.saved.get)

    def act(self, action: str, which: int) -> None:
        if action == "crash":
            self.crash()
        elif action == "next":
            decision = self.driver.next()
            if isinstance(decision, Suggestion):
                self.placed(decision.trial_id, decision)
        elif self.running:
            trial_id = sorted(self.running)[which % len(self.running)]
            getattr(self, action)(trial_id, *self.running[trial_id])
        self.check()

    def placed(self, trial_id: str, trial: Suggestion) -> None:
        """A worker begins, from its checkpoint if there is one."""
        step = self.saved.get(trial_id, 0)
        self.running[trial_id] = trial, step, step > 0 and step != trial.scored

    def rung(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        """To the next rung, or the score of the checkpoint again."""
        if not again:
            step = self.saved[trial_id] = self._leased(trial_id, trial, step)
        self.running[trial_id] = trial, step, False
        self._released(trial_id, trial)
        if not act(self.driver, trial_id, step, {METRIC: self.score(trial_id, step)}):
            del self.running[trial_id]

    def torn(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        """The driver dies after some steps were leased, or after a score was drawn and before it was reported."""
        if again:
            self._released(trial_id, trial)
        else:
            rung = self._leased(trial_id, trial, step)
            if step % 2 == 0:
                self.saved[trial_id] = rung
                self._released(trial_id, trial)
        self.crash()

    def lost(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        """A worker dies and the trial begins again from its checkpoint."""
        if self.driver.restarted(trial_id):
            self.placed(trial_id, trial)
        else:
            del self.running[trial_id]

    def ends(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        outcome = TrialStatus.FAILED if again else TrialStatus.PRUNED
        self.driver.finish(trial_id, outcome=outcome, steps_taken=step)
        del self.running[trial_id]

    def _leased(self, trial_id: str, trial: Suggestion, step: int) -> int:
        rung = next(rung for rung in trial.shape.rungs if rung > step)
        self.ledger.lease(trial_id, rung - step)
        return rung

    def _released(self, trial_id: str, trial: Suggestion) -> None:
        if trial.shape.releases:
            self.ledger.release(trial_id, 1)

    def check(self) -> None:
        """What is reserved is what the running trials may still take, and no cap is passed."""
        held = self.ledger.outstanding()
        assert self.ledger.committed() <= self.ledger.cap
        assert self.ledger.released() + sum(each.releases for each in held.values()) <= self.ledger.score_cap
        for trial_id, (trial, step, again) in self.running.items():
            until = self.driver.reserved_until(trial_id)
            scores = again + sum(step < rung <= until for rung in trial.shape.rungs)
            assert held[trial_id] == Held(until - step, scores if trial.shape.releases else 0)

    def score(self, trial_id: str, step: int) -> float:
        return 0.5

    def complete(self) -> None:
        """Go on until the driver stops: then all is settled and every trial has ended."""
        self.act("crash", 0)
        for _ in range(200):
            if not self.running:
                self.act("next", 0)
                if not self.running:
                    break
            self.act("rung", 0)
        assert isinstance(self.driver.next(), Stop)
        assert self.ledger.outstanding() == {}
        for trial in self.driver.study.trials:
            assert trial.state.is_finished()
            assert (views.TRIAL_ID in trial.user_attrs) != (views.REJECTED in trial.user_attrs)
