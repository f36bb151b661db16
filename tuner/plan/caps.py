"""Pure: the cap of a composition search. Which filters its space allows, what each holds, and the tightest of them.

With ``noise_multiplier: auto`` the noise is the smallest with which the planned trials fit the filter, whatever they
choose; otherwise the filter is the largest that fits ε, whatever was planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, floor, inf, isfinite, log
from typing import Any

from tuner.errors import BudgetRefusedError
from tuner.plan.shapes import Choice, Choices
from tuner.privacy.accountant.filters import UNITS, Allowance, CouponBook, FixedOrder, TotalSteps
from tuner.privacy.accountant.initial_guess import guess_gdp
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import MAX_STEPS, calibrate_noise, epsilon, max_steps

__all__ = ["Cap", "compose", "epsilon_of_planned", "trials_within"]

_MENU = 16
"""Up to so many mechanisms a coupon book is looked at where the file does not ask for one: composing more is slow."""

_WHY = {
    "total_steps": "one sample rate and one noise multiplier for all trials: their steps are composed once",
    "coupon_book": "a menu of sample rates and noise multipliers: each has a quota of steps, all composed once",
    "fixed_order": "a Rényi budget at one order, fixed now: trials may choose anything that still fits",
}


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A filter with what it holds.

    Attributes:
        allowance: the filter.
        choices: what trials choose from, with the noise that was found.
        reason: why it is this one.
        alternatives: the filters that were looked at, this one too: cap, noise_multiplier (None where it is searched),
            trials (that fit, the least) and epsilon (of the planned trials).
    """

    allowance: Allowance
    choices: Choices
    reason: str
    alternatives: tuple[dict[str, Any], ...] = ()


def compose(
    choices: Choices, *, trials: int, epsilon: float, delta: float, cap: str = "auto", order: float | str = "auto"
) -> Cap:
    """The tightest filter that the space allows, or the one that the file asks for.

    Args:
        choices: what trials choose from.
        trials: planned.
        epsilon: of the whole search.
        delta: of the whole search.
        cap: auto, or the filter to take.
        order: auto, or that of the ``fixed_order`` filter.

    Raises:
        BudgetRefusedError: not one trial fits.
    """
    kinds = _kinds(choices, cap, trials)
    found = {kind: _filter(kind, choices, trials, epsilon, delta, order) for kind in kinds}
    best = min(found, key=lambda kind: _looseness(*found[kind]))
    allowance, chosen = found[best]
    rows = tuple(
        {
            "cap": kind,
            "noise_multiplier": filled.noise,
            "trials": trials_within(held, filled, trials)[0],
            "epsilon": epsilon_of_planned(held, filled, trials, delta),
        }
        for kind, (held, filled) in found.items()
    )
    reason = _WHY[best] + (
        "" if len(found) == 1 else f"; tighter here than {' and '.join(kind for kind in found if kind != best)}"
    )
    return Cap(allowance=allowance, choices=chosen, reason=reason, alternatives=rows)


def trials_within(allowance: Allowance, choices: Choices, trials: int) -> tuple[int, int]:
    """How many trials fit when none is pruned: the least and the most, whatever they choose; at most `trials`.

    A configuration that no longer fits is drawn again, so a coupon book counts all of its quotas.
    """
    match allowance:
        case CouponBook(quotas=quotas):
            menu = {choice.mechanism: choice for choice in choices.menu}
            least = sum(steps // menu[mechanism].longest for mechanism, steps in quotas)
            most = sum(steps // menu[mechanism].shortest for mechanism, steps in quotas)
        case FixedOrder():
            least = min(allowance.left({}, choice.mechanism) // choice.longest for choice in choices.menu)
            most = max(allowance.left({}, choice.mechanism) // choice.shortest for choice in choices.menu)
        case TotalSteps(step_cap=steps):
            least = steps // max(choice.longest for choice in choices.menu)
            most = steps // min(choice.shortest for choice in choices.menu)
        case _:  # a sealed search makes as many runs as its law says
            least = most = trials
    return min(trials, least), min(trials, most)


def epsilon_of_planned(allowance: Allowance, choices: Choices, trials: int, delta: float) -> float:
    """ε of the planned trials, none of them pruned: of the filter that would just hold them."""
    from tuner.privacy.accountant.rdp import epsilon_of_divergence

    match allowance:
        case FixedOrder(order=order):
            units = max(trials * choice.longest * allowance.price(choice.mechanism) for choice in choices.menu)
            return epsilon_of_divergence(order, units / UNITS, delta)
        case CouponBook():
            return _book(choices, trials, 1.0).claim(delta)
        case TotalSteps(mechanism=mechanism):
            return epsilon(mechanism, trials * max(choice.longest for choice in choices.menu), delta)
        case _:
            return allowance.claim(delta)


def _kinds(choices: Choices, cap: str, trials: int) -> tuple[str, ...]:
    if cap != "auto":
        return (cap,)
    if choices.one_mechanism:
        return ("total_steps",)
    coupons = sum(_share(choices, trials) * choice.longest for choice in choices.menu)
    small = choices.finite and len(choices.menu) <= _MENU and coupons <= MAX_STEPS
    return ("coupon_book", "fixed_order") if small else ("fixed_order",)


def _looseness(allowance: Allowance, choices: Choices) -> tuple[float, float]:
    """What is least for the tighter filter: the noise that it needs, or minus the trials that it holds."""
    held = trials_within(allowance, choices, 10**9)[0]
    return (choices.noise or 0.0), -float(held)


def _filter(
    kind: str, choices: Choices, trials: int, target: float, delta: float, order: float | str
) -> tuple[Allowance, Choices]:
    make = {"total_steps": _total_steps, "coupon_book": _coupon_book}
    if kind in make:
        return make[kind](choices, trials, target, delta)
    return _fixed_order(choices, trials, target, delta, None if isinstance(order, str) else float(order))


def _total_steps(choices: Choices, trials: int, target: float, delta: float) -> tuple[Allowance, Choices]:
    (rate,) = {choice.sample_rate for choice in choices.menu}
    longest, shortest = (max(each.longest for each in choices.menu), min(each.shortest for each in choices.menu))
    if choices.calibrates:
        steps = trials * longest
        choices = choices.with_noise(calibrate_noise(sample_rate=rate, steps=steps, epsilon=target, delta=delta))
        return TotalSteps(choices.menu[0].mechanism, steps), choices
    mechanism = choices.menu[0].mechanism
    steps = max_steps(mechanism, epsilon=target, delta=delta)
    if steps < shortest:
        raise _not_one(mechanism, shortest, target, delta)
    return TotalSteps(mechanism, steps), choices


def _coupon_book(choices: Choices, trials: int, target: float, delta: float) -> tuple[Allowance, Choices]:
    if choices.calibrates:
        from tuner.privacy.accountant.calibration import calibrate

        menu = [(choice.sample_rate, _share(choices, trials) * choice.longest) for choice in choices.menu]
        choices = choices.with_noise(calibrate(menu, epsilon=target, delta=delta, kind="coupon_book"))
        return _book(choices, trials, 1.0), choices
    return _largest_book(choices, trials, target, delta), choices


def _share(choices: Choices, trials: int) -> int:
    """Trials that each entry of the menu is planned for."""
    return ceil(trials / len(choices.menu))


def _book(choices: Choices, trials: int, scale: float) -> CouponBook:
    quotas = {
        choice.mechanism: floor(scale * _share(choices, trials) * choice.longest * (1 + 1e-12))
        for choice in choices.menu
    }
    return CouponBook(tuple((mechanism, max(steps, 1)) for mechanism, steps in quotas.items()))


def _largest_book(choices: Choices, trials: int, target: float, delta: float) -> CouponBook:
    """The planned quotas, all scaled by the largest factor (to a thousandth) with which they fit."""
    planned = sum(_share(choices, trials) * choice.weight**2 for choice in choices.menu)
    guess = log(guess_gdp(target, delta) ** 2 / planned)
    low, high = -inf, inf  # logarithms of a factor that fits, and of one that does not
    for _ in range(40):
        cost = _book(choices, trials, exp(guess)).claim(delta)
        low, high = (max(low, guess), high) if cost <= target else (low, min(high, guess))
        if high - low < 1e-3:
            break
        # ε grows at least as the root of the steps: a step of 2·log of what is lacking does not overshoot far.
        step = max(min(1.5 * log(target / cost), 1.0), -1.0) if isfinite(cost) else -1.0
        guess = guess + step + (2e-4 if step > 0 else -2e-4)
        if not low < guess < high:
            guess = (low + high) / 2
    book = _book(choices, trials, exp(low)) if isfinite(low) else None
    menu = {choice.mechanism: choice for choice in choices.menu}
    if book is None or book.claim(delta) > target or all(steps < menu[m].shortest for m, steps in book.quotas):
        cheapest = min(choices.menu, key=lambda choice: choice.weight)
        raise _not_one(cheapest.mechanism, cheapest.shortest, target, delta)
    return book


def _fixed_order(
    choices: Choices, trials: int, target: float, delta: float, order: float | None
) -> tuple[Allowance, Choices]:
    if choices.calibrates:
        return _calibrated_order(choices, trials, target, delta, order)
    at = _order_of(choices.dearest[0], trials, target, delta) if order is None else order
    allowance = FixedOrder.of(order=at, epsilon=target, delta=delta)
    if allowance is None or all(allowance.left({}, choice.mechanism) < choice.shortest for choice in choices.menu):
        cheapest = min(choices.menu, key=lambda choice: choice.weight)
        raise _not_one(cheapest.mechanism, cheapest.shortest, target, delta, kind=f" by a filter at order {at:g}")
    return allowance, choices


def _calibrated_order(
    choices: Choices, trials: int, target: float, delta: float, order: float | None
) -> tuple[Allowance, Choices]:
    """The least noise with which `trials` of the dearest configuration fit, whichever that is at the order."""
    from tuner.privacy.accountant.calibration import calibrate

    dearest = choices.dearest[0]
    for _ in range(len(choices.menu) + 1):
        noise = calibrate(
            [(dearest.sample_rate, trials * dearest.longest)],
            epsilon=target,
            delta=delta,
            kind="fixed_order",
            order=order,
        )
        filled = choices.with_noise(noise)
        here = next(choice for choice in filled.menu if choice.batch_size == dearest.batch_size)
        at = _order_of(here, trials, target, delta) if order is None else order
        allowance = FixedOrder.of(order=at, epsilon=target, delta=delta)
        if allowance is None:
            break
        worst = max(filled.menu, key=lambda choice: choice.longest * allowance.price(choice.mechanism))
        if allowance.left({}, worst.mechanism) >= trials * worst.longest:
            return allowance, filled
        dearest = worst
    raise BudgetRefusedError(
        f"{trials} trials must fit privacy.epsilon {target:g} by a filter at one order, got none that holds them. "
        "Raise privacy.epsilon, leave privacy.order out, or plan fewer trials or epochs."
    )


def _order_of(choice: Choice, trials: int, target: float, delta: float) -> float:
    from tuner.privacy.accountant.rdp import best_order

    return best_order([(choice.mechanism, trials * choice.longest)], epsilon=target, delta=delta)


def _not_one(
    mechanism: SampledGaussian, steps: int, target: float, delta: float, *, kind: str = ""
) -> BudgetRefusedError:
    return BudgetRefusedError(
        f"one trial of {steps} steps at noise_multiplier {mechanism.noise_multiplier:g} must fit "
        f"privacy.epsilon{kind}, got ε = {epsilon(mechanism, steps, delta):.4g} where {target:g} is the cap. "
        "Raise noise_multiplier (or write auto), lower trainable.epochs, or raise privacy.epsilon."
    )
