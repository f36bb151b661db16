"""Trials that take different amounts: what is reserved for each, what is told to Optuna, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import optuna
import pytest
from driver_fakes import driver_of, dying, run_through, started
from hypothesis import given
from hypothesis import strategies as st
from sweep_fakes import METRIC, Held, MemoryLedger, Recorder

from search_spaces.domains import Suggest
from tuner.study import views
from tuner.study.candidates import REJECTED, TRIES
from tuner.study.driver import StudyDriver
from tuner.study.protocols import StudySampler
from tuner.study.rungs import scaled_rungs
from tuner.study.types import Decision, Stop, StopReason, Suggestion, TrialShape, TrialStatus, Wait

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
        self.asked = 0

    def sample_independent(self, study, trial, name, distribution):  # noqa: ANN001, ANN201 - Optuna's signature
        if name != "batch_size":
            return super().sample_independent(study, trial, name, distribution)
        self.asked += 1
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


def test_a_trial_too_short_for_all_rungs_is_compared_at_the_last_that_fall_together() -> None:
    assert scaled_rungs((20, 40, 60, 80, 100), 3) == {1: 40, 2: 80, 3: 100}
    assert scaled_rungs((20, 40, 60, 80, 100), 1) == {1: 100}


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


def test_a_pruner_compares_trials_of_different_lengths_at_the_same_fraction() -> None:
    ledger = book(10_000)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=0)
    driver = make_driver(make_study(1, 2, 4, pruner=pruner), ledger)
    for score in (0.5, 0.6):
        run_through(driver, ledger, started(driver), score)
    late = started(driver)
    ledger.lease(late.trial_id, 5)
    assert driver.report(late.trial_id, 5, {METRIC: 0.1}) is Decision.PRUNE, "at its first quarter"
    driver.finish(late.trial_id, outcome=TrialStatus.PRUNED, steps_taken=5)
    assert ledger.settled()[late.trial_id] == 5
    good = started(driver)
    ledger.lease(good.trial_id, 20)
    assert driver.report(good.trial_id, 20, {METRIC: 0.9}) is Decision.CONTINUE


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


def test_a_grid_ends_with_its_points_though_some_did_not_fit() -> None:
    study = make_study(4, 1, 2)
    study.sampler.points = 3  # type: ignore[attr-defined]
    ledger = book(130)
    driver = make_driver(study, ledger)
    trial = started(driver)
    assert (trial.number, trial.shape.batch_size) == (1, 1)
    assert isinstance(driver.next(), Wait | Stop)
    run_through(driver, ledger, trial)
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert stop.reason in (StopReason.GRID, StopReason.BUDGET)
    assert len(study.trials) <= 3


# -- protected scores --------------------------------------------------------------------------------------------------


def test_scores_are_reserved_with_the_steps_all_or_nothing() -> None:
    ledger = book(10_000, scores=7)
    driver = make_driver(make_study(1), ledger, shape_of=scored, cheapest=(scored({"batch_size": 1}),))
    first = started(driver)
    assert ledger.outstanding() == {first.trial_id: Held(80, 4)}
    assert isinstance(driver.next(), Wait), "3 scores are left and a trial needs 4"
    ledger.lease(first.trial_id, 20)
    ledger.release(first.trial_id, 1)
    driver.report(first.trial_id, 20, {METRIC: 0.5})
    driver.finish(first.trial_id, outcome=TrialStatus.PRUNED, steps_taken=20)
    second = started(driver)
    assert ledger.outstanding() == {second.trial_id: Held(80, 4)}, "the 3 that were not drawn came back"


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


@dataclass
class Machine:
    """A sweep that is driven, cut off and gone on with at random; it knows what every running trial may still take."""

    cap: int
    scores: int
    study: optuna.Study = field(default_factory=make_study)
    running: dict[str, tuple[Suggestion, int, bool]] = field(default_factory=dict)
    """Trial id → the trial, its step, and whether it has to score its checkpoint first."""
    saved: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = book(self.cap, self.scores)
        self.driver = self.fresh()

    def fresh(self) -> StudyDriver:
        self.running = {}
        cheapest = (scored({"batch_size": 1}),)
        driver = make_driver(
            self.study, self.ledger, trials=8, max_first_failures=99, shape_of=scored, cheapest=cheapest
        )
        driver.reconcile(self.saved.get)
        return driver

    def act(self, action: str, which: int) -> None:
        if action == "crash":
            self.driver = self.fresh()
        elif action == "next":
            decision = self.driver.next()
            if isinstance(decision, Suggestion):
                step = self.saved.get(decision.trial_id, 0)
                self.running[decision.trial_id] = decision, step, step > 0
        elif self.running:
            trial_id = sorted(self.running)[which % len(self.running)]
            getattr(self, action)(trial_id, *self.running[trial_id])

    def rung(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        """To the next rung, or the score of the checkpoint again."""
        if not again:
            rung = next(r for r in trial.shape.rungs if r > step)
            self.ledger.lease(trial_id, rung - step)
            step = self.saved[trial_id] = rung
        self.running[trial_id] = trial, step, False
        self.ledger.release(trial_id, 1)
        self.driver.report(trial_id, step, {METRIC: 0.5})
        if step == trial.shape.steps:
            self.driver.finish(trial_id, outcome=TrialStatus.COMPLETE, steps_taken=step)
            del self.running[trial_id]

    def torn(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        """The driver dies after some steps were leased, or after a score was drawn and before it was reported."""
        if again:
            self.ledger.release(trial_id, 1)
        else:
            rung = next(r for r in trial.shape.rungs if r > step)
            self.ledger.lease(trial_id, rung - step)
            if step % 2 == 0:
                self.saved[trial_id] = rung
                self.ledger.release(trial_id, 1)
        self.driver = self.fresh()

    def lost(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        """A worker dies and the trial begins again from its checkpoint."""
        if self.driver.restarted(trial_id):
            saved = self.saved.get(trial_id, 0)
            self.running[trial_id] = trial, saved, saved > 0
        else:
            del self.running[trial_id]

    def prune(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        self.driver.finish(trial_id, outcome=TrialStatus.PRUNED, steps_taken=step)
        del self.running[trial_id]

    def check(self) -> None:
        assert self.ledger.committed() <= self.cap
        held = self.ledger.outstanding()
        assert self.ledger.released() + sum(each.releases for each in held.values()) <= self.scores
        for trial_id, (trial, step, again) in self.running.items():
            scores = again + sum(rung > step for rung in trial.shape.rungs)
            assert held[trial_id] == Held(trial.shape.steps - step, scores), (
                "what is reserved is what it may still take"
            )


ACTIONS = st.sampled_from(["next", "next", "rung", "rung", "rung", "prune", "crash", "torn", "lost"])


@given(
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 3)), max_size=60),
    cap=st.integers(0, 900),
    scores=st.integers(0, 40),
)
def test_at_every_moment_what_is_reserved_is_what_the_trials_may_still_take(
    actions: list[tuple[str, int]], cap: int, scores: int
) -> None:
    machine = Machine(cap, scores)
    for action, which in actions:
        machine.act(action, which)
        machine.check()
    machine.act("crash", 0)
    for _ in range(200):
        if not machine.running:
            machine.act("next", 0)
            if not machine.running:
                break
        machine.act("rung", 0)
        machine.check()
    assert isinstance(machine.driver.next(), Stop)
    assert machine.ledger.outstanding() == {}
    assert all(trial.state.is_finished() for trial in machine.study.trials)
    ids = [trial.user_attrs.get(views.TRIAL_ID) for trial in machine.study.trials]
    assert all((trial_id is None) == (views.REJECTED in trial.user_attrs)
               for trial_id, trial in zip(ids, machine.study.trials, strict=True))  # fmt: skip
