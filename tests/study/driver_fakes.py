"""What the tests of the driver share: starting trials, running them, and dying between two writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
import pytest
from sweep_fakes import METRIC, RUNGS, STEPS, FakeSpace, MemoryLedger

from tuner.executors.base import act
from tuner.study.driver import StudyDriver
from tuner.study.types import Suggestion


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
