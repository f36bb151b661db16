"""Two small trials on scikit-learn's digits with the real engine, space and ledger, on every executor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.parsing import parse_space
from trainables.data import DatasetRequest, public_train_size
from trainables.rungs import checkpoint_path
from trainables.training import TrainingSpec
from tuner.executors.base import ExecutorSettings, TrialSetup
from tuner.executors.registry import EXECUTORS
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import SearchBudget
from tuner.study.best import best_trial
from tuner.study.driver import StudyDriver
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.storage import open_storage, open_study
from tuner.study.types import StopReason, Suggestion
from tuner.study.views import read_trials

BATCH, STEPS, RUNGS, DELTA = 64, 24, (8, 16, 24), 1e-5
CAP = 2 * STEPS
REQUEST = DatasetRequest(name="digits")
MECHANISM = SampledGaussian(sample_rate=BATCH / public_train_size(REQUEST), noise_multiplier=1.0)
SPACE = {"smoothing_radius": {"log_uniform": [0.1, 2.0]}, "smoothing_samples": 2, "learning_rate": 0.5}


def driver_of(folder: Path, budget: SearchBudget) -> StudyDriver:
    study = open_study(
        open_storage(folder),
        "sweep",
        mode="max",
        sampler=lambda before: make_sampler("random", seed=0, trials_before=before),
        pruner=make_pruner("none"),
    )
    return StudyDriver(
        study,
        parse_space(SPACE, method="dplis"),
        trials=10,
        steps_per_trial=STEPS,
        rung_steps=RUNGS,
        metric="validation_accuracy",
        mode="max",
        budget=budget,
    )


SPEC = TrainingSpec(
    method="dplis",
    model="logistic_regression",
    dataset=REQUEST,
    batch_size=BATCH,
    steps=STEPS,
    noise_multiplier=MECHANISM.noise_multiplier,
    sample_rate=MECHANISM.sample_rate,
    parameters={"smoothing_radius": 0.5, "smoothing_samples": 2, "learning_rate": 0.5},
    threads=1,
    device="cpu",
)


def spec_for(suggestion: Suggestion) -> TrainingSpec:
    return replace(SPEC, parameters=suggestion.parameters)


@pytest.mark.parametrize("name", EXECUTORS)
def test_a_search_on_digits_spends_its_cap_and_learns(tmp_path: Path, name: str, ray_two_slots: None) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    claim = epsilon(MECHANISM, CAP, DELTA)
    ledger.open_search("digits", "sweep", filter=TotalSteps(MECHANISM, CAP), epsilon=claim, delta=DELTA)
    budget = SearchBudget(ledger, "sweep")
    driver = driver_of(tmp_path, budget)
    setup = TrialSetup(spec_for=spec_for, charge_for=budget.charge_for, folder=tmp_path)
    stop = EXECUTORS[name](ExecutorSettings()).run(driver, setup)
    assert stop.reason is StopReason.BUDGET, "ten trials were asked for and the cap holds two"
    views = read_trials(driver.study, mode="max", steps_planned=STEPS)
    assert [view.state.value for view in views] == ["COMPLETE"] * 2
    best = best_trial(views, mode="max")
    assert best is not None
    assert best.last_score > 0.5, "ten classes: chance is 0.1"
    state = ledger.search_state("sweep")
    assert state.leased_steps == CAP
    assert state.reserved_steps == 0
    assert all(trial.settled for trial in state.trials.values())
    assert checkpoint_path(tmp_path, best.id) is not None
