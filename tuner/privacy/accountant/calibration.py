"""The noise with which what a plan expects fits the cap of a search: one multiplier for all of a menu."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, inf, isfinite

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.filters import UNITS, CouponBook, FixedOrder, TotalSteps
from tuner.privacy.accountant.initial_guess import guess_gdp, guess_noise, guess_on_coarse_grid, least_noise
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.accountant.pld import calibrate_noise, epsilon_composed
from tuner.privacy.accountant.rdp import ORDERS, divergence

__all__ = ["calibrate"]

# At less noise than this a step's divergence is in the hundreds, and its distribution on a common grid of no use.
_LEAST_NOISE = 0.2


def calibrate(
    menu: Sequence[tuple[float, int]], *, epsilon: float, delta: float, kind: str, order: float | None = None
) -> float:
    """The smallest common noise multiplier, rounded UP to 5 significant digits, with which a menu fits (ε, δ).

    Exact at the edge: what it returns fits, and one less in the fifth digit does not, unless it is the least noise
    (0.2; 0.05 for a menu of one sample rate). For a fixed order that is left open, "does not fit" is at the order
    that is best near there.

    Args:
        menu: (sample_rate, steps) of all that is planned; equal rates are added up.
        epsilon: of the search's claim.
        delta: of the search's claim.
        kind: of the allowance: total_steps (one rate), coupon_book or fixed_order.
        order: of a fixed order; None for the one, of `rdp.ORDERS`, that needs the least noise.

    Raises:
        BudgetRefusedError: no noise multiplier up to 100 000 fits.
        InputError: a value is out of range or NaN, an unknown kind, or several rates for total_steps.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    totals: Counter[float] = Counter()
    for rate, steps in menu:
        require_steps(steps, minimum=1)
        SampledGaussian(rate, 1.0)
        totals[float(rate)] += steps
    if not totals or kind not in (TotalSteps.kind, CouponBook.kind, FixedOrder.kind):
        raise InputError(f"a menu must name steps, and its kind be a known one, got {menu!r} and {kind!r}.")
    if kind == TotalSteps.kind and len(totals) > 1:
        raise InputError(f"total_steps takes one sample_rate, got {sorted(totals)}. Write coupon_book.")
    if kind != FixedOrder.kind and len(totals) == 1:
        ((rate, steps),) = totals.items()
        return calibrate_noise(sample_rate=rate, steps=steps, epsilon=epsilon, delta=delta)

    by_order = _FixedOrderCost(totals, delta, order)

    def composed(noise: float, *, coarser: int = 1) -> float:
        parts = [(SampledGaussian(rate, noise), steps) for rate, steps in totals.items()]
        return epsilon_composed(parts, delta, coarser=coarser)

    guess = guess_noise(sum(rate**2 * steps for rate, steps in totals.items()) ** 0.5, guess_gdp(epsilon, delta))
    if kind == FixedOrder.kind:
        noise = least_noise(by_order, epsilon, guess=guess, low=_LEAST_NOISE)
    else:
        guess, slope = guess_on_coarse_grid(composed, epsilon, max(guess, _LEAST_NOISE))
        noise = least_noise(composed, epsilon, guess=guess, slope=slope, low=_LEAST_NOISE)
    if noise is None:
        raise BudgetRefusedError(
            f"{sum(totals.values())} steps at sample rates {sorted(totals)} do not fit epsilon {epsilon!r} at delta "
            f"{delta!r} with any noise_multiplier up to 100000. Raise epsilon, or plan fewer trials or epochs."
        )
    return noise


class _FixedOrderCost:
    """ε of the least filter that holds the menu, as a function of the noise."""

    def __init__(self, totals: Counter[float], delta: float, order: float | None) -> None:
        self._totals, self._delta = totals, delta
        self._orders = ORDERS if order is None else (order,)
        self._place = len(self._orders) // 2

    def __call__(self, noise: float) -> float:
        # ε is nearly convex in the order; down the slope from where the last noise ended takes a few orders of 126.
        place, value = self._place, self._at(self._place, noise)
        for step in (-8, 8, -1, 1):
            while 0 <= place + step < len(self._orders) and (found := self._at(place + step, noise)) < value:
                place, value = place + step, found
        self._place = place
        return value

    def _at(self, place: int, noise: float) -> float:
        order = self._orders[place]
        prices = [(divergence(SampledGaussian(rate, noise), order), steps) for rate, steps in self._totals.items()]
        if not all(isfinite(price) for price, _ in prices):
            return inf
        units = sum(steps * ceil(price * UNITS) for price, steps in prices)
        found = FixedOrder(order, units).claim(self._delta) * (1 + 1e-9)
        # The filter of that ε must hold the units again, through the rounding of its budget.
        allowance = FixedOrder.of(order=order, epsilon=found, delta=self._delta)
        return found if allowance is not None and allowance.budget >= units else inf
