"""The driver alone: the budget it keeps, what it makes of failures, and how it goes on after a crash at any point."""

from __future__ import annotations

import math
import random

import optuna
import pytest
from driver_fakes import Crash, driver_of, dying, random_study, run_through, started, states
from errors_helper import raises_code
from ledger_fakes import MemoryLedger
from sweep_fakes import METRIC, RUNGS, STEPS, Recorder

from tuner.errors import BudgetRefusedError, InputError
from tuner.study import views
from tuner.study.driver import NO_RESERVATION, NO_ROOM, RAISED
from tuner.study.samplers.bounded import BoundedSampler
from tuner.study.samplers.ratio import ratio_of
from tuner.study.types import Ask, Decision, Stop, StopReason, TrialStatus, TrialView, Wait

# -- the budget --------------------------------------------------------------------------------------------------------


def test_waits_while_a_running_trial_may_refund_and_stops_when_none_may() -> None:
    ledger = MemoryLedger("", cap=250)
    driver = driver_of(random_study(), ledger)
    first, second = started(driver), started(driver)
    assert isinstance(driver.next(), Wait)
    run_through(driver, ledger, first, until=20)
    assert isinstance(driver.next(), Wait)
    driver.finish(first.trial_id, outcome=TrialStatus.PRUNED, steps_taken=20)
    third = started(driver)  # 20 paid + 100 + 100 reserved
    assert isinstance(driver.next(), Wait)
    run_through(driver, ledger, second)
    run_through(driver, ledger, third)
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.BUDGET
    assert stop.reason == "budget reached"
    assert ledger.leased() == 220
    assert len(driver.study.trials) == 3


def test_a_trial_that_does_not_fit_is_neither_asked_nor_reserved() -> None:
    ledger = MemoryLedger("", cap=STEPS - 1)
    driver = driver_of(random_study(), ledger)
    assert driver.next() == Stop(StopReason.BUDGET, driver.next().detail)
    assert driver.study.trials == []
    assert ledger.entries() == []


def test_room_that_another_process_takes_between_the_question_and_the_reservation_is_a_refusal() -> None:
    class Racing(MemoryLedger):
        def fits(self, ask: Ask) -> bool:
            fits = super().fits(ask)
            if fits:
                self.lines.append(("reserve", "other", self.cap, 0, None))
            return fits

    driver = driver_of(random_study(), Racing("", cap=STEPS))
    assert driver.next().reason is StopReason.BUDGET
    assert driver.study.trials == []


def test_a_lost_worker_is_told_with_the_step_from_which_its_trial_continues() -> None:
    class Told(Recorder):
        lost: list[tuple[int, str]]

        def trial_lost(self, trial: TrialView, why: str) -> None:
            self.lost = [(trial.step, why)]

    ledger, told = MemoryLedger("", cap=STEPS + 35), Told()
    driver = driver_of(random_study(), ledger, observers=[told])
    driver.reconcile(lambda _trial: 20)
    trial = started(driver)
    run_through(driver, ledger, trial, until=20)
    ledger.lease(trial.trial_id, 35)
    assert driver.restarted(trial.trial_id, "its worker hung")
    assert told.lost == [(20, "its worker hung")]
    told.lost = []
    ledger.lease(trial.trial_id, 1)
    assert not driver.restarted(trial.trial_id)
    assert told.lost == [], "a trial that cannot continue is told as ended"


def test_a_trial_that_never_reserved_ends_once_although_its_driver_dies_at_its_end() -> None:
    study, ledger = random_study(), MemoryLedger("", cap=STEPS)
    with dying(optuna.trial.Trial, "set_user_attr"):
        driver_of(study, ledger).next()
    full = MemoryLedger("", cap=STEPS - 1, lines=ledger.lines)
    driver = driver_of(study, full)
    driver.reconcile()
    assert full.outstanding() == {}
    with dying(optuna.Study, "tell"):
        driver.next()
    assert states(study) == ["RUNNING"]
    again = driver_of(study, full)
    again.reconcile()
    assert states(study) == ["FAIL"]
    assert isinstance(again.next(), Stop)


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{METRIC: math.nan}, {METRIC: math.inf}, {METRIC: -math.inf}, {"other": 1.0}], ids=str)
def test_a_score_that_is_missing_or_not_finite_fails_the_trial(bad: dict[str, float]) -> None:
    ledger, recorder = MemoryLedger(""), Recorder()
    driver = driver_of(random_study(), ledger, observers=[recorder])
    trial = started(driver)
    ledger.lease(trial.trial_id, 20)
    assert driver.report(trial.trial_id, 20, bad) is Decision.FAIL
    driver.finish(trial.trial_id, outcome=TrialStatus.FAILED, steps_taken=20)
    frozen = driver.study.trials[0]
    assert frozen.state.name == "FAIL"
    assert frozen.intermediate_values == {}
    assert METRIC in recorder.finished[0].reason
    assert recorder.finished[0].state is TrialStatus.FAILED
    assert ledger.settled() == {trial.trial_id: 20}


def test_complete_without_a_score_is_failed() -> None:
    driver = driver_of(random_study())
    driver.finish(started(driver).trial_id, outcome=TrialStatus.COMPLETE, steps_taken=STEPS)
    assert states(driver.study)[0] == "FAIL"


def test_a_second_finish_is_refused() -> None:
    ledger = MemoryLedger("")
    driver = driver_of(random_study(), ledger)
    trial = started(driver)
    run_through(driver, ledger, trial)
    with pytest.raises(KeyError):
        driver.finish(trial.trial_id, outcome=TrialStatus.COMPLETE, steps_taken=STEPS)
    assert ledger.settled() == {trial.trial_id: STEPS}


def test_stops_after_the_first_trials_all_failed() -> None:
    driver = driver_of(random_study(), max_first_failures=3)
    for _ in range(3):
        driver.finish(started(driver).trial_id, outcome=TrialStatus.FAILED, steps_taken=0, reason="ValueError")
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.FAILING
    assert len(driver.study.trials) == 3


def test_a_search_has_not_failed_while_a_trial_runs() -> None:
    ledger = MemoryLedger("")
    driver = driver_of(random_study(), ledger, trials=4, max_first_failures=3)
    *failing, last = [started(driver) for _ in range(4)]
    for trial in failing:
        driver.finish(trial.trial_id, outcome=TrialStatus.FAILED, steps_taken=0, reason="ValueError")
    assert isinstance(driver.next(), Wait)
    run_through(driver, ledger, last)
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.DONE


def test_failures_after_a_success_do_not_stop_the_sweep() -> None:
    ledger = MemoryLedger("")
    driver = driver_of(random_study(), ledger, max_first_failures=3)
    run_through(driver, ledger, started(driver))
    for _ in range(9):
        driver.finish(started(driver).trial_id, outcome=TrialStatus.FAILED, steps_taken=0)
    assert driver.next() == Stop(StopReason.DONE)


def test_stop_starts_nothing_more_and_leaves_what_runs() -> None:
    ledger = MemoryLedger("")
    driver = driver_of(random_study(), ledger)
    trial = started(driver)
    driver.stop("asked to")
    assert driver.next() == Stop(StopReason.STOPPED, "asked to")
    run_through(driver, ledger, trial)
    assert states(driver.study)[0] == "COMPLETE"


def test_trials_count_in_the_storage_and_may_grow() -> None:
    study = random_study()
    ledger = MemoryLedger("")
    driver = driver_of(study, ledger, trials=2)
    for _ in range(2):
        run_through(driver, ledger, started(driver))
    assert driver.next() == Stop(StopReason.DONE)
    grown = driver_of(study, ledger, trials=3)
    grown.reconcile()
    assert started(grown).number == 2
    assert grown.next() == Stop(StopReason.DONE)


def test_observers_see_every_start_report_and_end_with_the_best_score() -> None:
    recorder = Recorder()
    driver = driver_of(random_study(), observers=[recorder])
    trial = started(driver)
    for step, score in zip(RUNGS, (0.1, 0.7, 0.3, 0.2, 0.4), strict=True):
        driver.report(trial.trial_id, step, {METRIC: score, "validation_loss": 1.0})
    driver.report(trial.trial_id, 99, {METRIC: 0.0})
    driver.finish(trial.trial_id, outcome=TrialStatus.COMPLETE, steps_taken=STEPS)
    (end,) = recorder.finished
    assert (end.state, end.step, end.best_score) == (TrialStatus.COMPLETE, STEPS, 0.7)
    assert recorder.reports == [(trial.trial_id, step) for step in (*RUNGS, 99)]
    assert set(driver.study.trials[0].intermediate_values) == set(RUNGS), "only rungs go to Optuna"


@pytest.mark.parametrize(
    "options",
    [{"trials": 0}, {"mode": "min"}, {"mode": "best"}]
    + [{"rung_steps": rungs} for rungs in ((), (20, 20, 100), (20, 40), (0, 100))],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, object]) -> None:
    with raises_code(InputError, "study-settings-invalid"):
        driver_of(random_study(), **options)


# -- after a crash -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("where", ["tell", "settle"])
def test_a_crash_while_finishing_ends_with_one_settlement_and_the_same_outcome(where: str, *, after: bool) -> None:
    study, ledger = random_study(), MemoryLedger("")
    driver = driver_of(study, ledger, trials=1)
    trial = started(driver)
    run_through(driver, ledger, trial, until=60)
    with dying(MemoryLedger if where == "settle" else optuna.Study, where, after=after):
        driver.finish(trial.trial_id, outcome=TrialStatus.PRUNED, steps_taken=60)
    again = driver_of(study, ledger, trials=1)
    again.reconcile()
    assert states(study)[0] == "PRUNED"
    assert study.trials[0].value == 0.5
    assert ledger.settled() == {trial.trial_id: 60}
    assert again.next() == Stop(StopReason.DONE)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("where", ["tell", "forfeit", "settle"])
def test_a_crash_while_a_raised_trial_ends_forfeits_it_all_the_same(where: str, *, after: bool) -> None:
    study, ledger = random_study(), MemoryLedger("")
    driver = driver_of(study, ledger, trials=1)
    trial = started(driver)
    run_through(driver, ledger, trial, until=60)
    ledger.lease(trial.trial_id, 10)
    with dying(optuna.Study if where == "tell" else MemoryLedger, where, after=after):
        driver.raised(trial.trial_id)
    recorder = Recorder()
    again = driver_of(study, ledger, trials=1, observers=[recorder])
    again.reconcile()
    (end,) = recorder.finished
    assert (end.state, end.step, end.reason) == (TrialStatus.FAILED, 60, RAISED)
    assert ledger.leased() == STEPS
    assert ledger.settled() == {trial.trial_id: 60}
    assert again.next() == Stop(StopReason.ALL_FAILED, f"its only trial failed ({RAISED})")


def test_a_raised_trial_whose_end_was_not_written_goes_on_and_gives_back_what_it_does_not_use() -> None:
    study, ledger = random_study(), MemoryLedger("")
    driver = driver_of(study, ledger, trials=1)
    trial = started(driver)
    run_through(driver, ledger, trial, until=60)
    written = optuna.Trial.set_user_attr

    def dies(of: optuna.Trial, key: str, value: object) -> None:
        if key == views.OUTCOME:
            raise Crash
        written(of, key, value)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(optuna.Trial, "set_user_attr", dies)
        with pytest.raises(Crash):
            driver.raised(trial.trial_id)
    again = driver_of(study, ledger, trials=1)
    again.reconcile(lambda trial_id: 60)
    assert started(again).trial_id == trial.trial_id
    again.finish(trial.trial_id, outcome=TrialStatus.PRUNED, steps_taken=60)
    assert ledger.leased() == 60
    assert ledger.settled() == {trial.trial_id: 60}


def test_an_interrupted_trial_continues_and_pays_again_only_for_what_it_repeats() -> None:
    study, ledger = random_study(), MemoryLedger("")
    trial = started(driver_of(study, ledger))
    ledger.lease(trial.trial_id, 50)
    again = driver_of(study, ledger)
    again.reconcile(lambda trial_id: 40)
    continued = started(again)
    assert (continued.trial_id, continued.number) == (trial.trial_id, 0)
    assert continued.parameters == trial.parameters
    assert ledger.held() == {trial.trial_id: 60}
    assert ledger.reserved(trial.trial_id) == STEPS + 10


def test_an_interrupted_trial_that_fits_no_more_is_failed_with_the_reason_and_refunded() -> None:
    study, ledger = random_study(), MemoryLedger("", cap=STEPS)
    trial = started(driver_of(study, ledger))
    ledger.lease(trial.trial_id, 50)
    recorder = Recorder()
    again = driver_of(study, ledger, observers=[recorder])
    again.reconcile(lambda _: 40)
    assert again.next().reason is StopReason.BUDGET
    assert states(study)[0] == "FAIL"
    assert recorder.finished[0].reason == NO_ROOM
    assert ledger.held() == {}
    assert ledger.leased() == 50


def test_an_interrupted_trial_waits_for_a_refund_that_may_come() -> None:
    study, ledger = random_study(), MemoryLedger("", cap=2 * STEPS)
    before = driver_of(study, ledger)
    first, second = started(before), started(before)
    ledger.lease(first.trial_id, 50)
    ledger.lease(second.trial_id, 40)
    again = driver_of(study, ledger)
    steps = {first.trial_id: 40, second.trial_id: 40}
    again.reconcile(lambda trial_id: steps[trial_id])
    assert started(again).trial_id == second.trial_id
    assert isinstance(again.next(), Wait)
    again.report(second.trial_id, 40, {METRIC: 0.1})
    again.finish(second.trial_id, outcome=TrialStatus.PRUNED, steps_taken=40)
    assert started(again).trial_id == first.trial_id


def test_a_trial_that_was_settled_while_it_stood_as_running_is_failed() -> None:
    study, ledger = random_study(), MemoryLedger("")
    trial = started(driver_of(study, ledger, trials=1))
    ledger.settle(trial.trial_id, 0)
    again = driver_of(study, ledger, trials=1)
    again.reconcile()
    assert again.next() == Stop(StopReason.DONE)
    assert study.trials[0].user_attrs["reason"] == NO_RESERVATION


def test_a_step_reported_before_the_crash_keeps_its_first_value() -> None:
    study = random_study()
    trial = started(driver_of(study))
    first = driver_of(study)
    first.reconcile()
    again = started(first)
    assert again.trial_id == trial.trial_id
    first.report(trial.trial_id, 20, {METRIC: 0.25})
    second = driver_of(study)
    second.reconcile()
    started(second)
    second.report(trial.trial_id, 20, {METRIC: 0.75})
    assert study.trials[0].intermediate_values == {20: 0.25}


def test_an_end_that_observers_may_have_missed_is_told_again_and_one_they_know_is_not() -> None:
    class Dying(Recorder):
        def trial_finished(self, trial: TrialView) -> None:
            raise Crash

    study, ledger = random_study(), MemoryLedger("")
    driver = driver_of(study, ledger, observers=[Dying()])
    trial = started(driver)
    with pytest.raises(Crash):
        run_through(driver, ledger, trial)
    told = []
    for _ in range(2):
        recorder = Recorder()
        driver_of(study, ledger, observers=[recorder]).reconcile()
        told.append([(view.id, view.state, view.step, view.last_score) for view in recorder.finished])
    assert told == [[(trial.trial_id, TrialStatus.COMPLETE, STEPS, 0.5)], []]
    assert ledger.settled() == {trial.trial_id: STEPS}


def test_trials_that_the_budget_ends_on_resume_do_not_count_as_failures_of_the_training() -> None:
    study, ledger = random_study(), MemoryLedger("", cap=3 * STEPS)
    before = driver_of(study, ledger)
    for trial in [started(before) for _ in range(3)]:
        ledger.lease(trial.trial_id, STEPS)
    again = driver_of(study, ledger, max_first_failures=3)
    again.reconcile()
    assert again.next().reason is StopReason.BUDGET
    assert [trial.state.name for trial in study.trials] == ["FAIL"] * 3


def test_a_worker_that_is_lost_extends_the_reservation_or_ends_the_trial() -> None:
    study, ledger = random_study(), MemoryLedger("", cap=STEPS + 10)
    driver = driver_of(study, ledger)
    driver.reconcile(lambda _: 40)
    trial = started(driver)
    ledger.lease(trial.trial_id, 50)
    assert driver.restarted(trial.trial_id)
    assert ledger.held() == {trial.trial_id: 60}
    ledger.lease(trial.trial_id, 10)
    assert not driver.restarted(trial.trial_id)
    assert states(study)[0] == "FAIL"
    assert ledger.held() == {}


@pytest.mark.parametrize("charged", [False, True])
def test_a_candidate_that_is_drawn_as_a_whole_is_never_filled_up(*, charged: bool) -> None:
    """The driver died between two of its values: what was drawn is told as no trial, and another is asked for."""
    generator = random.Random(1)
    study = optuna.create_study(direction="maximize", sampler=BoundedSampler(ratio_of({}), generator))
    ledger = MemoryLedger("", cap=STEPS) if charged else None
    half = study.ask()
    if ledger is not None:
        ledger.reserve("0000-abcdef", Ask(STEPS))
    half.set_user_attr(views.TRIAL_ID, "0000-abcdef")
    half.suggest_float("x", 0.0, 1.0)
    driver = driver_of(study, ledger, trials=1)
    driver.reconcile()
    assert states(study)[0] == "FAIL"
    assert started(driver).number == 1, "it does not count, and its steps are free again"
    assert [view.id for view in views.read_trials(study, mode="max", steps_planned=STEPS)] != ["0000-abcdef"]

    whole = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))
    cut = whole.ask()
    cut.set_user_attr(views.TRIAL_ID, "0000-abcdef")
    cut.suggest_float("x", 0.0, 1.0)
    driver = driver_of(whole, trials=1)
    driver.reconcile()
    assert started(driver).number == 0, "values that are drawn one by one go on as they were"


def test_a_share_that_is_taken_away_is_named_as_the_reason() -> None:
    class Revoked(MemoryLedger):
        def reserve(self, trial: str, ask: Ask, *, rung: bool = False) -> None:
            raise BudgetRefusedError("share-exceeded", "The user has no share of the cap any more.")

    stop = driver_of(random_study(), Revoked("memory", cap=10 * STEPS)).next()
    assert stop == Stop(StopReason.BUDGET, "The user has no share of the cap any more.")


def test_an_interruption_shortens_the_only_trial_by_the_steps_that_it_lost() -> None:
    """It has no spare steps. Without this, the resume ends it as LOST, and its whole cost buys no model."""
    study, ledger = random_study(), MemoryLedger("", cap=STEPS)
    one = started(driver_of(study, ledger, trials=1, sole=True))
    ledger.lease(one.trial_id, 40)
    ledger.lease(one.trial_id, 5)  # the checkpoint at 45 was never written
    again = driver_of(study, ledger, trials=1, sole=True)
    again.reconcile({one.trial_id: 40}.get)
    more = started(again)
    assert (more.trial_id, more.shape.steps, more.shape.rungs) == (one.trial_id, STEPS - 5, (60, 80, STEPS - 5))
    ledger.lease(one.trial_id, STEPS - 45)
    for rung in more.shape.rungs:
        again.report(one.trial_id, rung, {METRIC: 0.7})
    again.finish(one.trial_id, outcome=TrialStatus.COMPLETE, steps_taken=STEPS - 5)
    assert again.next() == Stop(StopReason.DONE)
    (ended,) = views.read_trials(study, mode="max", steps_planned=STEPS)
    assert (ended.state, ended.step, ended.steps_planned) == (TrialStatus.COMPLETE, STEPS - 5, STEPS - 5)
    assert ledger.leased() == STEPS


@pytest.mark.parametrize("sole", [False, True])
def test_a_trial_beside_others_is_not_shortened(*, sole: bool) -> None:
    study, ledger = random_study(), MemoryLedger("", cap=STEPS)
    one = started(driver_of(study, ledger, sole=sole))
    ledger.lease(one.trial_id, 45)
    if sole:  # another trial has started
        other = study.ask()
        other.set_user_attr(views.TRIAL_ID, "other")
        study.tell(other, 0.5)
    again = driver_of(study, ledger, sole=sole)
    again.reconcile({one.trial_id: 40}.get)
    again.next()
    ended, *_ = views.read_trials(study, mode="max", steps_planned=STEPS)
    assert ended.state is TrialStatus.LOST
