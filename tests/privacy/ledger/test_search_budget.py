"""One search's budget as its driver and its trials hold it."""

from __future__ import annotations

import math
import os
import pickle
from math import isfinite
from pathlib import Path

import pytest
from covering import pairs
from errors_helper import raises_code
from ledgers import BOOK, CHEAP, MECHANISM, RELEASE, SCORES, SEALED, head_of, open_search

from trainables.charge import lease_size
from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError, LedgerError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import LedgerCharge, Reserved, SearchBudget
from tuner.study.types import Ask


def asked(mechanism: SampledGaussian, steps: int, releases: int = 0) -> Ask:
    return Ask(steps, mechanism.sample_rate, mechanism.noise_multiplier, releases)


@pytest.fixture
def scored(ledger: Ledger) -> SearchBudget:
    open_search(ledger, "s", filter=BOOK, **SCORES)
    return SearchBudget(ledger, "s")


def test_budget_view_and_charge(ledger: Ledger, search: str) -> None:
    with raises_code(LedgerError, "search-not-found"):
        SearchBudget(ledger, "nowhere")
    budget = SearchBudget(ledger, search)
    view = budget.view()
    assert (view.spent, view.reserved, view.left, view.epsilon_spent) == (0.0, 0.0, 1.0, 0.0)
    assert budget.fits(Ask(1000))
    assert not budget.fits(Ask(1001))
    assert not budget.fits(Ask(1, releases=1))
    budget.reserve("a", Ask(50))
    charge = pickle.loads(pickle.dumps(budget.charge_for("a")))
    charge.lease(30, **MECHANISM.body())
    assert (charge.leased(), charge.released()) == (30, 0)
    view = budget.view()
    assert (view.spent_steps, view.reserved_steps, view.left_steps, view.step_cap) == (30, 20, 950, 1000)
    assert (view.spent, view.reserved, view.left) == pytest.approx((0.03, 0.02, 0.95), abs=1e-12)
    assert view.epsilon_spent == accounting.epsilon(MECHANISM, 30, 1e-5) == budget.trial_epsilon("a", 30)
    assert (view.epsilon_cap, view.delta, view.validation) == (4.0, 1e-5, None)
    assert budget.charged_steps("a") == 30
    budget.settle("a", 30)
    with pytest.raises(LedgerError):
        charge.lease(1, **MECHANISM.body())


def test_it_fits_exactly_when_it_can_be_reserved(ledger: Ledger, scored: SearchBudget) -> None:
    rows = pairs((MECHANISM, CHEAP, RELEASE), (1, 10, 11, 20, 21), (0, 1, 6, 7))
    for number, ask in enumerate(asked(*row) for row in rows):
        fits = scored.fits(ask)
        try:
            scored.reserve(f"t{number}", ask)
        except BudgetRefusedError:
            assert not fits
            assert f"t{number}" not in scored.outstanding()
        else:
            assert fits
            scored.settle(f"t{number}", 0)
    assert not scored.fits(Ask(1))  # of two mechanisms none was named
    before = head_of(ledger)
    assert scored.fits(Ask(0))
    scored.reserve("a", Ask(0))  # writes nothing
    with raises_code(InputError, "count-out-of-range"):
        scored.reserve("a", Ask(1, releases=-1))
    assert head_of(ledger) == before


def test_steps_and_scores_are_asked_for_together(scored: SearchBudget) -> None:
    scored.reserve("a", asked(MECHANISM, 4, 2))
    scored.reserve("b", asked(CHEAP, 4))
    scored.reserve("a", Ask(0, releases=1))
    scored.reserve("a", Ask(2))  # its own mechanism
    charge = scored.charge_for("a")
    charge.lease(5, **MECHANISM.body())
    charge.release(noise=RELEASE.noise_multiplier)
    charge.release(2, noise=RELEASE.noise_multiplier)
    assert (charge.leased(), charge.released()) == (5, 3)
    with pytest.raises(BudgetRefusedError):
        charge.release(noise=RELEASE.noise_multiplier)
    assert scored.outstanding() == {"a": Reserved(1, 0), "b": Reserved(4, 0)}
    scored.settle("a", 5)
    scored.reserve("c", Ask(0, releases=2))
    assert scored.outstanding() == {"b": Reserved(4, 0), "c": Reserved(0, 2)}
    scored.settle("c", 0)
    view = scored.view()
    assert view.validation is not None
    assert (view.validation.spent_steps, view.validation.step_cap, view.validation.left_steps) == (3, 6, 3)
    assert (view.validation.epsilon_cap, view.validation.delta) == (1.0, 1e-6)
    assert view.validation.epsilon_spent == accounting.epsilon(RELEASE, 3, 1e-6)


def test_the_bar_of_a_coupon_book_weighs_its_coupons(ledger: Ledger) -> None:
    loud = SampledGaussian(0.1, 1.5)
    open_search(ledger, "s", filter=CouponBook(((loud, 10), (CHEAP, 100))))
    budget = SearchBudget(ledger, "s")
    budget.reserve("a", asked(CHEAP, 100))
    quiet = budget.view()
    budget.reserve("b", asked(loud, 10))
    budget.charge_for("b").lease(10, **loud.body())
    view = budget.view()
    assert quiet.reserved < 0.2 < 0.8 < view.spent  # a tenth of the coupons, and nearly all of the loss
    assert view.spent + view.reserved == pytest.approx(1.0)
    assert (view.step_cap, view.left_steps) == (110, 0)


def test_the_shares_of_the_trials_in_any_order_end_at_what_the_bar_shows(ledger: Ledger) -> None:
    loud = SampledGaussian(0.1, 1.5)
    filter = FixedOrder.of(order=8.0, epsilon=2.0, delta=1e-5)
    assert filter is not None
    for name, limit in (("book", CouponBook(((loud, 10), (CHEAP, 100)))), ("order", filter)):
        open_search(ledger, name, 2.0 if name == "order" else 4.0, filter=limit)
        budget = SearchBudget(ledger, name)
        for trial, mechanism, steps in (("a", CHEAP, 40), ("b", loud, 2), ("c", CHEAP, 10)):
            budget.reserve(trial, asked(mechanism, steps))
            budget.charge_for(trial).lease(steps // 2, **mechanism.body())
        spent = budget.view().spent
        for order in ("abc", "cba"):
            shares = budget.read().shares(list(order))
            assert shares == sorted(shares)
            assert shares[-1] == pytest.approx(spent, rel=1e-12)
        assert budget.read().shares(["a"])[0] < spent, "without the others it is less"


def test_the_bar_of_a_fixed_order_is_its_divergence(ledger: Ledger) -> None:
    filter = FixedOrder.of(order=8.0, epsilon=2.0, delta=1e-5)
    assert filter is not None
    open_search(ledger, "s", 2.0, filter=filter)
    budget = SearchBudget(ledger, "s")
    assert not budget.fits(Ask(1))  # whose mechanism?
    most = filter.budget // filter.price(MECHANISM)
    assert budget.fits(asked(MECHANISM, most))
    assert not budget.fits(asked(MECHANISM, most + 1))
    budget.reserve("a", asked(MECHANISM, most))
    budget.charge_for("a").lease(most // 2, **MECHANISM.body())
    view = budget.view()
    assert (view.step_cap, view.left_steps) == (None, None)
    assert view.spent == pytest.approx(0.5, abs=1 / most)
    assert view.spent + view.reserved + view.left == pytest.approx(1.0)
    assert 0 < view.epsilon_spent <= 2.0


def test_the_bar_of_a_sealed_search_tells_only_whether_it_began(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=SEALED)
    budget = SearchBudget(ledger, "s")
    before = budget.view()
    assert (before.spent, before.left, before.epsilon_spent, before.step_cap) == (0.0, 1.0, 0.0, None)
    assert not budget.fits(asked(CHEAP, 1))
    ledger.begin_sealed("s", "0" * 64)
    after = budget.view()
    assert (after.spent, after.reserved, after.left, after.epsilon_spent) == (1.0, 0.0, 0.0, 4.0)
    assert (after.spent_steps, after.reserved_steps) == (0, 0)


def test_steps_of_several_trials_are_composed_each_with_its_own_mechanism(
    scored: SearchBudget, ledger: Ledger, search: str
) -> None:
    scored.reserve("a", asked(CHEAP, 20))
    scored.reserve("b", asked(MECHANISM, 10))
    scored.charge_for("a").lease(15, **CHEAP.body())
    scored.charge_for("b").lease(10, **MECHANISM.body())
    assert scored.trial_epsilon("a", 20) == accounting.epsilon(CHEAP, 20, 1e-5)
    assert scored.trial_epsilon("b", 10) == accounting.epsilon(MECHANISM, 10, 1e-5)
    assert scored.steps_epsilon({}) == scored.steps_epsilon({"a": 0}) == 0.0
    assert scored.steps_epsilon({"a": 15, "b": 10}) == scored.view().epsilon_spent
    assert scored.steps_epsilon({"a": 7}) == accounting.epsilon(CHEAP, 7, 1e-5)
    more = scored.steps_epsilon({"a": 30, "b": 12})
    assert more == accounting.epsilon_composed([(CHEAP, 30), (MECHANISM, 12)], 1e-5)
    assert more > scored.view().epsilon_spent
    for wrong in (lambda: scored.trial_epsilon("unknown", 1), lambda: scored.steps_epsilon({"a": 15, "unknown": 1})):
        with raises_code(LedgerError, "mechanism-not-single"):
            wrong()
    for none in (lambda: scored.trial_epsilon("a", -1), lambda: scored.steps_epsilon({"a": -1})):
        with pytest.raises(InputError):
            none()
    alike = SearchBudget(ledger, search)  # where all steps are alike trials need no reservation
    assert alike.steps_epsilon({"never started": 30, "other": 12}) == accounting.epsilon(MECHANISM, 42, 1e-5)


def test_no_number_that_is_shown_of_leased_steps_is_infinite(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    open_search(ledger, "s")
    budget = SearchBudget(ledger, "s")
    budget.reserve("a", Ask(5))
    budget.charge_for("a").lease(5, **MECHANISM.body())
    monkeypatch.setattr("tuner.privacy.ledger.search_budget.epsilon", lambda *_: float("inf"))
    assert budget.trial_epsilon("a", 5) == 4.0
    assert not isfinite(budget.trial_epsilon("a", 6))


def test_each_process_opens_the_ledger_for_itself_and_once(
    ledger: Ledger, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve(search, "a", 10)
    charge = LedgerCharge(ledger.url, search, "a")
    charge.lease(1, **MECHANISM.body())
    monkeypatch.setattr("tuner.privacy.ledger.search_budget._VERIFYING", 1e-9)  # not again in this test
    monkeypatch.setattr("tuner.privacy.ledger.search_budget._OPENED", {})
    first = charge._ledger()
    assert charge._ledger() is LedgerCharge(ledger.url, search, "b")._ledger() is first
    monkeypatch.setattr(os, "getpid", lambda: 0)  # as after a fork
    assert charge._ledger() is not first
    assert charge.leased() == 1


def test_an_open_ledger_is_verified_anew(ledger: Ledger, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.reserve(search, "a", 10)
    charge = LedgerCharge(ledger.url, search, "a")
    charge.lease(5, **MECHANISM.body())
    charge.lease(1, **MECHANISM.body())
    assert ledger.search_state(search).training.account("a").leased == 6  # read before an old entry is changed
    path = Path(ledger.url.removeprefix("sqlite:///"))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"steps":5', b'"steps":4'))
    assert path.read_bytes() != whole
    monkeypatch.setattr("tuner.privacy.ledger.search_budget._OPENED", {(os.getpid(), ledger.url): (ledger, math.inf)})
    assert charge.leased() == 6  # the control: a read sees new entries alone
    monkeypatch.setattr("tuner.privacy.ledger.search_budget._OPENED", {(os.getpid(), ledger.url): (ledger, 0.0)})
    with raises_code(LedgerCorruptError, "ledger-chain-broken"):
        charge.lease(1, **MECHANISM.body())


def test_a_trial_releases_the_scores_that_were_reserved_for_it(scored: SearchBudget) -> None:
    scored.reserve("a", asked(CHEAP, 5, releases=2))
    charge = scored.charge_for("a")
    with raises_code(LedgerError, "mechanism-not-reserved"):
        charge.release(noise=RELEASE.noise_multiplier / 2)
    with raises_code(LedgerError, "mechanism-not-reserved"):
        charge.lease(1, **MECHANISM.body())
    charge.release(noise=RELEASE.noise_multiplier)
    assert (charge.leased(), charge.released()) == (0, 1)
    scored.check_mechanism("a", CHEAP)
    for trial, mechanism in (("a", MECHANISM), ("never reserved", CHEAP)):
        with raises_code(LedgerError, "mechanism-not-reserved"):
            scored.check_mechanism(trial, mechanism)


@pytest.mark.parametrize("protected", [True, False])
def test_a_trial_protects_its_scores_exactly_where_the_ledger_says_so(ledger: Ledger, *, protected: bool) -> None:
    """A trial that draws scores without noise asks for no lease, so no other check would notice."""
    open_search(ledger, "s", **(SCORES if protected else {}))
    budget = SearchBudget(ledger, "s")
    budget.check_scores(protected=protected)
    with raises_code(LedgerError, "mechanism-not-reserved"):
        budget.check_scores(protected=not protected)


def test_a_trial_that_was_cut_off_is_told_so(ledger: Ledger, search: str) -> None:
    """So that it leases less at a time; a reservation before its first lease is no restart."""
    budget = SearchBudget(ledger, search)
    charge = budget.charge_for("a")
    budget.reserve("a", Ask(50))
    budget.reserve("a", Ask(50))
    assert charge.restarts() == 0
    for restart in (1, 2):
        charge.lease(40, **MECHANISM.body())
        budget.reserve("a", Ask(40))
        assert charge.restarts() == restart
    assert budget.charge_for("b").restarts() == 0


def test_a_next_rung_is_no_restart_and_is_held_against_the_cap(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=TotalSteps(MECHANISM, 100), **SCORES)
    budget = SearchBudget(ledger, "s")
    charge = budget.charge_for("a")
    with raises_code(LedgerError, "rung-not-finished"):
        budget.reserve("a", Ask(40), rung=True)  # it has no first rung yet
    budget.reserve("a", Ask(40, releases=1))
    charge.lease(30, **MECHANISM.body())
    with raises_code(LedgerError, "rung-not-finished"):
        budget.reserve("a", Ask(40, releases=1), rung=True)
    charge.lease(10, **MECHANISM.body())
    charge.release(noise=RELEASE.noise_multiplier)
    budget.reserve("a", Ask(40, releases=1), rung=True)
    assert charge.restarts() == 0, "nothing was lost, so its leases stay as long"
    assert budget.fits(Ask(20))
    assert not budget.fits(Ask(10), Ask(11)), "two requests are held against the cap together"
    charge.lease(40, **MECHANISM.body())
    with raises_code(BudgetRefusedError, "cap-exceeded"):
        budget.reserve("a", Ask(21), rung=True)
    budget.reserve("a", Ask(20))
    assert charge.restarts() == 1, "what is not a next rung repeats steps"
    ledger.verify_chain()


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_forfeited_trial_leaves_the_ledger_as_if_it_had_gone_on(ledger: Ledger, restarts: int) -> None:
    """No count tells at which step it stopped, not even the number of entries, which a privacy card shows."""
    open_search(ledger, "s", filter=TotalSteps(MECHANISM, 1000), **SCORES)
    budget, rungs, seen = SearchBudget(ledger, "s"), (150, 300), []
    for stop in (3, 150, 299):
        trial, before = f"t{stop}", len(ledger.entries("digits"))
        budget.reserve(trial, Ask(300, releases=2))
        charge = budget.charge_for(trial)
        if restarts:
            charge.lease(10, **MECHANISM.body())
            budget.reserve(trial, Ask(10))
        size = lease_size(restarts)
        for rung in rungs:
            at = rung - 150
            while at < min(rung, stop):
                charge.lease(min(size, rung - at), **MECHANISM.body())
                at += min(size, rung - at)
            if stop >= rung:
                charge.release(1, noise=RELEASE.noise_multiplier)
        budget.forfeit(trial, 0, rungs)
        budget.settle(trial, 0)  # again, after a crash
        view = budget.view()
        assert (charge.leased(), charge.released()) == (300 + 10 * restarts, 2)
        assert (view.reserved_steps, view.validation.reserved_steps) == (0, 0)
        seen.append(len(ledger.entries("digits")) - before)
    assert len(set(seen)) == 1
    ledger.verify_chain()
