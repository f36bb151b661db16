"""Noise calibration: the least noise with which planned trials fit the cap of a search, and the best Rényi order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, inf, isfinite

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.filters import UNITS, FixedOrder, Part
from tuner.privacy.accountant.initial_guess import guess_gdp, guess_noise, guess_on_coarse_grid, least_noise
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.accountant.pld import calibrate_noise, epsilon_composed
from tuner.privacy.accountant.rdp import ORDER_RANGE, ORDERS, divergence

__all__ = ["best_order", "calibrate_at_order", "calibrate_composed"]

# With less noise the divergence of a step is in the hundreds, and its distribution on a common grid is useless.
_LEAST_NOISE = 0.2


def calibrate_composed(menu: Sequence[tuple[float, int]], *, epsilon: float, delta: float) -> float:
    """Return the least common noise multiplier with which all planned steps, composed once, fit (ε, δ).

    The noise is rounded UP to 5 significant digits. One less in the fifth digit does not fit, unless the result is the
    least noise (0.2; 0.05 for only one sample rate).

    Args:
        menu: (sample_rate, steps) of all planned steps; steps of equal rates are added up.
        epsilon: ε of the search's claim.
        delta: δ of the search's claim.

    Raises:
        BudgetRefusedError: no noise multiplier up to 100 000 fits.
        InputError: a value is out of range or NaN, or the menu is empty.
    """
    totals = _totals(menu, epsilon, delta)
    if len(totals) == 1:
        ((rate, steps),) = totals.items()
        return calibrate_noise(sample_rate=rate, steps=steps, epsilon=epsilon, delta=delta)

    def composed(noise: float, coarser: int = 1) -> float:
        parts = [(SampledGaussian(rate, noise), steps) for rate, steps in totals.items()]
        return epsilon_composed(parts, delta, coarser=coarser)

    first = max(_first_guess(totals, epsilon, delta), _LEAST_NOISE)
    guess, slope = guess_on_coarse_grid(composed, epsilon, first)
    noise = least_noise(composed, epsilon, guess=guess, slope=slope, low=_LEAST_NOISE)
    return _found(noise, totals, epsilon, delta)


def calibrate_at_order(
    menu: Sequence[tuple[float, int]], *, epsilon: float, delta: float, order: float | None = None
) -> float:
    """Return the least common noise multiplier with which all planned steps fit the Rényi filter of (ε, δ).

    Arguments, rounding and errors are those of `calibrate_composed`; the least noise is 0.2. The filter has the order
    `order`, or if that is None the order of `rdp.ORDERS` that needs the least noise.
    """
    totals = _totals(menu, epsilon, delta)
    cost = _FixedOrderCost(totals, delta, order)
    noise = least_noise(cost, epsilon, guess=_first_guess(totals, epsilon, delta), low=_LEAST_NOISE)
    return _found(noise, totals, epsilon, delta)


def best_order(parts: Sequence[Part], *, epsilon: float, delta: float) -> float:
    """Return the order in `rdp.ORDERS` at which the filter of (ε, δ) admits the most multiples of `parts`.

    Any order is sound; this one wastes least.

    Raises:
        BudgetRefusedError: no order has a filter for this (ε, δ).
        InputError: a value is out of range, or there are no parts.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    for _, steps in parts:
        require_steps(steps, minimum=1)
    if not parts:
        raise InputError("menu-empty", "The best order depends on the planned steps. Plan at least one step.")
    multiples = {}
    for order in ORDERS:
        filter = FixedOrder.of(order=order, epsilon=epsilon, delta=delta)
        if filter is not None:
            multiples[order] = filter.budget / sum(steps * filter.price(mechanism) for mechanism, steps in parts)
    if not multiples:
        raise BudgetRefusedError(
            "no-order-fits",
            f"No Rényi order up to {ORDER_RANGE[1]:g} has a filter for ε = {epsilon!r} at δ = {delta!r}. Raise epsilon "
            "or delta.",
        )
    return max(multiples, key=lambda order: multiples[order])


class _FixedOrderCost:
    """Function from the noise to ε of the smallest filter that admits the planned steps."""

    def __init__(self, totals: Counter[float], delta: float, order: float | None) -> None:
        self._totals, self._delta = totals, delta
        self._orders = ORDERS if order is None else (order,)
        self._place = len(self._orders) // 2

    def __call__(self, noise: float) -> float:
        # ε is nearly convex in the order. Starting at the best order of the last noise tries few of the 126 orders.
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
        # The filter's budget is rounded down, so check that it still holds these units.
        filter = FixedOrder.of(order=order, epsilon=found, delta=self._delta)
        return found if filter is not None and filter.budget >= units else inf


def _totals(menu: Sequence[tuple[float, int]], epsilon: float, delta: float) -> Counter[float]:
    require_epsilon(epsilon)
    require_delta(delta)
    totals: Counter[float] = Counter()
    for rate, steps in menu:
        require_steps(steps, minimum=1)
        SampledGaussian(rate, 1.0)  # refuses a sample rate out of range
        totals[float(rate)] += steps
    if not totals:
        raise InputError("menu-empty", "Noise is calibrated for the planned steps. Plan at least one step.")
    return totals


def _first_guess(totals: Counter[float], epsilon: float, delta: float) -> float:
    spread = sum(rate**2 * steps for rate, steps in totals.items()) ** 0.5
    return guess_noise(spread, guess_gdp(epsilon, delta))


def _found(noise: float | None, totals: Counter[float], epsilon: float, delta: float) -> float:
    if noise is None:
        raise BudgetRefusedError(
            "no-noise-fits",
            f"{sum(totals.values())} steps at sample rates {sorted(totals)} do not fit ε = {epsilon!r} at "
            f"δ = {delta!r} with any noise multiplier up to 100000. Raise epsilon, or plan fewer trials or epochs.",
        )
    return noise
