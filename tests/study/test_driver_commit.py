"""The committed run: when it starts, that it starts once, what it may use, and how it goes on after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import optuna
import pytest
from driver_fakes import Machine, driver_of, dying, random_study, run_through, started
from hypothesis import given
from hypothesis import strategies as st
from ledger_fakes import MemoryLedger
from sweep_fakes import FakeSpace

from search_spaces import LogUniform, SearchSpace, parse_space
from tuner.errors import BudgetRefusedError, TunerError
from tuner.executors.base import TrialSetup, lose
from tuner.study import views
from tuner.study.committed import Commitment, Committed, choose_commit, commit_proposed, with_rate_below
from tuner.study.driver import StudyDriver
from tuner.study.pruners.make import make_pruner
from tuner.study.types import Ask, Decision, Stop, StopReason, Suggestion, TrialShape, TrialStatus, TrialView, Wait

RUNGS, STEPS = (10, 20), 20
SEARCH = TrialShape(steps=STEPS, rungs=RUNGS, sample_rate=0.1, noise_multiplier=4.0, releases=2)
RUN = TrialShape(steps=80, rungs=(40, 80), sample_rate=0.1, noise_multiplier=1.0, releases=2, save_every=5)
SPACE = parse_space({"learning_rate": {"log_uniform": [0.01, 1.0]}}, method="dp_sgd")


@dataclass(frozen=True)
class QuotaLedger(MemoryLedger):
    """A coupon book: a quota of steps for each noise. The noise takes the place of the sample rate in the entries."""

    quotas: dict[float | None, int] = field(default_factory=dict)

    def used(self, noise: float | None) -> int:
        rates, held = self._rates(), self.held()
        leased = sum(s for kind, name, s, *_ in self.entries() if kind == "lease" and rates[name] == noise)
        return leased + sum(steps for name, steps in held.items() if rates[name] == noise)

    def fits(self, ask: Ask) -> bool:
        scores = self.released() + sum(held.releases for held in self.outstanding().values())
        left = self.quotas.get(ask.noise_multiplier, 0) - self.used(ask.noise_multiplier)
        return ask.steps <= left and scores + ask.releases <= self.score_cap

    def reserve(self, trial: str, ask: Ask, *, rung: bool = False) -> None:
        if not self.fits(ask):
            raise BudgetRefusedError("cap-exceeded", "full")
        super().reserve(trial, replace(ask, sample_rate=ask.noise_multiplier), rung=rung)


def book(trials: int = 3, *, scores: int = 10**9) -> QuotaLedger:
    return QuotaLedger("memory", score_cap=scores, quotas={4.0: trials * STEPS, 1.0: RUN.steps})


def committed(space: SearchSpace = SPACE) -> Committed:
    return Committed(shape=RUN, choose=partial(choose_commit, space=space, mode="max", search=SEARCH, committed=RUN))


def make_driver(study: optuna.Study, ledger: MemoryLedger | None, **options: Any) -> StudyDriver:  # noqa: ANN401
    settings = {"trials": 3, "steps_per_trial": STEPS, "rung_steps": RUNGS, "space": FakeSpace(), **options}
    return driver_of(study, ledger, shape_of=lambda _: SEARCH, **{"committed": committed(), **settings})


def searched(study: optuna.Study, ledger: MemoryLedger, **options: Any) -> StudyDriver:  # noqa: ANN401
    """A driver whose trials have all ended, the second as the best."""
    driver = make_driver(study, ledger, **options)
    for score in (0.3, 0.5, 0.4):
        run_through(driver, ledger, started(driver), score)
    return driver


def committed_runs(study: optuna.Study) -> list[TrialView]:
    trials = views.read_trials(study, mode="max", steps_planned=STEPS)
    return [trial for trial in trials if trial.committed]


def test_the_run_waits_for_the_search_and_then_starts_once_with_its_own_mechanism() -> None:
    study, ledger = random_study(), book()
    driver = make_driver(study, ledger)
    trials = [started(driver) for _ in range(3)]
    assert all((trial.committed, trial.source) == (False, "") for trial in trials)
    for trial, score in zip(trials, (0.3, 0.5, 0.4), strict=True):
        assert isinstance(driver.next(), Wait), "another trial may still be the best"
        run_through(driver, ledger, trial, score)
    run = started(driver)
    best = trials[1]
    assert (run.committed, run.source, run.shape) == (True, best.trial_id, RUN)
    rate = best.parameters["learning_rate"]
    assert run.parameters == {**best.parameters, "learning_rate": min(2 * rate, 1.0)}, "√(4 / 1) times the rate"
    assert (ledger.used(4.0), ledger.used(1.0)) == (60, 80)
    assert isinstance(driver.next(), Wait)
    run_through(driver, ledger, run, 0.1)
    assert driver.next() == Stop(StopReason.DONE)
    (ended,) = committed_runs(study)
    assert (ended.state, ended.step, ended.steps_planned, ended.last_score) == (TrialStatus.COMPLETE, 80, 80, 0.1)
    again = make_driver(study, ledger, trials=9)
    again.reconcile()
    assert again.next() == Stop(StopReason.DONE), "no second run, and no trial after the run"


def test_trials_never_take_the_steps_or_the_scores_of_the_run() -> None:
    study, ledger = random_study(), book(trials=3, scores=2 + 2 + 1)
    driver = make_driver(study, ledger, trials=50)
    first = started(driver)
    ledger.release(first.trial_id, 2)
    run_through(driver, ledger, first)
    run = started(driver)  # one score is left beside the run's two, so no second trial starts
    assert run.committed
    run_through(driver, ledger, run)
    assert committed_runs(study)[0].state is TrialStatus.COMPLETE
    plenty = book(trials=2)
    driver = make_driver(random_study(), plenty, trials=50)
    for _ in range(2):
        run_through(driver, plenty, started(driver))
    assert started(driver).committed
    assert plenty.used(4.0) == 2 * STEPS


def test_no_pruner_stops_the_run() -> None:
    study, ledger = random_study(make_pruner("threshold", {"lower": 0.2}, rung_steps=RUNGS)), book()
    driver = make_driver(study, ledger)
    for score in (0.5, 0.1, 0.4):
        run_through(driver, ledger, started(driver), score)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    run_through(driver, ledger, started(driver), 0.1)
    assert committed_runs(study)[0].state is TrialStatus.COMPLETE


def test_without_a_score_nothing_is_committed() -> None:
    study, ledger = random_study(), book()
    driver = make_driver(study, ledger, max_first_failures=9)
    for _ in range(3):
        driver.raised(started(driver).trial_id)
    stop = driver.next()
    assert isinstance(stop, Stop)
    assert (stop.reason, committed_runs(study)) == (StopReason.ALL_FAILED, [])
    assert ledger.used(1.0) == 0


def test_a_stop_commits_nothing_and_a_failed_run_is_not_repeated() -> None:
    study, ledger = random_study(), book()
    driver = searched(study, ledger)
    driver.stop("asked")
    assert driver.next() == Stop(StopReason.STOPPED, "asked")
    assert committed_runs(study) == []
    again = make_driver(study, ledger)
    run = started(again)
    assert again.report(run.trial_id, 40, {}) is Decision.FAIL
    again.raised(run.trial_id)
    assert ledger.used(1.0) == 80, "no record may tell by the charge at which step it failed"
    stop = again.next()
    assert stop.reason is StopReason.DONE
    assert "the committed run failed" in stop.detail


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "where", "at"),
    [
        (optuna.Study, "add_trial", 1),
        (MemoryLedger, "reserve", 1),
        (optuna.trial.Trial, "set_user_attr", 1),
        (optuna.trial.Trial, "set_user_attr", 3),
    ],
)
def test_a_crash_at_its_start_leaves_one_run_and_one_reservation(
    owner: type, where: str, at: int, *, after: bool
) -> None:
    study, ledger = random_study(), book()
    driver = searched(study, ledger)
    with dying(owner, where, after=after, at=at):
        driver.next()
    again = make_driver(study, ledger)
    again.reconcile()
    run = started(again)
    assert (run.committed, ledger.held()) == (True, {run.trial_id: 80})
    run_through(again, ledger, run)
    assert again.next() == Stop(StopReason.DONE)
    assert len(committed_runs(study)) == 1
    assert ledger.used(1.0) == 80


def test_an_interruption_shortens_the_run_by_the_steps_that_it_lost() -> None:
    study, ledger = random_study(), book()
    run = started(searched(study, ledger))
    ledger.lease(run.trial_id, 40)
    ledger.lease(run.trial_id, 5)  # the checkpoint at 45 was never written
    again = make_driver(study, ledger)
    again.reconcile({run.trial_id: 40}.get)
    more = started(again)
    assert (more.trial_id, more.shape.steps, more.shape.rungs) == (run.trial_id, 75, (75,))
    assert more.shape.stops == (*range(5, 80, 5),)
    again.report(more.trial_id, 40, {"validation_accuracy": 0.6})
    run_through(again, ledger, replace(more, shape=replace(more.shape, rungs=())))
    ledger.lease(more.trial_id, 35)
    again.report(more.trial_id, 75, {"validation_accuracy": 0.7})
    again.finish(more.trial_id, outcome=TrialStatus.COMPLETE, steps_taken=75)
    (ended,) = committed_runs(study)
    assert (ended.state, ended.steps_planned, ended.last_score) == (TrialStatus.COMPLETE, 75, 0.7)
    curve = views.learning_curve(next(trial for trial in study.trials if views.COMMITTED in trial.user_attrs))
    assert curve == [(40, 0.6), (75, 0.7)]
    assert ledger.used(1.0) == 80


def test_a_lost_worker_of_the_run_stops_the_sweep_and_loses_no_run() -> None:
    study, ledger = random_study(), book()
    driver = searched(study, ledger)
    run = started(driver)
    with pytest.raises(TunerError):
        lose(driver, TrialSetup(spec_for=print, charge_for=print, folder=None), run.trial_id, "the disk is full")  # type: ignore[arg-type]
    assert committed_runs(study)[0].state is TrialStatus.RUNNING


@dataclass
class CommitMachine(Machine):
    """A sweep with a committed run, whose shape may change when it goes on."""

    def lost(self, trial_id: str, trial: Suggestion, step: int, again: bool) -> None:
        super().lost(trial_id, trial, step, again)
        if trial_id in self.running:
            shape = self.driver.shape_of_trial(trial_id)
            self.running[trial_id] = (replace(trial, shape=shape), *self.running[trial_id][1:])

    def check(self) -> None:
        """No quota is passed, a trial can take all that it needs, and there is at most one committed run."""
        ledger = self.ledger
        assert isinstance(ledger, QuotaLedger)
        for noise, quota in ledger.quotas.items():
            assert ledger.used(noise) <= quota
        held = ledger.outstanding()
        assert ledger.released() + sum(each.releases for each in held.values()) <= ledger.score_cap
        for trial_id, (trial, step, again) in self.running.items():
            assert held[trial_id].steps == trial.shape.steps - step
            assert held[trial_id].releases >= again + sum(rung > step for rung in trial.shape.rungs)
        runs = committed_runs(self.driver.study)
        assert len(runs) <= 1
        running = [trial for trial, *_ in self.running.values()]
        if any(trial.committed for trial in running):
            assert len(running) == 1, "the search is over"


ACTIONS = st.sampled_from(["next", "next", "rung", "rung", "rung", "ends", "crash", "torn", "lost"])


@given(
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 3)), max_size=50),
    trials=st.integers(1, 4),
    scores=st.integers(2, 20),
)
def test_in_every_interleaving_each_part_keeps_to_its_quota(
    actions: list[tuple[str, int]], trials: int, scores: int
) -> None:
    study, ledger = random_study(), book(trials, scores=scores)
    machine = CommitMachine(lambda: make_driver(study, ledger, trials=4, max_first_failures=99), ledger)
    for action, which in actions:
        machine.act(action, which)
    machine.complete()
    if any(trial.state is TrialStatus.COMPLETE for trial in views.read_trials(study, mode="max", steps_planned=STEPS)):
        assert len(committed_runs(study)) == 1


def test_the_rule_keeps_the_rate_within_its_domain_and_a_fixed_rate_as_it_is() -> None:
    trials = [
        TrialView(id=f"t{number}", number=number, state=TrialStatus.COMPLETE, last_score=score, parameters=parameters)
        for number, (score, parameters) in enumerate([(0.5, {"learning_rate": 0.1}), (0.9, {"learning_rate": 0.8})])
    ]
    high = choose_commit(trials, SPACE, mode="max", search=SEARCH, committed=RUN)
    assert high is not None
    assert isinstance(dict(SPACE.parameters)["learning_rate"], LogUniform)
    assert (high.parameters, high.source) == ({"learning_rate": 1.0}, "t1")
    low = choose_commit(trials, SPACE, mode="min", search=SEARCH, committed=RUN)
    assert low is not None
    assert low.parameters == {"learning_rate": pytest.approx(0.2)}
    fixed = parse_space({"learning_rate": 0.8}, method="dp_sgd")
    kept = choose_commit(trials, fixed, mode="max", search=SEARCH, committed=RUN)
    assert kept is not None
    assert kept.parameters == {"learning_rate": 0.8}
    assert choose_commit([], SPACE, mode="max", search=SEARCH, committed=RUN) is None


@pytest.mark.parametrize(
    ("spec", "rate", "limited"),
    [
        ({"log_uniform": [0.1, 50.0]}, 30.0, 2.0),
        ({"log_uniform": [0.1, 50.0]}, 1.5, 1.5),
        ({"uniform": [5.0, 50.0]}, 30.0, 5.0),
        ({"choice": [0.1, 1.0, 30.0]}, 30.0, 1.0),
        ({"choice": [5.0, 30.0]}, 30.0, 5.0),
        (30.0, 30.0, 30.0),
    ],
)
def test_a_limited_rate_stays_in_its_domain_and_a_fixed_one_is_the_users(
    spec: object, rate: float, limited: float
) -> None:
    space = parse_space({"learning_rate": spec}, method="dp_sgd")
    found = with_rate_below(2.0, Commitment(parameters={"learning_rate": rate, "other": 1}, source="a"), space)
    assert found.parameters == {"learning_rate": limited, "other": 1}


def test_what_a_surrogate_proposes_is_completed_and_kept_within_the_space() -> None:
    space = parse_space(
        {"learning_rate": {"log_uniform": [0.01, 1.0]}, "max_grad_norm": 2.0, "schedule": {"choice": ["constant"]}},
        method="dp_sgd",
    )
    trial = TrialView(id="t", number=0, state=TrialStatus.COMPLETE, last_score=0.5, parameters={"learning_rate": 0.3})
    found = commit_proposed([trial], space, mode="max", proposed={"learning_rate": 7.0})
    assert found is not None
    assert found.source == "t"
    assert found.parameters == {"learning_rate": 1.0, "max_grad_norm": 2.0, "schedule": "constant"}
    assert commit_proposed([], space, mode="max", proposed={}) is None
