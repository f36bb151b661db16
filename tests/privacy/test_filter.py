"""Why the cap is on total steps of ONE mechanism: the adaptive-order counter-example finds no door here."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from math import exp, log

import pytest

from tuner.errors import BudgetRefusedError, LedgerError
from tuner.privacy.budget import LedgerCharge, SearchBudget
from tuner.privacy.events import SampledGaussian
from tuner.privacy.ledger import Ledger

ORDERS, EPSILON, DELTA = (2.0, 8.0), 20.0, 1e-5


@dataclass(frozen=True)
class TwoOutcomes:
    """One outcome of probability `p` under D and loss `loss`; the other has the rest under both neighbours."""

    p: float
    loss: float

    def outcomes(self) -> list[tuple[float, float]]:
        """(probability under D, under D') of the loud outcome and of the quiet one."""
        loud = self.p * exp(-self.loss)
        return [(self.p, loud), (1 - self.p, 1 - loud)]

    def rdp(self, order: float) -> float:
        """Rényi divergence, the larger of the two directions."""
        both = [self.outcomes(), [(q, p) for p, q in self.outcomes()]]
        return max(log(sum(p * (p / q) ** (order - 1) for p, q in pairs)) / (order - 1) for pairs in both)


def bound(order: float) -> float:
    """The budget of one order, privacy.md §3: what it may spend for (EPSILON, DELTA)."""
    return EPSILON - log((order - 1) / order) + (log(DELTA) + log(order)) / (order - 1)


def exhausting(order: float, spent: float, p: float) -> TwoOutcomes:
    """The two-outcome mechanism of that probability which takes the order exactly to its bound."""
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if spent + TwoOutcomes(p, middle).rdp(order) <= bound(order) else (low, middle)
    return TwoOutcomes(p, low)


FIRST = TwoOutcomes(0.005, 1.5)
AFTER_QUIET = exhausting(2.0, FIRST.rdp(2.0), 1.99e-5)
AFTER_LOUD = exhausting(8.0, FIRST.rdp(8.0), 0.0151)
BRANCHES = {"loud": AFTER_LOUD, "quiet": AFTER_QUIET}


def realised_delta(branches: dict[str, TwoOutcomes]) -> float:
    """δ at EPSILON of the whole adaptive game, by adding up its four outcomes."""
    return sum(
        max(0.0, p1 * p2 - exp(EPSILON) * q1 * q2)
        for name, (p1, q1) in zip(("loud", "quiet"), FIRST.outcomes(), strict=True)
        for p2, q2 in branches[name].outcomes()
    )


def any_order_fits(*mechanisms: TwoOutcomes) -> bool:
    """The filter that is NOT valid: some order of the grid is still within its bound."""
    return any(sum(mechanism.rdp(order) for mechanism in mechanisms) <= bound(order) for order in ORDERS)


def test_each_branch_ends_with_one_order_exactly_at_its_bound() -> None:
    assert FIRST.rdp(2.0) + AFTER_QUIET.rdp(2.0) == pytest.approx(bound(2.0), rel=1e-9)
    assert FIRST.rdp(8.0) + AFTER_LOUD.rdp(8.0) == pytest.approx(bound(8.0), rel=1e-9)


def test_any_order_fits_accepts_what_breaks_the_claim() -> None:
    assert any_order_fits(FIRST)
    assert all(any_order_fits(FIRST, second) for second in BRANCHES.values())
    assert realised_delta(BRANCHES) == pytest.approx(1.97e-5, rel=2e-3)  # the number of privacy.md §3
    assert realised_delta(BRANCHES) > 1.9 * DELTA


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_fixed_beforehand_refuses_one_branch_and_what_is_left_holds(order: float) -> None:
    nothing = TwoOutcomes(0.5, 0.0)
    admitted = {
        name: second if FIRST.rdp(order) + second.rdp(order) <= bound(order) else nothing
        for name, second in BRANCHES.items()
    }
    assert list(admitted.values()).count(nothing) == 1
    assert realised_delta(admitted) <= DELTA


def test_no_call_after_opening_takes_a_mechanism() -> None:
    # The ledger prices steps, and every step of a search is the one mechanism it was opened with.
    calls = (Ledger.reserve, Ledger.lease, SearchBudget.reserve, SearchBudget.charge_for, LedgerCharge.lease)
    for call in calls:
        assert set(inspect.signature(call).parameters) <= {"self", "search", "trial", "steps"}, call


def test_a_search_cannot_be_given_a_second_mechanism(ledger: Ledger, search: str) -> None:
    ledger.reserve(search, "a", 10)
    with pytest.raises(TypeError):
        ledger.reserve(search, "b", 10, mechanism=SampledGaussian(0.05, 0.5))  # type: ignore[call-arg]
    for name in ("digits", "other"):
        with pytest.raises(LedgerError, match="name of its own"):
            ledger.open_search(
                name, search, mechanism=SampledGaussian(0.05, 0.5), epsilon=200.0, delta=1e-5, step_cap=1
            )
    ledger.close_search(search)
    ledger.reopen_search(search)
    assert ledger.search_state(search).mechanism == SampledGaussian(0.05, 2.0)


def test_what_was_seen_changes_nothing_about_how_many_steps_fit(ledger: Ledger, search: str) -> None:
    # Whatever an adversary makes depend on outcomes (who runs, how long, in which order), the total is the total.
    for trial, steps in (("a", 400), ("b", 100), ("c", 499)):
        ledger.reserve(search, trial, steps)
        ledger.lease(search, trial, steps // 2)
        ledger.settle(search, trial, steps // 2)
    left = ledger.search_state(search).left_steps
    assert left == 1000 - 200 - 50 - 249
    with pytest.raises(BudgetRefusedError):
        ledger.reserve(search, "d", left + 1)


def test_a_second_mechanism_is_a_second_search_and_pays_its_own_cap_in_full(ledger: Ledger, search: str) -> None:
    ledger.set_cap("digits", 4.0, 1e-5)  # all of it is the first search's
    with pytest.raises(BudgetRefusedError, match="must fit its cap"):
        ledger.open_search(
            "digits", "second", mechanism=SampledGaussian(0.05, 9.0), epsilon=0.5, delta=1e-6, step_cap=1
        )
