"""The common noise of a menu: exact at the edge, and the cap that it was calibrated for holds what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import nan

import pytest

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.calibration import calibrate
from tuner.privacy.accountant.filters import CouponBook, FixedOrder
from tuner.privacy.accountant.initial_guess import previous
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon, epsilon_composed
from tuner.privacy.accountant.rdp import ORDERS, best_order

MENU = [(64 / 50_000, 1500), (128 / 50_000, 1000), (512 / 50_000, 300)]
DELTA = 1e-5


def parts(menu: Sequence[tuple[float, int]], noise: float) -> tuple[tuple[SampledGaussian, int], ...]:
    return tuple((SampledGaussian(rate, noise), steps) for rate, steps in menu)


def one_less(noise: float) -> float:
    return float(previous(Decimal(f"{noise:.4e}")))


@pytest.mark.parametrize("cap", [0.3, 3.0])
def test_noise_of_a_coupon_book_is_the_smallest_of_five_digits(cap: float) -> None:
    noise = calibrate(MENU, epsilon=cap, delta=DELTA, kind="coupon_book")
    assert float(f"{noise:.4e}") == noise
    assert CouponBook(parts(MENU, noise)).claim(DELTA) <= cap
    assert CouponBook(parts(MENU, one_less(noise))).claim(DELTA) > cap


@pytest.mark.parametrize("cap", [0.1, 0.3, 3.0, 20.0])
def test_noise_of_a_fixed_order_is_the_smallest_that_some_order_holds(cap: float) -> None:
    noise = calibrate(MENU, epsilon=cap, delta=DELTA, kind="fixed_order")
    order = best_order(parts(MENU, noise), epsilon=cap, delta=DELTA)
    assert holds(order, cap, noise)
    assert not any(holds(other, cap, one_less(noise)) for other in ORDERS)


def holds(order: float, cap: float, noise: float) -> bool:
    """Whether the filter of that order admits the whole menu, one coupon after another."""
    allowance = FixedOrder.of(order=order, epsilon=cap, delta=DELTA)
    if allowance is None:
        return False
    used: dict[SampledGaussian, int] = {}
    for mechanism, steps in parts(MENU, noise):
        if allowance.left(used, mechanism) < steps:
            return False
        used[mechanism] = steps
    return True


def test_noise_of_a_given_order_is_that_orders() -> None:
    noise = calibrate(MENU, epsilon=3.0, delta=DELTA, kind="fixed_order", order=16.0)
    assert holds(16.0, 3.0, noise)
    assert not holds(16.0, 3.0, one_less(noise))
    assert noise > calibrate(MENU, epsilon=3.0, delta=DELTA, kind="fixed_order")


def test_coupons_are_the_tighter_cap_and_one_rate_is_one_composition() -> None:
    by_coupons, by_order = (calibrate(MENU, epsilon=2.0, delta=DELTA, kind=k) for k in ("coupon_book", "fixed_order"))
    assert by_coupons < by_order
    alone = [(0.01, 300), (0.01, 200)]
    wanted = calibrate_noise(sample_rate=0.01, steps=500, epsilon=2.0, delta=DELTA)
    assert calibrate(alone, epsilon=2.0, delta=DELTA, kind="total_steps") == wanted
    assert calibrate(alone, epsilon=2.0, delta=DELTA, kind="coupon_book") == wanted
    assert calibrate(alone, epsilon=2.0, delta=DELTA, kind="fixed_order") > wanted


def test_a_loose_cap_takes_the_least_noise() -> None:
    tiny = [(1e-5, 1), (2e-5, 1)]
    for kind in ("coupon_book", "fixed_order"):
        noise = calibrate(tiny, epsilon=400.0, delta=1e-4, kind=kind)
        assert noise == 0.2
    assert epsilon_composed(parts(tiny, 0.2), 1e-4) <= 400.0


@pytest.mark.parametrize("kind", ["coupon_book", "fixed_order"])
def test_says_no_where_no_noise_helps(kind: str) -> None:
    with pytest.raises(BudgetRefusedError, match="do not fit epsilon"):
        calibrate([(1.0, 1000), (0.5, 1000)], epsilon=1e-6, delta=1e-9, kind=kind)


@pytest.mark.parametrize(
    ("menu", "kind", "message"),
    [
        ([], "coupon_book", "a menu must name steps"),
        (MENU, "sealed", "its kind be a known one"),
        (MENU, "total_steps", "takes one sample_rate"),
        ([(nan, 5)], "coupon_book", "sample_rate must be"),
        ([(0.1, 0)], "coupon_book", "steps must be"),
    ],
)
def test_input_that_is_none_is_refused(menu: list[tuple[float, int]], kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(menu, epsilon=1.0, delta=DELTA, kind=kind)


def test_a_coupon_book_of_one_mechanism_claims_what_its_steps_cost() -> None:
    book = CouponBook(parts([(0.01, 500)], 1.0))
    assert book.claim(DELTA) == epsilon(SampledGaussian(0.01, 1.0), 500, DELTA)
