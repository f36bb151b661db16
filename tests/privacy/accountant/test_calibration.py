"""Calibrated noise of every filter: exact at the edge, and its cap holds what was planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from math import inf, isfinite, nan

import pytest
from errors_helper import raises_code

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.calibration import best_order, calibrate_at_order, calibrate_composed
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.initial_guess import FIVE_DIGITS, guess_on_coarse_grid, least_noise
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon_composed
from tuner.privacy.accountant.rdp import LEAST_NOISE, ORDERS
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import at_most_for, calibrate_selection

Menu = Sequence[tuple[float, int]]

DELTA = 1e-5
MENU = [(64 / 50_000, 1500), (128 / 50_000, 1000), (512 / 50_000, 300)]
GEOMETRIC = RunLaw(name="geometric", mean=20)
LAWS: list[tuple[RunLaw, Menu, float]] = [
    (GEOMETRIC, [(256 / 50_000, 2000)], 2.0),
    (RunLaw(name="logarithmic", mean=20), [(256 / 50_000, 2000), (512 / 50_000, 700)], 4.0),
    (RunLaw(name="poisson", mean=8), [(0.1, 100)], 1.0),
]


def one_run(menu: Menu, **claim: float) -> float:
    ((rate, steps),) = menu or [(nan, 1)]
    return calibrate_noise(sample_rate=rate, steps=steps, **claim)


def sealed(law: RunLaw, menu: Menu, *, epsilon: float, delta: float) -> float:
    at_most = at_most_for(law, epsilon=epsilon, delta=delta)
    return calibrate_selection(law, menu, epsilon=epsilon, delta=delta, at_most=at_most)


CALIBRATORS: list[Callable[..., float]] = [one_run, calibrate_composed, calibrate_at_order, partial(sealed, GEOMETRIC)]
NAMES = ["steps", "coupons", "order", "sealed"]


def parts(menu: Menu, noise: float) -> tuple[tuple[SampledGaussian, int], ...]:
    return tuple((SampledGaussian(rate, noise), steps) for rate, steps in menu)


def one_less(noise: float) -> float:
    return float(FIVE_DIGITS.next_minus(Decimal(f"{noise:.4e}")))


@pytest.mark.parametrize(
    ("menu", "cap"),
    [
        ([(4096 / 60_000, 146)], 0.3),
        ([(1.0, 10)], 1.0),
        ([(0.005, 1000)], 1.0),  # long tails and many steps: other terms of the grid bind
        ([(0.01, 100_000)], 0.1),
        ([(0.2, 1)], 3.0),
        (MENU, 0.3),
        (MENU, 3.0),
    ],
)
def test_noise_of_steps_and_coupons_is_the_smallest_of_five_digits(menu: Menu, cap: float) -> None:
    calibrate = one_run if len(menu) == 1 else calibrate_composed
    noise = calibrate(menu, epsilon=cap, delta=DELTA)
    assert float(f"{noise:.4e}") == noise
    assert CouponBook(parts(menu, noise)).claim(DELTA) <= cap
    assert CouponBook(parts(menu, one_less(noise))).claim(DELTA) > cap


@pytest.mark.parametrize(("law", "menu", "cap"), LAWS)
def test_noise_of_a_sealed_search_is_the_smallest_of_five_digits(law: RunLaw, menu: Menu, cap: float) -> None:
    noise, at_most = sealed(law, menu, epsilon=cap, delta=DELTA), at_most_for(law, epsilon=cap, delta=DELTA)
    assert float(f"{noise:.4e}") == noise
    assert Sealed(law, at_most, parts(menu, noise)).claim(DELTA) <= cap
    assert Sealed(law, at_most, parts(menu, one_less(noise))).claim(DELTA) > cap


@pytest.mark.parametrize("cap", [0.1, 3.0, 20.0])
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
    with raises_code(BudgetRefusedError, "no-order-fits"):
        best_order(parts(MENU, noise), epsilon=1e-3, delta=1e-9)
    with raises_code(InputError, "menu-empty"):
        best_order([], epsilon=1.0, delta=DELTA)


def test_coupons_are_the_tighter_cap_and_one_rate_is_one_composition() -> None:
    assert calibrate_composed(MENU, epsilon=2.0, delta=DELTA) < calibrate_at_order(MENU, epsilon=2.0, delta=DELTA)
    alone = [(0.01, 300), (0.01, 200)]
    wanted = calibrate_noise(sample_rate=0.01, steps=500, epsilon=2.0, delta=DELTA)
    assert calibrate_composed(alone, epsilon=2.0, delta=DELTA) == wanted
    mechanism = SampledGaussian(0.01, wanted)
    assert CouponBook(((mechanism, 500),)).claim(DELTA) == TotalSteps(mechanism, 500).claim(DELTA)


@pytest.mark.slow
def test_a_loose_cap_takes_the_least_noise() -> None:
    tiny = [(1e-5, 1), (2e-5, 1)]
    assert calibrate_composed(tiny, epsilon=400.0, delta=1e-4) == 0.2
    assert calibrate_at_order(tiny, epsilon=400.0, delta=1e-4) == LEAST_NOISE
    assert epsilon_composed(parts(tiny, 0.2), 1e-4) <= 400.0
    assert calibrate_noise(sample_rate=1e-5, steps=1, epsilon=300.0, delta=1e-4) == 0.05


@pytest.mark.parametrize("calibrate", CALIBRATORS, ids=NAMES)
def test_what_cannot_be_calibrated_is_refused(calibrate: Callable[..., float]) -> None:
    with raises_code(BudgetRefusedError, "no-noise-fits"):
        calibrate([(1.0, 1000)], epsilon=1e-7, delta=1e-9)
    with raises_code(InputError, "sample-rate-out-of-range"):
        calibrate([(nan, 5)], epsilon=1.0, delta=DELTA)
    for cap in (nan, inf, 0, -1.0):
        with raises_code(InputError, "epsilon-out-of-range"):
            calibrate([(0.1, 10)], epsilon=cap, delta=DELTA)
    if calibrate is not one_run:
        with raises_code(InputError, "menu-empty"):
            calibrate([], epsilon=1.0, delta=DELTA)
    if calibrate in CALIBRATORS[:3]:
        with raises_code(InputError, "count-out-of-range"):
            calibrate([(0.1, 0)], epsilon=1.0, delta=DELTA)


@pytest.mark.parametrize("wanted", [5e-324, 1e-300, 1e-9])
def test_an_epsilon_that_no_noise_reaches_is_refused(wanted: float) -> None:
    for delta in (1e-5, 0.5 / 1000):
        with raises_code(BudgetRefusedError, "no-noise-fits"):
            calibrate_noise(sample_rate=0.1, steps=20, epsilon=wanted, delta=delta)


# The search for the least noise.


@pytest.mark.parametrize("guess", [0.06, 1.0, 5e4])
@pytest.mark.parametrize("slope", [-0.01, -1.0, -80.0])
def test_least_noise_is_exact_wherever_it_looks_first(guess: float, slope: float) -> None:
    asked: list[float] = []

    def cost(noise: float) -> float:
        asked.append(noise)
        return inf if noise < 0.3 else 7.0 / noise**1.5

    found = least_noise(cost, 2.0, guess=guess, slope=slope)
    assert found == float(FIVE_DIGITS.create_decimal_from_float((7.0 / 2.0) ** (1 / 1.5)))
    assert found in asked
    assert float(FIVE_DIGITS.next_minus(Decimal(str(found)))) in asked
    assert len(asked) < 60


def test_least_noise_at_its_ends() -> None:
    assert least_noise(lambda noise: 1.0 / noise, 100.0, guess=3.0) == 0.05
    assert least_noise(lambda noise: 1.0 / noise, 100.0, guess=3.0, low=0.2) == 0.2
    assert least_noise(lambda noise: 1.0 + 1.0 / noise, 0.5, guess=3.0) is None


def test_a_guess_stays_a_number() -> None:
    def flat(noise: float, *, coarser: int) -> float:
        return 1.0 + noise * 1e-12 * coarser

    for wanted in (5e-324, 1e-300, 1e300):
        guess, slope = guess_on_coarse_grid(flat, wanted, 1.0)
        assert isfinite(guess)
        assert guess > 0 > slope
    assert guess_on_coarse_grid(lambda noise, *, coarser: 3 / noise + 0 * coarser, 1.5, 1.0)[0] == pytest.approx(2.0)


@pytest.mark.parametrize("start", [0.01, 1.0, 40.0])
def test_a_guess_is_near_where_the_cost_is_epsilon(start: float) -> None:
    def cost(noise: float, *, coarser: int) -> float:
        """A cost of 10 / noise², and of infinity where the grid has no answer."""
        return inf if noise < 0.02 else 10 / noise**2

    noise, slope = guess_on_coarse_grid(cost, 2.5, start)
    assert noise == pytest.approx(2.0, rel=0.05)
    assert slope == pytest.approx(-2.0, rel=0.05)
