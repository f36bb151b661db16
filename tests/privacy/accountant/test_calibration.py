"""The common noise of a menu: exact at the edge, and the cap that it was calibrated for holds what was planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import nan

import pytest
from errors_helper import raises_code

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.calibration import best_order, calibrate_at_order, calibrate_composed
from tuner.privacy.accountant.filters import CouponBook, FixedOrder
from tuner.privacy.accountant.initial_guess import previous
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon, epsilon_composed
from tuner.privacy.accountant.rdp import ORDERS

Calibrate = Callable[..., float]

MENU = [(64 / 50_000, 1500), (128 / 50_000, 1000), (512 / 50_000, 300)]
DELTA = 1e-5


def parts(menu: Sequence[tuple[float, int]], noise: float) -> tuple[tuple[SampledGaussian, int], ...]:
    return tuple((SampledGaussian(rate, noise), steps) for rate, steps in menu)


def one_less(noise: float) -> float:
    return float(previous(Decimal(f"{noise:.4e}")))


@pytest.mark.parametrize("cap", [0.3, 3.0])
def test_noise_of_a_coupon_book_is_the_smallest_of_five_digits(cap: float) -> None:
    noise = calibrate_composed(MENU, epsilon=cap, delta=DELTA)
    assert float(f"{noise:.4e}") == noise
    assert CouponBook(parts(MENU, noise)).claim(DELTA) <= cap
    assert CouponBook(parts(MENU, one_less(noise))).claim(DELTA) > cap


@pytest.mark.parametrize("cap", [0.1, 0.3, 3.0, 20.0])
def test_noise_of_a_fixed_order_is_the_smallest_that_some_order_holds(cap: float) -> None:
    noise = calibrate_at_order(MENU, epsilon=cap, delta=DELTA)
    order = best_order(parts(MENU, noise), epsilon=cap, delta=DELTA)
    assert holds(order, cap, noise)
    assert not any(holds(other, cap, one_less(noise)) for other in ORDERS)


def holds(order: float, cap: float, noise: float) -> bool:
    """Whether the filter of that order admits the whole menu, one coupon after another."""
    filter = FixedOrder.of(order=order, epsilon=cap, delta=DELTA)
    if filter is None:
        return False
    used: dict[SampledGaussian, int] = {}
    for mechanism, steps in parts(MENU, noise):
        if filter.left(used, mechanism) < steps:
            return False
        used[mechanism] = steps
    return True


def test_noise_of_a_given_order_is_that_orders() -> None:
    noise = calibrate_at_order(MENU, epsilon=3.0, delta=DELTA, order=16.0)
    assert holds(16.0, 3.0, noise)
    assert not holds(16.0, 3.0, one_less(noise))
    assert noise > calibrate_at_order(MENU, epsilon=3.0, delta=DELTA)


def test_coupons_are_the_tighter_cap_and_one_rate_is_one_composition() -> None:
    by_coupons = calibrate_composed(MENU, epsilon=2.0, delta=DELTA)
    by_order = calibrate_at_order(MENU, epsilon=2.0, delta=DELTA)
    assert by_coupons < by_order
    alone = [(0.01, 300), (0.01, 200)]
    wanted = calibrate_noise(sample_rate=0.01, steps=500, epsilon=2.0, delta=DELTA)
    assert calibrate_composed(alone, epsilon=2.0, delta=DELTA) == wanted
    assert calibrate_at_order(alone, epsilon=2.0, delta=DELTA) > wanted


def test_a_loose_cap_takes_the_least_noise() -> None:
    tiny = [(1e-5, 1), (2e-5, 1)]
    for calibrate in (calibrate_composed, calibrate_at_order):
        noise = calibrate(tiny, epsilon=400.0, delta=1e-4)
        assert noise == 0.2
    assert epsilon_composed(parts(tiny, 0.2), 1e-4) <= 400.0


@pytest.mark.parametrize("calibrate", [calibrate_composed, calibrate_at_order])
def test_says_no_where_no_noise_helps(calibrate: Calibrate) -> None:
    with raises_code(BudgetRefusedError, "no-noise-fits"):
        calibrate([(1.0, 1000), (0.5, 1000)], epsilon=1e-6, delta=1e-9)


@pytest.mark.parametrize("calibrate", [calibrate_composed, calibrate_at_order])
@pytest.mark.parametrize(
    ("menu", "code"),
    [
        ([], "menu-empty"),
        ([(nan, 5)], "sample-rate-out-of-range"),
        ([(0.1, 0)], "count-out-of-range"),
    ],
)
def test_input_that_is_none_is_refused(calibrate: Calibrate, menu: list[tuple[float, int]], code: str) -> None:
    with raises_code(InputError, code):
        calibrate(menu, epsilon=1.0, delta=DELTA)


def test_a_coupon_book_of_one_mechanism_claims_what_its_steps_cost() -> None:
    book = CouponBook(parts([(0.01, 500)], 1.0))
    assert book.claim(DELTA) == epsilon(SampledGaussian(0.01, 1.0), 500, DELTA)
