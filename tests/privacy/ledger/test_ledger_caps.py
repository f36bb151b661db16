"""The cap of a data set: a filter over searches that are chosen one after seeing the others."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nan

import pytest
from dp_accounting.rdp import RdpAccountant
from enumeration import Discrete, reaching, realised_delta, two_outcomes
from errors_helper import raises_code
from ledgers import CHEAP, MECHANISM, RELEASE, chained, folded, open_search, opening, took

from tuner.errors import BudgetRefusedError, InputError, LedgerCorruptError
from tuner.privacy.accountant.filters import UNITS, CouponBook, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger.admission import order_filter, units_at
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetCap

ORDER = 8.0


def units(steps: int) -> int:
    found = units_at(ORDER, TotalSteps(MECHANISM, steps))
    assert found is not None
    return found


# The order, its filter, and what a search costs there.


def test_a_cap_with_an_order_admits_what_either_half_admits(ledger: Ledger) -> None:
    ledger.set_cap("digits", 6.0, 1e-4, order=ORDER)
    filter_units = order_filter(ORDER, 6.0, 1e-4)
    assert ledger.cap("digits") == DatasetCap(6.0, 1e-4, ORDER, filter_units)
    open_search(ledger, "sum", epsilon=4.0)  # (4, 1e-5) fits (6, 5e-5)
    open_search(ledger, "order", epsilon=4.0)  # 8 > 6, but twenty steps diverge little
    state = ledger.dataset_state("digits")
    assert state.committed_epsilon == 8.0
    assert state.committed.units == 2 * units(10)
    took(ledger, "order", 10)
    most = (filter_units - 2 * units(10)) // units(1)
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "greedy", epsilon=9.0, step_cap=most + 1)
    open_search(ledger, "exact", epsilon=9.0, step_cap=most)
    assert Ledger.open(ledger.url).dataset_state("digits").committed.units <= filter_units
    ledger.verify_chain()


@pytest.mark.parametrize(
    ("filter", "validation", "expected"),
    [
        (TotalSteps(MECHANISM, 7), None, lambda price: 7 * price(MECHANISM)),
        (CouponBook(((MECHANISM, 7), (CHEAP, 9))), None, lambda price: 7 * price(MECHANISM) + 9 * price(CHEAP)),
        (FixedOrder(8.0, 12345), None, lambda _: 12345),
        (FixedOrder(16.0, 12345), None, lambda _: 12345),
        (FixedOrder(7.9, 12345), None, None),
        (Sealed(RunLaw(name="geometric", mean=2.0, shape=1.0), 9, ((CHEAP, 1),)), None, None),
        (TotalSteps(CHEAP, 1), TotalSteps(RELEASE, 5), lambda price: max(price(CHEAP), 5 * price(RELEASE))),
        (TotalSteps(MECHANISM, 7), TotalSteps(RELEASE, 1), lambda price: max(7 * price(MECHANISM), price(RELEASE))),
        (TotalSteps(CHEAP, 1), FixedOrder(2.0, 1), None),
    ],
)
def test_what_a_search_diverges_by(
    filter: TotalSteps | CouponBook | FixedOrder | Sealed,
    validation: TotalSteps | FixedOrder | None,
    expected: Callable[[Callable[[object], int]], int] | None,
) -> None:
    found = units_at(ORDER, filter, validation)
    assert units_at(None, filter, validation) is None
    if expected is None:
        assert found is None
        return

    def price(mechanism: object) -> int:
        accountant = RdpAccountant([ORDER])
        accountant.compose(mechanism.event(1))  # type: ignore[attr-defined]
        return int(accountant._rdp[0] * UNITS)

    assert found is not None
    assert 0 <= found - expected(price) <= expected(price) * 1e-7 + 20  # a little above, for rounding


def test_a_search_that_counts_again_diverges_by_the_order_of_now(ledger: Ledger) -> None:
    ledger.set_cap("digits", 6.0, 1e-4, order=ORDER)
    open_search(ledger, "s")
    ledger.set_cap("digits", 7.0, 2e-4, order=ORDER)  # the rest may change
    ledger.close_search("s")
    ledger.set_cap("digits", 6.0, 1e-4, order=4.0)  # nothing counts
    ledger.reopen_search("s")
    assert ledger.search_state("s").units == units_at(4.0, TotalSteps(MECHANISM, 10))
    ledger.verify_chain()


@pytest.mark.parametrize("order", [nan, inf, 1.0, 0.5, -3.0, 1e6])
def test_an_order_must_be_one_at_which_steps_have_a_price(ledger: Ledger, order: float) -> None:
    with raises_code(InputError, "order-out-of-range"):
        ledger.set_cap("digits", 6.0, 1e-4, order=order)
    assert ledger.datasets() == ()


def test_what_is_taken_off_is_what_was_added(ledger: Ledger) -> None:
    ledger.set_cap("digits", 100.0, 1e-3, order=ORDER)
    empty = ledger.dataset_state("digits").committed
    for name in ("a", "b", "c"):
        open_search(ledger, name, epsilon=0.1 + 0.2, step_cap=1, mechanism=CHEAP)
    for name in ("b", "a", "c"):
        ledger.close_search(name)
    assert ledger.dataset_state("digits").committed == empty


# Why delta is halved: an adversary who chooses the second search after seeing the first.


EPSILON, DELTA, PURE = 20.0, 1e-5, 1e-15
FIRST = two_outcomes(0.005, 1.5)  # (1.5, 0)-DP


def bound(delta: float) -> float:
    return EPSILON - log((ORDER - 1) / ORDER) + (log(delta) + log(ORDER)) / (ORDER - 1)


def exhausting(delta: float) -> Discrete:
    """What takes the order to its bound after FIRST."""
    return reaching(ORDER, bound(delta) - FIRST.divergence(ORDER), 0.0147)


def search(name: str, epsilon: float, delta: float, done: Discrete) -> tuple[str, dict[str, object]]:
    """An entry of a search with that claim that does this; what its filter says is of no matter to the rule."""
    renyi = done.divergence(ORDER)
    units = None if renyi == inf else int(renyi * UNITS)
    return opening(TotalSteps(MECHANISM, 1), search=name, epsilon=epsilon, delta=delta, units=units)


def admitted(cap: dict[str, object], second: tuple[str, dict[str, object]]) -> bool:
    rows = [("cap", cap), search("first", 1.5, PURE, FIRST), second]
    try:
        folded(chained(rows))
    except LedgerCorruptError:
        return False
    return True


def test_either_rule_with_the_whole_of_delta_would_admit_what_breaks_the_claim() -> None:
    """After a quiet first search the sum's δ is spent at once, after a loud one the order's: both happen."""
    spend_sum, spend_order = two_outcomes(DELTA - 2 * PURE, inf), exhausting(DELTA)
    by_sum = search("second", EPSILON - 1.5, DELTA - 2 * PURE, spend_sum)
    by_order = search("second", EPSILON, DELTA, spend_order)
    # Each of the two rules by itself holds with the whole of δ, and admits one of the two and not the other.
    only_sum: dict[str, object] = {"epsilon": EPSILON, "delta": DELTA}
    only_order = {**only_sum, "order": ORDER, "units": int(bound(DELTA) * UNITS) + 10}
    assert admitted(only_sum, by_sum)
    assert not admitted(only_sum, by_order)
    assert admitted(only_order, by_order)
    assert not admitted(only_order, by_sum)
    # So "either fits" would admit both branches of the adversary, and the claim would break.
    assert realised_delta(FIRST, [spend_order, spend_sum], EPSILON) > 1.5 * DELTA
    # Ours refuses both, and what it admits instead keeps the claim.
    ours = {**only_sum, "order": ORDER, "units": order_filter(ORDER, EPSILON, DELTA)}
    assert not admitted(ours, by_sum)
    assert not admitted(ours, by_order)
    half_sum, half_order = two_outcomes(DELTA / 2 - 2 * PURE, inf), exhausting(DELTA / 2 * (1 - 1e-9))
    assert admitted(ours, search("second", EPSILON - 1.5, DELTA / 2 - 2 * PURE, half_sum))
    assert admitted(ours, search("second", EPSILON, DELTA, half_order))
    assert 0.75 * DELTA < realised_delta(FIRST, [half_order, half_sum], EPSILON) <= DELTA
