"""What the driver does once a search is sure: stop, or run the best configurations again."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from covering import pairs
from driver_fakes import dying, run_through, started, states
from ledger_fakes import MemoryLedger
from optuna.study import Study
from sweep_fakes import METRIC, RUNGS, STEPS
from unimodal_fakes import (
    ABOUT,
    PATHS,
    Above,
    hill,
    make_driver,
    make_study,
    run_hill,
    unimodal_study,
)

from tuner.executors.base import act
from tuner.study import views
from tuner.study.types import Stop, StopReason, Suggestion, TrialShape, Wait, WhenSure


def ended(radii: tuple[float, ...], when_sure: WhenSure, ledger: MemoryLedger | None = None, **options: Any) -> tuple:  # noqa: ANN401
    study = make_study(*radii, pruner=optuna.pruners.NopPruner())
    driver = make_driver(study, ledger, when_sure=when_sure, **options)
    for _ in range(2):
        run_through(driver, ledger, started(driver))
    study.sampler.over, study.sampler.order = True, (1, 0)
    return study, driver


@pytest.mark.parametrize("path", PATHS)
def test_a_search_that_is_sure_stops_and_keeps_its_budget(path: str) -> None:
    ledger = MemoryLedger("")
    study, driver = ended((10.0, 20.0), "stop", ledger, **PATHS[path])
    assert driver.next().reason is StopReason.FOUND
    assert ledger.outstanding() == {}
    assert len(study.trials) == 2
    study.sampler.over = False
    assert started(driver).number == 2, "the control"


@pytest.mark.parametrize("path", PATHS)
def test_a_trial_that_runs_is_stopped_at_its_next_rung_once_the_search_is_sure(path: str) -> None:
    ledger = MemoryLedger("")
    study, driver = ended((10.0, 20.0, 30.0), "stop", ledger, **PATHS[path])
    study.sampler.over = False
    running, other = started(driver), started(driver)
    study.sampler.over = True
    assert isinstance(driver.next(), Wait)
    ledger.lease(running.trial_id, RUNGS[0])
    assert not act(driver, running.trial_id, RUNGS[0], {METRIC: 0.01})
    stopped = study.trials[running.number]
    assert stopped.state.name == "PRUNED"
    assert "trial 1" in stopped.user_attrs[views.REASON]
    study.sampler.over = False
    ledger.lease(other.trial_id, RUNGS[0])
    assert act(driver, other.trial_id, RUNGS[0], {METRIC: 0.5}), "the control: what it says changes the belief"
    study.sampler.over = True
    ledger.lease(other.trial_id, RUNGS[-1] - RUNGS[0])
    assert act(driver, other.trial_id, RUNGS[1], {METRIC: 2.0}), "it is ahead of all others: it may be the best model"
    assert not act(driver, other.trial_id, RUNGS[-1], {METRIC: 0.5})
    assert study.trials[other.number].state.name == "COMPLETE", "at its end there is nothing to stop"
    assert driver.next().reason is StopReason.FOUND
    assert ledger.outstanding() == {}


def test_a_search_that_goes_on_is_not_asked_whether_it_is_sure() -> None:
    _, driver = ended((10.0, 20.0, 30.0), "go_on")
    assert started(driver).parameters == {"radius": 30.0}


@pytest.mark.parametrize("path", PATHS)
def test_when_sure_the_best_two_are_run_again_by_turns(path: str) -> None:
    ledger = MemoryLedger("")
    study, driver = ended((10.0, 20.0), "replicate", ledger, trials=6, **PATHS[path])
    seen = []
    for _ in range(4):
        trial = started(driver)
        seen.append(trial.parameters["radius"])
        run_through(driver, ledger, trial)
    assert seen == [20.0, 10.0, 20.0, 10.0]
    assert [trial.user_attrs.get(views.REPLICA_OF) for trial in study.trials] == [None, None, 1, 0, 1, 0]
    assert driver.next() == Stop(StopReason.DONE)
    assert ledger.outstanding() == {}
    assert states(study) == ["COMPLETE"] * 6


def test_a_repetition_that_does_not_fit_is_asked_for_once_and_leaves_room_for_what_fits() -> None:
    def dear(parameters: dict[str, object]) -> TrialShape:
        steps = STEPS if parameters.get("radius", 0.0) in (10.0, 20.0) else RUNGS[0]
        return TrialShape(steps=steps, rungs=tuple(rung for rung in RUNGS if rung <= steps))

    ledger, cheap = MemoryLedger("", cap=2 * STEPS + RUNGS[0]), dear({})
    radii = (10.0, 20.0, 0.0, 0.0, 40.0)  # the third and the fourth are replicas
    study, driver = ended(radii, "replicate", ledger, shape_of=dear, cheapest=(cheap,))
    trial = started(driver)
    assert trial.parameters == {"radius": 40.0}
    rejected = [each.user_attrs.get(views.REPLICA_OF) for each in study.trials if views.REJECTED in each.user_attrs]
    assert sorted(rejected) == [0, 1], "each of the two once"


def test_an_unsure_search_replicates_with_its_last_trials() -> None:
    study, driver = ended((10.0, 20.0, 40.0), "replicate", MemoryLedger("", cap=5 * STEPS), trials=50)
    study.sampler.over = False
    assert started(driver).parameters == {"radius": 40.0}, "three more fit"
    assert started(driver).parameters == {"radius": 20.0}, "two more fit"
    study, driver = ended((10.0, 20.0, 40.0), "replicate", trials=5)
    study.sampler.over = False
    assert started(driver).parameters == {"radius": 40.0}, "the third of five"
    assert started(driver).parameters == {"radius": 20.0}


def test_replicas_are_started_whatever_the_pruner_says_before_their_first_step() -> None:
    study, driver = ended((10.0, 20.0), "replicate")
    study.pruner = Above(5.0)
    trial = started(driver)
    assert (trial.number, trial.parameters) == (2, {"radius": 20.0}), "the first that was asked for"


@pytest.mark.parametrize(
    ("name", "after", "path", "trials"), pairs(("enqueue_trial", "ask"), (False, True), list(PATHS), (3, 4))
)
def test_a_replica_in_the_queue_of_a_dead_driver_is_run_once_and_counted_once(
    name: str, path: str, trials: int, *, after: bool
) -> None:
    ledger = MemoryLedger("")
    study, driver = ended((10.0, 20.0, 40.0), "replicate", ledger, trials=trials, **PATHS[path])
    with dying(Study, name, after=after):
        driver.next()
    again = make_driver(study, ledger, trials=trials, when_sure="replicate", **PATHS[path])
    again.reconcile()
    for radius in (20.0, 10.0)[: trials - 2]:
        trial = started(again)
        assert trial.parameters == {"radius": radius}
        run_through(again, ledger, trial)
    assert again.next() == Stop(StopReason.DONE)
    assert states(study) == ["COMPLETE"] * trials
    assert ledger.outstanding() == {}


def test_ours_stops_by_itself_on_a_hill_and_names_the_trial_that_is_believed_best() -> None:
    study, ledger = unimodal_study(), MemoryLedger("", cap=40 * STEPS)
    driver = make_driver(study, ledger, trials=40, when_sure="stop")
    while isinstance(trial := driver.next(), Suggestion):
        run_hill(driver, ledger, trial)
    assert isinstance(trial, Stop)
    assert trial.reason is StopReason.FOUND
    best = study.trials[int(trial.detail.split()[1])]
    assert hill(best.params["radius"], STEPS) >= 0.9 - ABOUT.tolerance
    assert ledger.outstanding() == {}
    assert len(views.read_trials(study, mode="max", steps_planned=STEPS)) < 30
