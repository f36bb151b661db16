"""Calibration of a search: the least noise for its planned trials, and the best Rényi order for its filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, Part
from tuner.privacy.accountant.initial_guess import (
    found_noise,
    guess_gdp,
    guess_noise,
    guess_on_coarse_grid,
    least_noise,
)
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_epsilon, require_steps
from tuner.privacy.accountant.pld import calibrate_noise, epsilon_composed
from tuner.privacy.accountant.rdp import ORDER_RANGE, ORDERS

__all__ = ["best_order", "calibrate_at_order", "calibrate_composed"]

# With less noise, a step's Rényi divergence is in the hundreds. Then no grid of privacy losses would suit all steps.
_LEAST_NOISE = 0.2


def calibrate_composed(menu: Sequence[tuple[float, int]], *, epsilon: float, delta: float) -> float:
    """Return the least noise multiplier with which the composition of all planned steps is (ε, δ)-DP.

    All steps get the same noise multiplier, rounded UP to 5 significant digits. The result is at least 0.05 if all
    steps have the same sample rate, and at least 0.2 otherwise.

    Args:
        menu: pairs (sample_rate, number of planned steps). A sample rate may occur more than once.
        epsilon: ε of the search's claim.
        delta: δ of the search's claim.

    Raises:
        BudgetRefusedError: even the noise multiplier 100 000 is too small.
        InputError: a value is out of range or NaN, or `menu` is empty.
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
    """Return the least noise multiplier at which a Rényi filter that claims (ε, δ) admits all planned steps.

    Rounding, exceptions and the other arguments are as in `calibrate_composed`. The result is at least 0.2. `order` is
    the order of the Rényi filter. If `order` is None, the order in `rdp.ORDERS` that needs the least noise is used.
    """
    totals = _totals(menu, epsilon, delta)
    cost = _FixedOrderCost(totals, delta, order)
    noise = least_noise(cost, epsilon, guess=_first_guess(totals, epsilon, delta), low=_LEAST_NOISE)
    return _found(noise, totals, epsilon, delta)


def best_order(parts: Sequence[Part], *, epsilon: float, delta: float) -> float:
    """Return the order in `rdp.ORDERS` at which the planned steps `parts` use the smallest share of the budget.

    At each order, the budget is that of a Rényi filter that claims (ε, δ). So every order gives a valid guarantee.

    Raises:
        BudgetRefusedError: (ε, δ) is too small for a filter of any order.
        InputError: a value is out of range, or `parts` is empty.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    for _, steps in parts:
        require_steps(steps, minimum=1)
    if not parts:
        raise InputError("menu-empty", "No Rényi order can be chosen without planned steps. Plan at least one step.")
    multiples = {}
    for order in ORDERS:
        filter = FixedOrder.of(order=order, epsilon=epsilon, delta=delta)
        if filter is not None:
            multiples[order] = filter.budget / sum(steps * filter.price(mechanism) for mechanism, steps in parts)
    if not multiples:
        raise BudgetRefusedError(
            "no-order-fits",
            f"ε = {epsilon!r} at δ = {delta!r} is too small for a Rényi filter of any order up to {ORDER_RANGE[1]:g}. "
            "Raise epsilon or delta.",
        )
    return max(multiples, key=lambda order: multiples[order])


class _FixedOrderCost:
    """Function from a noise multiplier to the smallest ε at which a Rényi filter admits the planned steps."""

    def __init__(self, totals: Counter[float], delta: float, order: float | None) -> None:
        self._totals, self._delta = totals, delta
        self._orders = ORDERS if order is None else (order,)
        self._place = len(self._orders) // 2

    def __call__(self, noise: float) -> float:
        # ε is nearly convex in the order. A search from the previous call's best order tries few of the 126 orders.
        place, value = self._place, self._at(self._place, noise)
        for step in (-8, 8, -1, 1):
            while 0 <= place + step < len(self._orders) and (found := self._at(place + step, noise)) < value:
                place, value = place + step, found
        self._place = place
        return value

    def _at(self, place: int, noise: float) -> float:
        order = self._orders[place]
        book = CouponBook(tuple((SampledGaussian(rate, noise), steps) for rate, steps in self._totals.items()))
        units = book.units_at(order)
        if units is None:
            return inf
        found = FixedOrder(order, units).claim(self._delta) * (1 + 1e-9)
        # The filter's budget is rounded down, so check that it still admits these units.
        filter = FixedOrder.of(order=order, epsilon=found, delta=self._delta)
        return found if filter is not None and filter.budget >= units else inf


def _totals(menu: Sequence[tuple[float, int]], epsilon: float, delta: float) -> Counter[float]:
    require_epsilon(epsilon)
    require_delta(delta)
    totals: Counter[float] = Counter()
    for rate, steps in menu:
        require_steps(steps, minimum=1)
        SampledGaussian(rate, 1.0)  # raises InputError for a sample rate out of range
        totals[float(rate)] += steps
    if not totals:
        raise InputError("menu-empty", "The noise cannot be calibrated without planned steps. Plan at least one step.")
    return totals


def _first_guess(totals: Counter[float], epsilon: float, delta: float) -> float:
    spread = sum(rate**2 * steps for rate, steps in totals.items()) ** 0.5
    return guess_noise(spread, guess_gdp(epsilon, delta))


def _found(noise: float | None, totals: Counter[float], epsilon: float, delta: float) -> float:
    steps = f"{sum(totals.values())} steps at sample rates {sorted(totals)}"
    return found_noise(noise, steps, epsilon=epsilon, delta=delta)
