"""The filters of a search: menus, a fixed order, validation scores, sealed searches."""

from __future__ import annotations

from math import inf, nan

import pytest
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st
from ledgers import CHEAP, MECHANISM, RELEASE, head_of, lease, left_steps, open_search, used_steps

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, Sealed, TotalSteps, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger.ledger import Ledger

BOOK = CouponBook(((MECHANISM, 10), (CHEAP, 20)))
LAW = RunLaw(name="geometric", mean=2.0, shape=1.0)
SEALED = Sealed(LAW, 60, ((CHEAP, 5),))


def at_order(epsilon: float = 2.0) -> FixedOrder:
    found = FixedOrder.of(order=8.0, epsilon=epsilon, delta=1e-5)
    assert found is not None
    return found


def test_a_coupon_book_holds_each_quota(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=BOOK)
    ledger.reserve("s", "a", 10, mechanism=MECHANISM)
    with raises_code(BudgetRefusedError, "cap-exceeded"):
        ledger.reserve("s", "b", 1, mechanism=MECHANISM)
    ledger.reserve("s", "b", 20, mechanism=CHEAP)
    assert left_steps(ledger.search_state("s")) == 0
    lease(ledger, "s", "a", 3)
    ledger.settle("s", "a", 3)
    state = ledger.search_state("s")
    assert (state.training.left(MECHANISM), state.training.left(CHEAP)) == (7, 0)
    assert (dict(state.training.leased), used_steps(state.training)) == (
        {MECHANISM: 3, CHEAP: 0},
        {MECHANISM: 3, CHEAP: 20},
    )


def test_a_mechanism_must_be_named_where_there_are_several_and_stays(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=BOOK)
    with raises_code(InputError, "mechanism-not-named"):
        ledger.reserve("s", "a", 1)
    with raises_code(BudgetRefusedError, "mechanism-not-allowed"):
        ledger.reserve("s", "a", 1, mechanism=SampledGaussian(0.05, 1.9))
    ledger.reserve("s", "a", 1, mechanism=CHEAP)
    with raises_code(LedgerError, "mechanism-not-reserved"):
        ledger.reserve("s", "a", 1, mechanism=MECHANISM)
    ledger.reserve("s", "a", 1)  # its own
    assert ledger.search_state("s").trials["a"].mechanism == CHEAP
    with raises_code(LedgerError, "mechanism-not-single"):
        _ = ledger.search_state("s").mechanism


def test_a_fixed_order_holds_the_sum_of_any_mechanisms(ledger: Ledger, url: str) -> None:
    filter = at_order()
    open_search(ledger, "s", 2.0, filter=filter)
    price = {mechanism: filter.price(mechanism) for mechanism in (MECHANISM, CHEAP)}
    most = filter.budget // price[MECHANISM]
    with raises_code(BudgetRefusedError, "cap-exceeded"):
        ledger.reserve("s", "a", most + 1, mechanism=MECHANISM)
    ledger.reserve("s", "a", most - 5, mechanism=MECHANISM)
    room = (filter.budget - (most - 5) * price[MECHANISM]) // price[CHEAP]
    assert ledger.search_state("s").training.left(CHEAP) == room > 5
    ledger.reserve("s", "b", room, mechanism=CHEAP)
    for mechanism in (MECHANISM, CHEAP):
        with raises_code(BudgetRefusedError, "cap-exceeded"):
            ledger.reserve("s", "c", 1, mechanism=mechanism)
    lease(ledger, "s", "b", room)
    state = Ledger.open(url).search_state("s")
    assert state.training.leased_units == room * price[CHEAP]
    assert state.training.leased_units + state.training.reserved_units <= filter.budget


def test_a_mechanism_without_a_finite_divergence_is_refused(ledger: Ledger) -> None:
    open_search(ledger, "s", 2.0, filter=at_order())
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("s", "a", 1, mechanism=SampledGaussian(1.0, 1e-200))
    assert dict(ledger.search_state("s").trials) == {}


@given(
    order=st.floats(1.05, 1024, allow_nan=False),
    epsilon=st.floats(1e-3, 200),
    delta=st.floats(-30, -1).map(lambda power: 10.0**power),
)
def test_a_filter_claims_at_most_what_it_was_made_for(order: float, epsilon: float, delta: float) -> None:
    found = FixedOrder.of(order=order, epsilon=epsilon, delta=delta)
    if found is not None:
        assert found.claim(delta) <= epsilon
        assert from_body(found.body()) == found


@pytest.mark.parametrize(
    "filter",
    [TotalSteps(MECHANISM, 100_000), CouponBook(((MECHANISM, 50_000), (CHEAP, 1))), FixedOrder(8.0, 10**17)],
    ids=lambda filter: filter.kind,
)
def test_an_filter_must_fit_the_claim(ledger: Ledger, filter: TotalSteps | CouponBook | FixedOrder) -> None:
    with raises_code(BudgetRefusedError, "filter-exceeds-claim"):
        open_search(ledger, "s", filter=filter)
    assert ledger.datasets() == ()


# Validation scores.


def with_scores(ledger: Ledger, releases: int = 6, **more: object) -> None:
    open_search(ledger, "s", validation=TotalSteps(RELEASE, releases), validation_claim=(1.0, 1e-6), **more)


def test_scores_have_a_pool_of_their_own(ledger: Ledger) -> None:
    with_scores(ledger)
    ledger.reserve_together("s", "a", {"training": 6, "validation": 3})
    lease(ledger, "s", "a", 2, pool="validation")
    lease(ledger, "s", "a", 6)
    state = ledger.search_state("s")
    assert state.validation is not None
    assert (state.leased_steps, left_steps(state)) == (6, 4)
    assert (state.validation.leased_steps, state.validation.reserved_steps) == (2, 1)
    with raises_code(BudgetRefusedError, "not-reserved"):
        lease(ledger, "s", "a", 2, pool="validation")
    ledger.settle("s", "a", 6)
    state = ledger.search_state("s")
    assert state.validation is not None
    assert (state.validation.left(RELEASE), state.validation.trials["a"].outstanding) == (4, 0)
    with raises_code(LedgerError, "trial-settled"):
        lease(ledger, "s", "a", 1, pool="validation")


@pytest.mark.parametrize("asked", [{"training": 11, "validation": 1}, {"training": 1, "validation": 7}])
def test_both_pools_promise_or_neither(ledger: Ledger, asked: dict[str, int]) -> None:
    with_scores(ledger)
    before = head_of(ledger)
    with pytest.raises(BudgetRefusedError):
        ledger.reserve_together("s", "a", asked)
    assert head_of(ledger) == before
    assert head_of(Ledger.open(ledger.url)) == before
    ledger.reserve_together("s", "a", {"training": 10, "validation": 6})
    assert head_of(ledger)[0] == before[0] + 2


def test_a_trial_is_settled_in_every_pool_even_where_it_has_nothing(ledger: Ledger) -> None:
    with_scores(ledger)
    ledger.reserve("s", "steps only", 1)
    ledger.settle("s", "steps only", 0)
    with raises_code(LedgerError, "trial-settled"):
        ledger.reserve("s", "steps only", 1, pool="validation")
    ledger.reserve_together("s", "scores only", {"training": 0, "validation": 1})
    with raises_code(LedgerError, "steps-not-leased"):
        ledger.settle("s", "scores only", 1)
    ledger.settle("s", "scores only", 0)
    ledger.settle("s", "scores only", 0)
    with raises_code(LedgerError, "trial-settled"):
        ledger.reserve("s", "scores only", 1)


def test_one_score_is_enough_to_count_for_ever(ledger: Ledger) -> None:
    with_scores(ledger)
    ledger.reserve("s", "a", 1, pool="validation")
    ledger.close_search("s")
    assert ledger.dataset_state("digits").committed_epsilon == 0.0
    ledger.reopen_search("s")
    lease(ledger, "s", "a", 1, pool="validation")
    ledger.close_search("s")
    assert ledger.dataset_state("digits").committed_epsilon == 4.0


def test_the_claim_covers_both_pools(ledger: Ledger) -> None:
    scores = TotalSteps(RELEASE, 6)
    with raises_code(InputError, "validation-claim-too-large"):
        open_search(ledger, "s", validation=scores, validation_claim=(4.5, 1e-5))
    with raises_code(BudgetRefusedError, "filter-exceeds-claim"):
        open_search(ledger, "s", validation=scores, validation_claim=(0.01, 1e-6))
    for bad in (nan, inf, 0.0, -1.0):
        with raises_code(InputError, "epsilon-out-of-range"):
            open_search(ledger, "s", validation=scores, validation_claim=(bad, 1e-6))
    with raises_code(InputError, "score-sampled"):
        open_search(ledger, "s", validation=TotalSteps(CHEAP, 1))
    open_search(ledger, "s", validation=scores)
    assert ledger.search_state("s").validation_claim == (4.0, 1e-5)


def test_a_search_without_protected_scores_has_no_pool_for_them(ledger: Ledger, search: str) -> None:
    for call in (ledger.reserve, ledger.lease):
        with raises_code(LedgerError, "pool-unknown"):
            call(search, "a", 1, mechanism=RELEASE, pool="validation")


# Sealed searches.


def test_a_sealed_search_is_charged_once_and_as_a_whole(ledger: Ledger, url: str) -> None:
    open_search(ledger, "s", filter=SEALED)
    state = ledger.search_state("s")
    assert (state.charged_whole, state.begun, state.counts, left_steps(state)) == (True, False, True, 0)
    ledger.begin_sealed("s")
    with raises_code(LedgerError, "search-not-open"):
        ledger.begin_sealed("s")
    ledger.close_search("s")  # it is
    state = Ledger.open(url).search_state("s")
    assert (state.begun, state.counts, state.status) == (True, True, "closed")
    ledger.reopen_search("s")
    entries = [entry for entry, _ in ledger.entries("digits")]
    assert [entry.kind for entry in entries] == ["open_search", "begin"], "no entry marks its end"
    ledger.record_card("s", "0" * 64, "export")
    times = {entry.time for entry, _ in ledger.entries("digits")}
    assert len(times) == 1
    assert "T00:00:00.000000+" in times.pop(), "the day alone"


def test_a_sealed_search_that_never_began_counts_nothing_once_it_is_closed(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=SEALED)
    ledger.close_search("s")
    assert ledger.dataset_state("digits").committed_epsilon == 0.0
    with raises_code(LedgerError, "search-not-open"):
        ledger.begin_sealed("s")


def test_nothing_in_a_sealed_search_tells_of_its_runs(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=SEALED)
    ledger.begin_sealed("s")
    for call in (
        lambda: ledger.reserve("s", "run 1", 5),
        lambda: ledger.reserve("s", "run 1", 5, mechanism=CHEAP),
        lambda: ledger.reserve_together("s", "run 1", {"training": 5}),
        lambda: lease(ledger, "s", "run 1", 5),
    ):
        with raises_code(LedgerError, "sealed-charged-whole"):
            call()
    with raises_code(LedgerError, "trial-unknown"):
        ledger.settle("s", "run 1", 0)
    assert head_of(ledger)[0] == 2


def test_only_a_sealed_search_is_begun(ledger: Ledger, search: str) -> None:
    with raises_code(LedgerError, "search-not-open"):
        ledger.begin_sealed(search)


def test_a_sealed_search_does_not_begin_once_the_cap_was_lowered(ledger: Ledger) -> None:
    open_search(ledger, "s", filter=SEALED)
    ledger.set_cap("digits", 3.9, 1e-4)
    with pytest.raises(BudgetRefusedError):
        ledger.begin_sealed("s")
    ledger.set_cap("digits", 4.0, 1e-4)
    ledger.begin_sealed("s")


def test_both_pools_are_sealed_or_neither(ledger: Ledger) -> None:
    for filter, validation in ((SEALED, TotalSteps(RELEASE, 1)), (BOOK, Sealed(LAW, 60, ((RELEASE, 1),)))):
        with raises_code(InputError, "filters-differ"):
            open_search(ledger, "s", filter=filter, validation=validation)
    open_search(ledger, "s", filter=SEALED, validation=Sealed(LAW, 60, ((RELEASE, 1),)))
    ledger.begin_sealed("s")


# The unit of privacy.


def test_one_data_set_has_one_unit(ledger: Ledger) -> None:
    open_search(ledger, "records")
    with raises_code(BudgetRefusedError, "unit-differs"):
        open_search(ledger, "users", unit="user")
    ledger.close_search("records")
    open_search(ledger, "users", unit="user")
    with raises_code(BudgetRefusedError, "unit-differs"):
        ledger.reopen_search("records")
    assert ledger.search_state("users").unit == "user"
    with raises_code(InputError, "unit-unknown"):
        open_search(ledger, "other", unit="household")
