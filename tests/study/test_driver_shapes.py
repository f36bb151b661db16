"""Trials that take different amounts: what is reserved for each, what is told to Optuna, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from driver_fakes import Machine, driver_of, dying, run_through, started
from hypothesis import given
from hypothesis import strategies as st
from ledger_fakes import MemoryLedger
from sweep_fakes import Recorder

from search_spaces.domains import Suggest
from tuner.study import views
from tuner.study.candidates import REJECTED, TRIES
from tuner.study.driver import StudyDriver
from tuner.study.protocols import StudySampler
from tuner.study.rungs import scaled_rungs
from tuner.study.types import Stop, StopReason, TrialShape, TrialStatus, Wait

STEPS = 80
RUNGS = (20, 40, 60, 80)
BATCHES = (1, 2, 4)
PRICES = ((0.1, 1), (0.2, 3), (0.4, 8))
"""Units a step of each sample rate: a trial of batch 1, 2, 4 takes 80, 40, 20 steps and 80, 120, 160 units."""


class PricedSpace:
    """A free number, and a batch size that decides what a trial takes."""

    def sample(self, suggest: Suggest) -> dict[str, object]:
        return {
            "learning_rate": suggest.uniform("learning_rate", 0.01, 1.0, log=True),
            "batch_size": suggest.choice("batch_size", BATCHES),
        }


def shape_of(parameters: Mapping[str, object], *, released: bool = False) -> TrialShape:
    batch = int(parameters["batch_size"])  # type: ignore[call-overload]
    own = tuple(scaled_rungs(RUNGS, STEPS // batch))
    return TrialShape(
        batch_size=batch,
        sample_rate=batch / 10,
        noise_multiplier=1.0,
        steps=STEPS // batch,
        rungs=own,
        releases=len(own) if released else 0,
    )


def scored(parameters: Mapping[str, object]) -> TrialShape:
    return shape_of(parameters, released=True)


CHEAPEST = (shape_of({"batch_size": 1}),)


class Batches(optuna.samplers.RandomSampler, StudySampler):
    """Proposes these batch sizes in turn."""

    def __init__(self, *batches: int) -> None:
        super().__init__(seed=0)
        self.batches = batches

    def sample_independent(self, study, trial, name, distribution):  # noqa: ANN001, ANN201 - Optuna's signature
        if name != "batch_size":
            return super().sample_independent(study, trial, name, distribution)
        return self.batches[trial.number % len(self.batches)]


def make_study(*batches: int, pruner: optuna.pruners.BasePruner | None = None) -> optuna.Study:
    return optuna.create_study(
        direction="maximize",
        sampler=Batches(*batches) if batches else optuna.samplers.RandomSampler(seed=1),
        pruner=pruner or optuna.pruners.NopPruner(),
    )


def make_driver(study: optuna.Study, budget: MemoryLedger | None = None, **options: object) -> StudyDriver:
    values = {"shape_of": shape_of, "cheapest": CHEAPEST, **options}
    return driver_of(study, budget, space=PricedSpace(), steps_per_trial=STEPS, rung_steps=RUNGS, **values)


def book(cap: int, scores: int = 10**6) -> MemoryLedger:
    return MemoryLedger("", cap=cap, score_cap=scores, prices=PRICES)


# -- rungs -------------------------------------------------------------------------------------------------------------


@given(steps=st.integers(1, 400), rungs=st.sets(st.integers(1, 200), min_size=1, max_size=12))
def test_rungs_of_a_shorter_or_longer_trial_are_at_the_same_fractions(steps: int, rungs: set[int]) -> None:
    nominal = sorted(rungs)
    own = scaled_rungs(nominal, steps)
    assert list(own) == sorted(set(own))
    assert list(own.values()) == sorted(set(own.values()))
    assert list(own.items())[-1] == (steps, nominal[-1])
    for step, rung in own.items():
        assert 1 <= step <= steps
        assert step == 1 or abs(step / steps - rung / nominal[-1]) <= 0.5 / steps + 1e-12
    assert scaled_rungs(nominal, nominal[-1]) == {rung: rung for rung in nominal}


# -- what is reserved and told -----------------------------------------------------------------------------------------


def test_each_trial_reserves_what_its_own_parameters_ask_for() -> None:
    ledger = book(1000)
    driver = make_driver(make_study(4, 1, 2), ledger)
    trials = [started(driver) for _ in range(3)]
    assert [trial.shape.steps for trial in trials] == [20, 80, 40]
    assert ledger.held() == {trial.trial_id: trial.shape.steps for trial in trials}
    assert [rate for *_, rate in ledger.entries()] == [0.4, 0.1, 0.2]
    assert ledger.committed() == 160 + 80 + 120
    assert driver.shape_of_trial(trials[0].trial_id) == trials[0].shape


def test_optuna_is_told_nominal_steps_and_people_the_own_ones() -> None:
    ledger, recorder = book(1000), Recorder()
    driver = make_driver(make_study(4), ledger, observers=[recorder])
    trial = started(driver)
    assert trial.shape.rungs == (5, 10, 15, 20)
    run_through(driver, ledger, trial)
    (frozen,) = driver.study.trials
    assert sorted(frozen.intermediate_values) == list(RUNGS)
    assert views.learning_curve(frozen) == [(step, 0.5) for step in (5, 10, 15, 20)]
    view = views.view_of(frozen, mode="max", steps_planned=STEPS)
    assert (view.step, view.steps_planned) == (20, 20)
    assert recorder.reports == [(trial.trial_id, step) for step in (5, 10, 15, 20)]
    assert {seen.steps_planned for seen in (*recorder.started, *recorder.finished)} == {20}


def test_a_configuration_that_does_not_fit_is_no_trial_and_another_is_drawn() -> None:
    ledger, recorder = book(170), Recorder()
    driver = make_driver(make_study(1, 4, 2, 1), ledger, trials=2, observers=[recorder])
    first, second = started(driver), started(driver)
    assert [first.number, second.number] == [0, 3], "4 asks for 160 and 2 for 120 of the 90 that are left"
    turned_away = driver.study.trials[1]
    assert turned_away.state.name == "FAIL"
    assert turned_away.user_attrs == {views.REJECTED: REJECTED}
    assert [view.number for view in views.read_trials(driver.study, mode="max", steps_planned=STEPS)] == [0, 3]
    assert driver.next() == Stop(StopReason.DONE), "two trials were asked for and two were started"
    assert [seen.number for seen in recorder.started] == [0, 3]
    assert recorder.finished == []


def test_it_stops_after_a_bounded_number_of_draws_and_waits_while_a_refund_may_come() -> None:
    ledger, sampler = book(260), Batches(1, *[4] * 100)
    driver = make_driver(make_study(1), ledger, trials=50)
    driver.study.sampler = sampler
    one, two = started(driver), started(driver)  # 80 and 160 units; 20 are left
    assert (one.shape.batch_size, two.shape.batch_size) == (1, 4)
    run_through(driver, ledger, two)
    before = len(driver.study.trials)
    driver.finish(one.trial_id, outcome=TrialStatus.PRUNED, steps_taken=0)  # 100 are left: 1 would fit, 4 does not
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.BUDGET
    assert str(TRIES) in stop.detail
    assert len(driver.study.trials) == before + TRIES


def test_while_others_run_no_more_is_drawn_until_something_comes_back() -> None:
    ledger = book(260)
    driver = make_driver(make_study(), ledger, trials=50)
    driver.study.sampler = Batches(1, *[4] * 100)
    one = started(driver)
    four = started(driver)
    driver.finish(one.trial_id, outcome=TrialStatus.PRUNED, steps_taken=0)
    assert isinstance(driver.next(), Wait)
    asked = len(driver.study.trials)
    assert isinstance(driver.next(), Wait)
    assert len(driver.study.trials) == asked, "polling draws nothing"
    driver.finish(four.trial_id, outcome=TrialStatus.PRUNED, steps_taken=0)
    assert started(driver).shape.batch_size == 4


def test_nothing_is_drawn_when_not_even_the_cheapest_fits() -> None:
    driver = make_driver(make_study(), book(79))
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.BUDGET
    assert driver.study.trials == []


# -- protected scores --------------------------------------------------------------------------------------------------


def test_one_shape_with_scores_is_reserved_before_optuna_is_asked() -> None:
    shape = TrialShape(steps=STEPS, rungs=RUNGS, sample_rate=0.1, noise_multiplier=1.0, releases=4)
    ledger = book(10_000, scores=3)
    driver = make_driver(make_study(1), ledger, shape_of=lambda _: shape, cheapest=())
    assert driver.next().reason is StopReason.BUDGET
    assert driver.study.trials == []


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("where", ["ask", "reserve", "tell"])
def test_a_crash_while_drawing_loses_neither_a_trial_nor_a_reservation(where: str, *, after: bool) -> None:
    study, ledger = make_study(4, 1), book(100)
    with dying(MemoryLedger if where == "reserve" else optuna.Study, where, after=after):
        make_driver(study, ledger, trials=1).next()
    again = make_driver(study, ledger, trials=1)
    again.reconcile()
    trial = started(again)
    assert trial.shape.batch_size == 1
    assert ledger.held() == {trial.trial_id: 80}
    run_through(again, ledger, trial)
    assert again.next() == Stop(StopReason.DONE)
    assert ledger.outstanding() == {}
    assert all(frozen.state.is_finished() for frozen in study.trials)
    assert len(views.read_trials(study, mode="max", steps_planned=STEPS)) == 1


def test_what_was_turned_away_stays_so_when_the_driver_died_before_it_said_so_to_optuna() -> None:
    study = make_study(4, 1)
    with dying(optuna.Study, "tell"):
        make_driver(study, book(100)).next()
    again = make_driver(study, book(1000), trials=1)  # by now there is room for it
    again.reconcile()
    assert started(again).number == 1
    assert study.trials[0].state.name == "FAIL"


ACTIONS = st.sampled_from(["next", "next", "rung", "rung", "rung", "ends", "crash", "torn", "lost"])


@given(
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 3)), max_size=60),
    cap=st.integers(0, 900),
    scores=st.integers(0, 40),
)
def test_at_every_moment_what_is_reserved_is_what_the_trials_may_still_take(
    actions: list[tuple[str, int]], cap: int, scores: int
) -> None:
    study, ledger = make_study(), book(cap, scores)
    options: dict[str, Any] = {"trials": 8, "max_first_failures": 99, "shape_of": scored}
    options["cheapest"] = (scored({"batch_size": 1}),)
    machine = Machine(lambda: make_driver(study, ledger, **options), ledger)
    for action, which in actions:
        machine.act(action, which)
    machine.complete()
