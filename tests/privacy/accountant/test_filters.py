"""Why a filter has ONE order, fixed beforehand: the counter-example of adaptive orders is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from enumeration import Discrete, DiscreteOrder, reaching, realised_delta, two_outcomes, worst_adaptive
from hypothesis import given
from hypothesis import strategies as st

from tuner.privacy.accountant.filters import UNITS, FixedOrder, TotalSteps, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.rdp import divergence

GRID, EPSILON, DELTA = (2.0, 8.0), 20.0, 1e-5
STEP = SampledGaussian(0.05, 2.0)


def filter_at(order: float) -> DiscreteOrder:
    """The product's filter; what a step costs is that of the discrete mechanisms."""
    found = DiscreteOrder.of(order=order, epsilon=EPSILON, delta=DELTA)
    assert isinstance(found, DiscreteOrder)
    return found


def after_first(order: float, p: float) -> Discrete:
    """What takes the order, after FIRST, exactly to its bound."""
    filter = filter_at(order)
    return reaching(order, (filter.budget - filter.price(FIRST)) / 1e15 * (1 - 1e-10), p)


FIRST = two_outcomes(0.005, 1.5)
AFTER_QUIET, AFTER_LOUD = after_first(2.0, 1.99e-5), after_first(8.0, 0.0151)
BRANCHES = (AFTER_LOUD, AFTER_QUIET)


def any_order_fits(used: dict[Discrete, int], mechanism: Discrete) -> bool:
    """The filter that is NOT valid: some order of the grid is still within its bound."""
    return any(filter_at(order).left(used, mechanism) >= 1 for order in GRID)  # type: ignore[arg-type]


def test_each_branch_ends_with_one_order_exactly_at_its_bound() -> None:
    for order, second in zip(GRID, (AFTER_QUIET, AFTER_LOUD), strict=True):
        filter = filter_at(order)
        spent = filter.price(FIRST) + filter.price(second)
        assert filter.budget * (1 - 1e-9) < spent <= filter.budget


def test_any_order_fits_accepts_what_breaks_the_claim() -> None:
    assert any_order_fits({}, FIRST)
    assert all(any_order_fits({FIRST: 1}, second) for second in BRANCHES)
    realised = realised_delta(FIRST, BRANCHES, EPSILON)
    assert 1.9 * DELTA < realised == pytest.approx(1.97e-5, rel=2e-3)  # as docs/guarantees.md says


@pytest.mark.parametrize("order", GRID)
def test_an_order_fixed_beforehand_refuses_one_branch_and_what_is_left_holds(order: float) -> None:
    filter = filter_at(order)
    admitted = [second if filter.left({FIRST: 1}, second) >= 1 else None for second in BRANCHES]  # type: ignore[dict-item, arg-type]
    assert admitted.count(None) == 1
    assert realised_delta(FIRST, admitted, EPSILON) <= DELTA


@pytest.mark.parametrize("order", GRID)
def test_no_adversary_of_three_rounds_passes_an_order_fixed_beforehand(order: float) -> None:
    menu, filter = (FIRST, AFTER_QUIET, AFTER_LOUD), filter_at(order)

    def admits(used: tuple[int, ...], index: int) -> bool:
        return filter.left(dict(zip(menu, used, strict=True)), menu[index]) >= 1  # type: ignore[arg-type]

    def some_admit(used: tuple[int, ...], index: int) -> bool:
        return any_order_fits(dict(zip(menu, used, strict=True)), menu[index])

    assert worst_adaptive(menu, admits, EPSILON, depth=3) <= DELTA
    assert worst_adaptive(menu, some_admit, EPSILON, depth=3) > 1.9 * DELTA


def test_the_filter_of_steps_counts_units_that_have_no_rounding() -> None:
    filter = FixedOrder.of(order=8.0, epsilon=2.0, delta=DELTA)
    assert filter is not None
    other = SampledGaussian(0.01, 1.3)
    most = filter.left({STEP: 10}, other)
    assert filter.units({STEP: 10, other: most}) <= filter.budget
    assert filter.units({STEP: 10, other: most + 1}) > filter.budget
    assert filter.left({STEP: 10, other: most}, other) == 0
    assert filter.left({STEP: 10**9}, other) == 0


@pytest.mark.parametrize("order", [1.5, 8.0, 60.0])
@pytest.mark.parametrize("mechanism", [STEP, SampledGaussian(0.01, 1.3), SampledGaussian(1e-6, 50.0)])
def test_a_price_is_the_divergence_rounded_up_to_a_whole_unit(mechanism: SampledGaussian, order: float) -> None:
    exact = Fraction(divergence(mechanism, order)) * UNITS
    for price in (FixedOrder(order, 10**15).price(mechanism), TotalSteps(mechanism, 1).units_at(order)):
        assert price is not None
        assert exact <= price < exact + 1


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


@pytest.mark.parametrize(("order", "epsilon"), [(2.0, 0.5), (1.05, 10.0)])
def test_a_filter_that_admits_nothing_is_none(order: float, epsilon: float) -> None:
    assert FixedOrder.of(order=order, epsilon=epsilon, delta=DELTA) is None
