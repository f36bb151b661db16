"""The cap of a data set: a filter over searches that are chosen one after seeing the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log, nan

import pytest
from errors_helper import raises_code
from ledgers import CHEAP, MECHANISM, RELEASE, chained, folded, lease, open_search

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
    ledger.reserve("order", "a", 10)
    lease(ledger, "order", "a", 10)
    most = (filter_units - 2 * units(10)) // divergence_units()
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "greedy", epsilon=9.0, step_cap=most + 1)
    open_search(ledger, "exact", epsilon=9.0, step_cap=most)
    assert Ledger.open(ledger.url).dataset_state("digits").committed.units <= filter_units
    ledger.verify_chain()


def divergence_units() -> int:
    return units(1)


def test_without_an_order_only_the_sum_admits(ledger: Ledger) -> None:
    ledger.set_cap("digits", 6.0, 1e-4)
    open_search(ledger, "sum")
    with raises_code(BudgetRefusedError, "dataset-cap-exceeded"):
        open_search(ledger, "order")


def test_with_an_order_the_sum_has_half_of_delta(ledger: Ledger) -> None:
    # An order at which nothing is ever admitted leaves the sum rule alone, with its half.
    ledger.set_cap("digits", 1.0, 2e-5, order=1.05)
    assert ledger.cap("digits") == DatasetCap(1.0, 2e-5, 1.05, None)
    open_search(ledger, "half", epsilon=0.1, mechanism=CHEAP, step_cap=1)
    with pytest.raises(BudgetRefusedError):
        open_search(ledger, "more", epsilon=0.1, delta=1e-12, mechanism=CHEAP, step_cap=1)
    ledger.set_cap("other", 1.0, 2e-5)  # the control: undivided
    open_search(ledger, "third", epsilon=0.1, dataset="other", mechanism=CHEAP, step_cap=1)
    open_search(ledger, "fourth", epsilon=0.1, dataset="other", mechanism=CHEAP, step_cap=1)


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
    import dp_accounting

    found = units_at(ORDER, filter, validation)
    assert units_at(None, filter, validation) is None
    if expected is None:
        assert found is None
        return

    def price(mechanism: object) -> int:
        accountant = dp_accounting.rdp.RdpAccountant([ORDER])
        accountant.compose(mechanism.event(1))  # type: ignore[attr-defined]
        return int(accountant._rdp[0] * UNITS)

    assert found is not None
    assert 0 <= found - expected(price) <= expected(price) * 1e-7 + 20  # a little above, for rounding


def test_who_diverges_without_bound_fits_by_the_sum_or_not_at_all(ledger: Ledger) -> None:
    ledger.set_cap("digits", 7.5, 1e-4, order=ORDER)
    open_search(ledger, "low order", filter=FixedOrder(4.0, UNITS // 10), epsilon=3.5)
    open_search(ledger, "sum", epsilon=4.0)
    with pytest.raises(BudgetRefusedError):  # beside one without bound no order helps
        open_search(ledger, "tiny", epsilon=0.1, mechanism=CHEAP, step_cap=1)
    ledger.close_search("low order")
    open_search(ledger, "third", epsilon=4.0)


def test_the_order_is_fixed_while_a_search_counts(ledger: Ledger) -> None:
    ledger.set_cap("digits", 6.0, 1e-4)
    ledger.set_cap("digits", 6.0, 1e-4, order=4.0)
    ledger.set_cap("digits", 6.0, 1e-4, order=ORDER)
    open_search(ledger, "s")
    for order in (None, 4.0):
        with raises_code(BudgetRefusedError, "cap-order-fixed"):
            ledger.set_cap("digits", 6.0, 1e-4, order=order)
    ledger.set_cap("digits", 7.0, 2e-4, order=ORDER)  # the rest may change
    ledger.reserve("s", "a", 1)
    ledger.close_search("s")
    ledger.set_cap("digits", 6.0, 1e-4, order=4.0)  # nothing counts
    ledger.reopen_search("s")
    assert ledger.search_state("s").units == units_at(4.0, TotalSteps(MECHANISM, 10))
    lease(ledger, "s", "a", 1)
    ledger.close_search("s")
    with pytest.raises(BudgetRefusedError):
        ledger.set_cap("digits", 6.0, 1e-4)
    assert [state.cap.order for entry, state in ledger.entries("digits") if entry.kind == "cap"] == [
        None,
        4.0,
        ORDER,
        ORDER,
        4.0,
    ]
    ledger.verify_chain()


@pytest.mark.parametrize("order", [nan, inf, 1.0, 0.5, -3.0, 1e6])
def test_an_order_must_be_one_at_which_steps_have_a_price(ledger: Ledger, order: float) -> None:
    with raises_code(InputError, "order-out-of-range"):
        ledger.set_cap("digits", 6.0, 1e-4, order=order)
    assert ledger.datasets() == ()


def test_a_lower_cap_with_an_order_starts_nothing_more(ledger: Ledger) -> None:
    ledger.set_cap("digits", 6.0, 1e-4, order=ORDER)
    open_search(ledger, "s")
    ledger.reserve("s", "a", 5)
    ledger.set_cap("digits", 0.5, 1e-4, order=ORDER)
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("s", "a", 1)
    lease(ledger, "s", "a", 5)


def test_what_is_taken_off_is_what_was_added(ledger: Ledger) -> None:
    ledger.set_cap("digits", 100.0, 1e-3, order=ORDER)
    empty = ledger.dataset_state("digits").committed
    for name in ("a", "b", "c"):
        open_search(ledger, name, epsilon=0.1 + 0.2, step_cap=1, mechanism=CHEAP)
    for name in ("b", "a", "c"):
        ledger.close_search(name)
    assert ledger.dataset_state("digits").committed == empty


# Why delta is halved: an adversary who chooses the second search after seeing the first.


@dataclass(frozen=True)
class Loud:
    """One outcome of probability `p` under D and loss `loss` (infinite: never under D'), and the rest."""

    p: float
    loss: float

    def outcomes(self) -> list[tuple[float, float]]:
        return [(self.p, self.p * exp(-self.loss)), (1 - self.p, 1 - self.p * exp(-self.loss))]

    def renyi(self) -> float:
        if self.loss == inf:
            return inf
        both = [self.outcomes(), [(q, p) for p, q in self.outcomes()]]
        return max(log(sum(p * (p / q) ** (ORDER - 1) for p, q in pairs)) / (ORDER - 1) for pairs in both)


EPSILON, DELTA, PURE = 20.0, 1e-5, 1e-15
FIRST = Loud(0.005, 1.5)  # (1.5, 0)-DP


def bound(delta: float) -> float:
    return EPSILON - log((ORDER - 1) / ORDER) + (log(delta) + log(ORDER)) / (ORDER - 1)


def exhausting(delta: float) -> Loud:
    """What takes the order to its bound after FIRST."""
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        fits = FIRST.renyi() + Loud(0.0147, middle).renyi() <= bound(delta)
        low, high = (middle, high) if fits else (low, middle)
    return Loud(0.0147, low)


def realised_delta(after_loud: Loud, after_quiet: Loud) -> float:
    """δ at EPSILON of the whole game, by adding up its four outcomes."""
    return sum(
        max(0.0, p1 * p2 - exp(EPSILON) * q1 * q2)
        for (p1, q1), second in zip(FIRST.outcomes(), (after_loud, after_quiet), strict=True)
        for p2, q2 in second.outcomes()
    )


def search(name: str, epsilon: float, delta: float, renyi: float) -> tuple[str, dict[str, object]]:
    """An entry of a search with that claim and that divergence; what it trains is of no matter to the rule."""
    return "open_search", {
        "search": name, "filter": TotalSteps(MECHANISM, 1).body(), "unit": "record", "user": "ada", "details": {},
        "validation": None,
        "fingerprint": None, "epsilon": epsilon, "delta": delta, "units": None if renyi == inf else int(renyi * UNITS),
    }  # fmt: skip


def admitted(cap: dict[str, object], second: tuple[str, dict[str, object]]) -> bool:
    rows = [("cap", cap), search("first", FIRST.loss, PURE, FIRST.renyi()), second]
    try:
        folded(chained(rows))
    except LedgerCorruptError:
        return False
    return True


def test_either_rule_with_the_whole_of_delta_would_admit_what_breaks_the_claim() -> None:
    """After a quiet first search the sum's δ is spent at once, after a loud one the order's: both happen."""
    spend_sum, spend_order = Loud(DELTA - 2 * PURE, inf), exhausting(DELTA)
    by_sum = search("second", EPSILON - FIRST.loss, DELTA - 2 * PURE, inf)
    by_order = search("second", EPSILON, DELTA, spend_order.renyi())
    # Each of the two rules by itself holds with the whole of δ, and admits one of the two and not the other.
    only_sum: dict[str, object] = {"epsilon": EPSILON, "delta": DELTA}
    only_order: dict[str, object] = {
        "epsilon": EPSILON, "delta": DELTA, "order": ORDER, "units": int(bound(DELTA) * UNITS) + 10,
    }  # fmt: skip
    assert admitted(only_sum, by_sum)
    assert not admitted(only_sum, by_order)
    assert admitted(only_order, by_order)
    assert not admitted(only_order, by_sum)
    # So "either fits" would admit both branches of the adversary, and the claim would break.
    assert realised_delta(spend_order, spend_sum) > 1.5 * DELTA
    # Ours refuses both, and what it admits instead keeps the claim.
    ours: dict[str, object] = {
        "epsilon": EPSILON, "delta": DELTA, "order": ORDER, "units": order_filter(ORDER, EPSILON, DELTA),
    }  # fmt: skip
    assert not admitted(ours, by_sum)
    assert not admitted(ours, by_order)
    half_sum, half_order = Loud(DELTA / 2 - 2 * PURE, inf), exhausting(DELTA / 2 * (1 - 1e-9))
    assert admitted(ours, search("second", EPSILON - FIRST.loss, DELTA / 2 - 2 * PURE, inf))
    assert admitted(ours, search("second", EPSILON, DELTA, half_order.renyi()))
    assert 0.75 * DELTA < realised_delta(half_order, half_sum) <= DELTA
