"""A search along one parameter: samplers that propose what they are told, and a pruner that excludes a half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
from driver_fakes import driver_of
from ledger_fakes import MemoryLedger
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial
from sweep_fakes import METRIC, RUNGS, STEPS

from search_spaces.domains import Scalar, Suggest
from tuner.executors.base import act
from tuner.study.driver import StudyDriver
from tuner.study.protocols import StudyPruner, StudySampler
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.types import Suggestion, TrialShape
from tuner.study.unimodal.options import Along, Unimodality

ABOUT = Unimodality(parameters=(Along("radius"),), last_step=STEPS, tolerance=0.05)


class Line:
    """One number."""

    def sample(self, suggest: Suggest) -> dict[str, Scalar]:
        return {"radius": suggest.uniform("radius", 0.0, 100.0, log=False)}


class Radii(RandomSampler, StudySampler):
    """Proposes these in turn, and says what it is told to say."""

    def __init__(self, *radii: float) -> None:
        super().__init__(seed=0)
        self.radii = radii
        self.over = self.waiting = False
        self.order: tuple[int, ...] = ()

    def sample_independent(self, study, trial, param_name, param_distribution):  # noqa: ANN001, ANN201 - Optuna's
        return self.radii[trial.number % len(self.radii)]

    def waits(self, study: Study) -> bool:
        return self.waiting

    def is_over(self, study: Study) -> bool:
        return self.over

    def ranked(self, study: Study) -> tuple[int, ...]:
        return self.order

    def best(self, study: Study) -> tuple[int, float]:
        return self.order[0], 0.875


class Above(BasePruner, StudyPruner):
    """Excludes what lies above a bound, whenever it is asked."""

    def __init__(self, bound: float = 50.0) -> None:
        self.bound = bound

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        return bool(trial.params.get("radius", 0.0) > self.bound)

    def why(self, study: Study, trial: FrozenTrial) -> str:
        return f"radius {trial.params['radius']:g} is above {self.bound:g}, {len(trial.intermediate_values)} reports"


def make_study(*radii: float, pruner: BasePruner | None = None, sampler: BaseSampler | None = None) -> Study:
    return optuna.create_study(
        direction="maximize", sampler=sampler or Radii(*radii), pruner=pruner or Above()
    )  # fmt: skip


def shape_of(parameters: Mapping[str, object]) -> TrialShape:
    return TrialShape(steps=STEPS, rungs=RUNGS, sample_rate=0.1, noise_multiplier=1.0)


PATHS: dict[str, dict[str, Any]] = {"one shape": {}, "priced": {"shape_of": shape_of, "cheapest": (shape_of({}),)}}


def make_driver(study: Study, budget: MemoryLedger | None = None, **options: Any) -> StudyDriver:  # noqa: ANN401
    return driver_of(study, budget, space=Line(), **options)


def hill(radius: float, step: int) -> float:
    return 0.9 - (radius - 30) ** 2 / 2000 - 0.2 * (1 - step / STEPS)


def unimodal_study(**pruner: object) -> Study:
    return optuna.create_study(
        direction="maximize",
        sampler=make_sampler("unimodal", {"others": "random", "at_once": 4}, seed=1, unimodality=ABOUT),
        pruner=make_pruner("unimodal", pruner, rung_steps=RUNGS, unimodality=ABOUT),
    )


def run_hill(driver: StudyDriver, ledger: MemoryLedger | None, trial: Suggestion) -> None:
    for step in RUNGS:
        if ledger is not None:
            ledger.lease(trial.trial_id, 20)
        if not act(driver, trial.trial_id, step, {METRIC: hill(float(str(trial.parameters["radius"])), step)}):
            return
