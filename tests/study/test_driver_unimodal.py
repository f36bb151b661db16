"""What the driver asks of a sampler and a pruner that look ahead: not to start, to wait, to stop, to run again, why."""

from __future__ import annotations

import optuna
import pytest
from covering import pairs
from driver_fakes import Machine, dying, run_through, started, states
from hypothesis import given
from hypothesis import strategies as st
from ledger_fakes import MemoryLedger
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial
from sweep_fakes import METRIC, STEPS, Recorder
from unimodal_fakes import (
    ABOUT,
    PATHS,
    Above,
    Radii,
    make_driver,
    make_study,
    unimodal_study,
)

from tuner.executors.base import act
from tuner.study import views
from tuner.study.candidates import TRIES
from tuner.study.samplers.grid import GridPointSampler
from tuner.study.samplers.make import make_sampler
from tuner.study.types import Stop, StopReason, Suggestion, TrialStatus, Wait, WhenSure

# -- excluded before the first step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_a_configuration_that_is_excluded_never_starts_and_costs_nothing(path: str) -> None:
    ledger, recorder = MemoryLedger("", cap=2 * STEPS), Recorder()
    study = make_study(10.0, 60.0, 70.0, 20.0)
    driver = make_driver(study, ledger, trials=2, observers=[recorder], **PATHS[path])
    first = started(driver)
    run_through(driver, ledger, first)
    second = started(driver)
    assert (first.number, second.number) == (0, 3)
    assert states(study) == ["COMPLETE", "PRUNED", "PRUNED", "RUNNING"]
    excluded = study.trials[1]
    assert excluded.user_attrs[views.REASON] == "radius 60 is above 50, 0 reports"
    assert excluded.user_attrs[views.REJECTED] == excluded.user_attrs[views.REASON]
    assert views.TRIAL_ID not in excluded.user_attrs
    run_through(driver, ledger, second)
    assert driver.next() == Stop(StopReason.DONE), "two trials were asked for, and two were run"
    assert [view.number for view in views.read_trials(study, mode="max", steps_planned=STEPS)] == [0, 3]
    assert [seen.number for seen in (*recorder.started, *recorder.finished)] == [0, 3, 0, 3]
    assert ledger.outstanding() == {}
    assert ledger.settled() == {first.trial_id: STEPS, second.trial_id: STEPS}
    assert ledger.leased() == 2 * STEPS


@pytest.mark.parametrize("path", [*PATHS, "no budget"])
def test_after_a_bounded_number_of_exclusions_the_next_is_started_anyway(path: str) -> None:
    ledger = None if path == "no budget" else MemoryLedger("")
    study = make_study(60.0)
    driver = make_driver(study, ledger, trials=1, **PATHS.get(path, {}))
    assert started(driver).number == TRIES
    assert states(study) == ["PRUNED"] * TRIES + ["RUNNING"]


@pytest.mark.parametrize("path", PATHS)
def test_a_point_of_a_grid_that_is_excluded_is_skipped(path: str) -> None:
    ledger = MemoryLedger("")
    study = make_study(sampler=GridPointSampler([{"radius": radius} for radius in (60.0, 10.0, 90.0)]))
    driver = make_driver(study, ledger, **PATHS[path])
    trial = started(driver)
    assert trial.parameters == {"radius": 10.0}
    run_through(driver, ledger, trial)
    assert driver.next().reason is StopReason.GRID
    assert states(study) == ["PRUNED", "COMPLETE", "PRUNED"]
    assert ledger.outstanding() == {}
    assert ledger.leased() == STEPS


WRITES = [(Study, "ask", 1), (Study, "ask", 2), (Study, "tell", 1), (MemoryLedger, "reserve", 1)]
WRITES += [(optuna.trial.Trial, "set_user_attr", at) for at in (1, 2, 3, 4)]


@pytest.mark.parametrize(("write", "after", "path"), pairs(WRITES, (False, True), list(PATHS)))
def test_a_driver_that_dies_around_an_exclusion_leaves_what_reconcile_sets_right(
    write: tuple[type, str, int], *, after: bool, path: str
) -> None:
    study, ledger = make_study(60.0, 10.0), MemoryLedger("")
    owner, name, at = write
    with dying(owner, name, after=after, at=at):
        make_driver(study, ledger, trials=1, **PATHS[path]).next()
    again = make_driver(study, ledger, trials=1, **PATHS[path])
    again.reconcile()
    trial = started(again)
    assert trial.parameters["radius"] == 10.0
    assert ledger.held() == {trial.trial_id: STEPS}
    run_through(again, ledger, trial)
    assert again.next() == Stop(StopReason.DONE)
    assert ledger.outstanding() == {}
    assert ledger.leased() == STEPS
    excluded = [each for each in study.trials if views.REJECTED in each.user_attrs]
    assert all(each.state.name == "PRUNED" and "above 50" in each.user_attrs[views.REASON] for each in excluded)
    assert len(excluded) >= 1
    assert len(views.read_trials(study, mode="max", steps_planned=STEPS)) == 1


KINDS = st.sampled_from(["next", "next", "rung", "rung", "rung", "ends", "crash", "torn"])


@given(
    actions=st.lists(st.tuples(KINDS, st.integers(0, 3)), min_size=10, max_size=60),
    cap=st.integers(0, 700),
    path=st.sampled_from(sorted(PATHS)),
    when_sure=st.sampled_from(["go_on", "replicate"]),
)
def test_under_any_interleaving_the_ledger_is_settled_and_the_number_of_trials_kept(
    actions: list[tuple[str, int]], cap: int, path: str, when_sure: WhenSure
) -> None:
    sampler = make_sampler("unimodal", {"others": "random"}, seed=1, unimodality=ABOUT)
    study = make_study(sampler=Radii(10.0, 60.0, 30.0, 70.0, 20.0) if when_sure == "go_on" else sampler)
    ledger = MemoryLedger("", cap=cap)
    options = {"trials": 5, "max_first_failures": 99, "when_sure": when_sure, **PATHS[path]}
    machine = Machine(lambda: make_driver(study, ledger, **options), ledger)
    for action, which in actions:
        machine.act(action, which)
    machine.complete()
    assert len(views.read_trials(study, mode="max", steps_planned=STEPS)) <= 5


# -- waiting, and what is left -----------------------------------------------------------------------------------------


def test_a_sampler_that_waits_is_heard_while_a_trial_runs_and_never_else() -> None:
    study, ledger = make_study(10.0), MemoryLedger("")
    driver = make_driver(study, ledger)
    study.sampler.waiting = True
    first = started(driver)
    assert isinstance(driver.next(), Wait)
    assert len(study.trials) == 1
    again = make_driver(study, ledger)
    again.reconcile()
    assert started(again).trial_id == first.trial_id, "what was cut off goes on"
    assert isinstance(again.next(), Wait)
    again.finish(first.trial_id, outcome=TrialStatus.FAILED, steps_taken=0)
    assert started(again).number == 1
    study.sampler.waiting = False
    assert started(again).number == 2, "the control"


# -- why ---------------------------------------------------------------------------------------------------------------


def test_a_pruned_trial_has_the_pruners_own_reason_everywhere() -> None:
    study, recorder = make_study(10.0), Recorder()
    driver = make_driver(study, observers=[recorder])
    trial = started(driver)
    study.pruner = Above(5.0)
    assert not act(driver, trial.trial_id, 20, {METRIC: 0.5})
    said = "radius 10 is above 5, 1 reports"
    assert study.trials[0].user_attrs[views.REASON] == said
    assert recorder.finished[0].reason == said
    assert recorder.finished[0].state is TrialStatus.PRUNED


# -- more than one top -------------------------------------------------------------------------------------------------


class Asked(BasePruner):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        self.times += 1
        return True


@pytest.mark.parametrize("rejected", [False, True])
def test_the_fallback_is_asked_once_and_only_where_unimodality_is_rejected(
    *, rejected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.study.unimodal.inference.beliefs import Beliefs

    monkeypatch.setattr(Beliefs, "unimodal", property(lambda _: not rejected))
    study, fallback = unimodal_study(), Asked()
    study.pruner._fallback = fallback
    study.sampler = Radii(30.0, 31.0)
    driver = make_driver(study, trials=3, max_first_failures=9)
    trial = driver.next()
    assert isinstance(trial, Suggestion)
    before = fallback.times
    went_on = act(driver, trial.trial_id, 20, {METRIC: 0.5})
    assert fallback.times - before == (1 if rejected else 0)
    assert went_on is not rejected
    if rejected:
        assert "more than one maximum, and the pruner median" in study.trials[trial.number].user_attrs[views.REASON]
