"""A random scheduler of reserve, lease, settle, close, crash and restore, against a model that only adds up."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import pytest
from dp_accounting.rdp import RdpAccountant
from errors_helper import raises_code
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from ledgers import CHEAP, MECHANISM, RELEASE, open_search, reserved_mechanism, used_steps

from tuner.errors import BudgetRefusedError, LedgerError
from tuner.privacy.accountant.filters import UNITS, CouponBook, Filter, FixedOrder, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger import search_rules
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import PoolState, TrialAccount

LOUD = SampledGaussian(0.1, 1.5)
EPSILON, DELTA, ORDER = 2.0, 1e-5, 8.0
SCORES, SCORES_EPSILON = 12, 0.6
POOLS = ("training", "validation")


@lru_cache
def price(mechanism: SampledGaussian) -> Fraction:
    """Rényi divergence of a step, by another accountant than the ledger's."""
    accountant = RdpAccountant([ORDER])
    accountant.compose(mechanism.event(1))
    return Fraction(accountant._rdp[0])


@lru_cache
def composed(used: tuple[tuple[SampledGaussian, int], ...]) -> float:
    """ε at DELTA of all these steps together, by another accountant than the claim's."""
    accountant = RdpAccountant([*(1 + number / 4 for number in range(1, 120)), *range(32, 300, 4)])
    for mechanism, steps in used:
        accountant.compose(mechanism.event(steps))
    return float(accountant.get_epsilon(DELTA))


class Scheduler(RuleBasedStateMachine):
    """Trials of two pools, with a ledger that dies at any moment. The model counts; it knows nothing of the ledger."""

    filter: ClassVar[Filter]
    menu: ClassVar[tuple[SampledGaussian, ...]] = (MECHANISM, CHEAP, LOUD)
    epsilon: ClassVar[float] = EPSILON

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:///{self.folder.name}/ledger.db"
        self.ledger = Ledger.open(self.url)
        scores: Any = {"validation": TotalSteps(RELEASE, SCORES), "validation_claim": (SCORES_EPSILON, DELTA)}
        open_search(self.ledger, "s", self.epsilon, filter=self.filter, **scores)
        self.reserved: dict[str, Counter[str]] = {pool: Counter() for pool in POOLS}
        self.leased: dict[str, Counter[str]] = {pool: Counter() for pool in POOLS}
        self.mechanism: dict[str, SampledGaussian] = {}
        self.dead: set[str] = set()

    trials = st.sampled_from("abcd")
    pools = st.sampled_from(POOLS)
    much = st.sampled_from(["all", "half", "one", "too much"])
    choices = st.integers(0, 2)

    # What the model knows.

    def outstanding(self, pool: str, trial: str) -> int:
        return 0 if trial in self.dead else self.reserved[pool][trial] - self.leased[pool][trial]

    def used(self) -> Counter[SampledGaussian]:
        found: Counter[SampledGaussian] = Counter()
        for trial, mechanism in self.mechanism.items():
            found[mechanism] += self.leased["training"][trial] + self.outstanding("training", trial)
        return found

    def fits(self, pool: str, mechanism: SampledGaussian, steps: int) -> bool | None:
        """None where it is too near to tell without knowing how the ledger rounds."""
        if pool == "validation":
            taken = sum(self.leased[pool][trial] + self.outstanding(pool, trial) for trial in self.reserved[pool])
            return taken + steps <= SCORES
        used = self.used()
        used[mechanism] += steps
        match self.filter:
            case TotalSteps(step_cap=cap):
                return sum(used.values()) <= cap
            case CouponBook(quotas=quotas):
                return all(used[each] <= quota for each, quota in quotas)
            case FixedOrder(budget=budget):
                spent = sum(count * price(each) for each, count in used.items())
                share = spent * UNITS / budget
                return None if abs(share - 1) < Fraction(1, 10**6) else share < 1
            case other:
                raise AssertionError(other)

    def of(self, trial: str, choice: int) -> SampledGaussian:
        return self.mechanism.get(trial, self.menu[choice % len(self.menu)])

    # What the scheduler does.

    @initialize()
    def some_have_begun(self) -> None:
        for trial in "abc":
            self.reserve(trial, 4, 2, 0)  # type: ignore[call-arg]
            self.lease(trial, "training", "half")  # type: ignore[call-arg]

    @rule(trial=trials, steps=st.integers(0, 12), scores=st.integers(0, 6), choice=choices)
    def reserve(self, trial: str, steps: int, scores: int, choice: int) -> None:
        mechanism = self.of(trial, choice)
        asked = {pool: each for pool, each in zip(POOLS, (steps, scores), strict=True) if each}
        expected = [self.fits(pool, mechanism, each) for pool, each in asked.items()]
        try:
            if len(asked) == 1:
                ((pool, each),) = asked.items()
                self.ledger.reserve("s", trial, each, mechanism=mechanism, pool=pool)
            else:
                self.ledger.reserve_together("s", trial, asked, mechanism=mechanism)
        except BudgetRefusedError:
            assert not all(expected)
        except LedgerError:
            assert trial in self.dead
        else:
            assert False not in expected
            assert not asked or trial not in self.dead
            for pool, each in asked.items():
                self.promised(pool, trial, each, mechanism)

    def promised(self, pool: str, trial: str, steps: int, mechanism: SampledGaussian) -> None:
        self.reserved[pool][trial] += steps
        if pool == "training":
            self.mechanism[trial] = mechanism

    def reserved_by(self, pool: str, trial: str) -> SampledGaussian:
        return reserved_mechanism(self.ledger, "s", trial, pool)

    def part(self, whole: int, much: str) -> int:
        return {"all": whole, "half": whole // 2, "one": 1, "too much": whole + 1}[much]

    @rule(trial=trials, pool=pools, much=much)
    def lease(self, trial: str, pool: str, much: str) -> None:
        steps = self.part(self.outstanding(pool, trial), much)
        if not steps:
            return
        try:
            self.ledger.lease("s", trial, steps, self.reserved_by(pool, trial), pool=pool)
        except BudgetRefusedError:
            assert steps > self.outstanding(pool, trial)
        except LedgerError:
            assert trial in self.dead
        else:
            assert steps <= self.outstanding(pool, trial)
            self.leased[pool][trial] += steps

    @rule(trial=trials, pool=pools, much=much, committed=st.booleans())
    def lease_and_never_hear_of_it(self, trial: str, pool: str, much: str, committed: bool) -> None:
        """The power fails before or after the commit: the steps are not taken, and charged only after it."""
        steps = self.part(self.outstanding(pool, trial), much)
        if not steps:
            return
        possible = committed and steps <= self.outstanding(pool, trial)
        with pytest.raises((BudgetRefusedError, LedgerError)), power_failure(self.ledger, committed=committed):
            self.ledger.lease("s", trial, steps, self.reserved_by(pool, trial), pool=pool)
        if possible:
            self.leased[pool][trial] += steps

    @rule(trial=trials, much=much)
    def settle(self, trial: str, much: str) -> None:
        known, leased = any(self.reserved[pool][trial] for pool in POOLS), self.leased["training"][trial]
        taken = self.part(leased, much)
        try:
            self.ledger.settle("s", trial, taken)
        except LedgerError:
            assert not known or trial in self.dead or taken > leased
        else:
            assert taken <= leased
            self.dead.add(trial)

    @rule(trial=trials, much=much)
    def restore(self, trial: str, much: str) -> None:
        """It died, and goes on from a checkpoint: the steps that it repeats are reserved again, and paid again."""
        repeated = self.part(self.leased["training"][trial], much)
        if trial not in self.dead and trial in self.mechanism and repeated:
            self.crash()  # type: ignore[call-arg]
            self.reserve(trial, repeated, 0, 0)  # type: ignore[call-arg]
            self.lease(trial, "training", "all")  # type: ignore[call-arg]

    def account(self, trial: str) -> TrialAccount:
        return self.ledger.search_state("s").training.account(trial)

    @rule(trial=trials, steps=st.integers(1, 12))
    def promote(self, trial: str, steps: int) -> None:
        """The steps of the next rung: only of a trial that has taken all it had reserved, and never beyond the cap."""
        mechanism, pool = self.of(trial, 0), "training"
        finished = self.leased[pool][trial] > 0 and not self.outstanding(pool, trial)
        fits, restarts = self.fits(pool, mechanism, steps), self.account(trial).restarts
        try:
            self.ledger.reserve_together("s", trial, {pool: steps}, mechanism=mechanism, rung=True)
        except BudgetRefusedError:
            assert not fits
        except LedgerError:
            assert trial in self.dead or not finished
        else:
            assert finished
            assert fits is not False
            assert trial not in self.dead
            assert self.account(trial).restarts == restarts
            self.promised(pool, trial, steps, mechanism)

    @rule(trial=trials, pool=pools)
    def close_and_reopen(self, trial: str, pool: str) -> None:
        self.ledger.close_search("s")
        with raises_code(LedgerError, "search-not-open"):
            self.ledger.lease("s", trial, 1, self.reserved_by(pool, trial), pool=pool)
        with raises_code(LedgerError, "search-not-open"):
            self.ledger.reserve("s", trial, 1, mechanism=self.of(trial, 0), pool=pool)
        self.ledger.reopen_search("s")

    @rule()
    def crash(self) -> None:
        self.ledger = Ledger.open(self.url, create=False)

    # What must hold, always.

    @invariant()
    def the_ledger_is_what_was_counted(self) -> None:
        state = self.ledger.search_state("s")
        for pool in POOLS:
            found = state.pools[pool]
            assert {name: trial.leased for name, trial in found.trials.items() if trial.leased} == +self.leased[pool]
            for name, trial in found.trials.items():
                assert trial.outstanding == self.outstanding(pool, name) >= 0
            assert found.leased_steps == sum(self.leased[pool].values())
            assert found.reserved_steps == sum(self.outstanding(pool, trial) for trial in self.reserved[pool])
            trials = found.trials.values()  # the sums that are kept are the sums of the trials
            assert found.leased_units == sum(trial.price * trial.leased for trial in trials)
            assert found.reserved_units == sum(trial.price * trial.outstanding for trial in trials)
        assert +Counter(used_steps(state.training)) == +self.used()

    @invariant()
    def no_filter_is_ever_passed(self) -> None:
        assert all(self.fits("training", mechanism, 0) is not False for mechanism in self.menu)
        assert self.fits("validation", RELEASE, 0)

    def teardown(self) -> None:
        self.ledger.verify_chain()
        assert Ledger.open(self.url).dataset_state("digits") == self.ledger.dataset_state("digits")
        leased: Counter[SampledGaussian] = Counter()
        for trial, steps in self.leased["training"].items():
            leased[self.mechanism[trial]] += steps
        used = tuple(sorted((+leased).items(), key=repr))
        if used:
            assert composed(used) <= self.epsilon
        if scores := sum(self.leased["validation"].values()):
            assert composed(((RELEASE, scores),)) <= SCORES_EPSILON
        self.folder.cleanup()


@contextmanager
def power_failure(ledger: Ledger, *, committed: bool) -> Iterator[None]:
    """Let the next transaction fail, after its commit or before it."""
    store, writing = ledger._chain.store, ledger._chain.store.writing
    failure = LedgerError("ledger-unavailable", "the power failed")

    @contextmanager
    def failing() -> Iterator[Any]:
        with writing() as connection:
            yield connection
            if not committed:
                raise failure
        raise failure

    store.writing = failing  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.writing = writing  # type: ignore[method-assign]


class OneMechanism(Scheduler):
    filter = TotalSteps(MECHANISM, 50)
    menu = (MECHANISM,)


class Coupons(Scheduler):
    filter = CouponBook(((MECHANISM, 20), (CHEAP, 25), (LOUD, 8)))


class AtOneOrder(Scheduler):
    filter = FixedOrder(ORDER, UNITS // 5)
    epsilon = 2.2


SETTINGS = settings(max_examples=12, stateful_step_count=30, deadline=None, derandomize=True)
TestOneMechanism = OneMechanism.TestCase
TestCoupons = Coupons.TestCase
TestAtOneOrder = AtOneOrder.TestCase
TestOneMechanism.settings = TestCoupons.settings = TestAtOneOrder.settings = SETTINGS


# The control: each planted fault is noticed by the same scheduler.


def refund_what_was_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = search_rules._settle

    def refunding(search: Any, data: Any) -> Any:  # noqa: ANN401
        settled, name = honest(search, data), data["trial"]
        pool = settled.pools["training"]
        if (trial := pool.trials.get(name)) is None:
            return settled
        return search_rules._with_pool(settled, "training", pool.with_trial(name, replace(trial, leased=trial.taken)))

    monkeypatch.setattr(search_rules, "_settle", refunding)


def promise_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PoolState, "left", lambda *_, **__: 10**9)


def lease_without_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ledger.lease

    def forgetful(self: Ledger, search: str, trial: str, steps: int, *more: Any, **pool: Any) -> None:  # noqa: ANN401
        if steps % 2:
            honest(self, search, trial, steps, *more, **pool)

    monkeypatch.setattr(Ledger, "lease", forgetful)


def keep_what_was_promised_to_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrialAccount, "outstanding", property(lambda self: self.reserved - self.leased))


@pytest.mark.parametrize(
    "machine", [OneMechanism, *(pytest.param(each, marks=pytest.mark.slow) for each in (Coupons, AtOneOrder))]
)
@pytest.mark.parametrize(
    "fault",
    [refund_what_was_leased, promise_without_looking, lease_without_writing, keep_what_was_promised_to_the_dead],
)
def test_a_planted_fault_is_noticed(
    monkeypatch: pytest.MonkeyPatch, machine: type[Scheduler], fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    few = settings(SETTINGS, max_examples=30, database=None, phases=(Phase.generate,), report_multiple_bugs=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=few)
