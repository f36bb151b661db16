"""Choice of the filter (cap) of a composition search: the tightest of those that its search space allows.

With ``noise_multiplier: auto``, this module computes the smallest noise with which all planned trials fit the filter,
whatever parameters they have. With a given or searched noise, it computes the largest filter whose ε is within the
budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, inf, isfinite, log
from typing import TYPE_CHECKING

from tuner.errors import BudgetRefusedError
from tuner.plan.shapes import Choice, Choices
from tuner.privacy.accountant.filters import CouponBook, Filter, FixedOrder, TotalSteps, steps_of_runs
from tuner.privacy.accountant.initial_guess import guess_gdp
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import MAX_STEPS, calibrate_noise, epsilon, max_steps

if TYPE_CHECKING:
    from tuner.experiment.privacy_sections import PrivacySection

__all__ = ["Alternative", "ChosenFilter", "compose", "total_steps"]

_MENU = 16
"""Maximum number of pairs of sample rate and noise with which `cap: auto` tries a coupon book. More take too long."""

_WHY = {
    "total_steps": "all trials have the same sample rate and noise multiplier, so all steps are composed together",
    "coupon_book": "each pair of sample rate and noise multiplier has a quota of steps, and the quotas are composed",
    "fixed_order": "the Rényi divergence at one fixed order has a budget; all steps that fit this budget are allowed",
}


@dataclass(frozen=True)
class Alternative:
    """One of the filters that were compared to choose the tightest. `cap` is its kind."""

    cap: str
    noise_multiplier: float | None  # None if it is searched
    trials: int  # least number of planned trials that fit
    epsilon: float  # of the planned trials


@dataclass(frozen=True)
class ChosenFilter:
    """The filter of a search, and the reason for it. `choices` contains the calibrated noise."""

    filter: Filter
    choices: Choices
    reason: str
    alternatives: tuple[Alternative, ...] = ()  # the filters that were considered, if there were several


def compose(choices: Choices, trials: float, privacy: PrivacySection) -> ChosenFilter:
    """Return the filter that the file names, or the tightest filter that the search space allows.

    `trials` is the number of whole trials for which the budget is planned. It may be a fraction (`search.full_runs`).

    Raises:
        BudgetRefusedError: not even one trial fits the budget.
    """
    make = {"total_steps": total_steps, "coupon_book": _coupon_book, "fixed_order": _fixed_order}
    found = {kind: make[kind](choices, trials, privacy) for kind in _kinds(choices, trials, privacy.cap)}
    best = min(found, key=lambda kind: _looseness(*found[kind]))
    filter, chosen = found[best]
    if len(found) == 1:
        return ChosenFilter(filter, chosen, _WHY[best])
    others = " and ".join(kind for kind in found if kind != best)
    alternatives = tuple(
        Alternative(
            kind,
            filled.noise,
            held.trials_that_fit(filled.menu, ceil(trials))[0],
            held.epsilon_of_planned(filled.menu, trials, privacy.delta),
        )
        for kind, (held, filled) in found.items()
    )
    return ChosenFilter(filter, chosen, f"{_WHY[best]}; here this cap is tighter than {others}", alternatives)


def _kinds(choices: Choices, trials: float, cap: str) -> tuple[str, ...]:
    if cap != "auto":
        return (cap,)
    if choices.one_mechanism:
        return ("total_steps",)
    coupons = sum(_share(choices, trials) * choice.longest for choice in choices.menu)
    small = choices.finite and len(choices.menu) <= _MENU and coupons <= MAX_STEPS
    return ("coupon_book", "fixed_order") if small else ("fixed_order",)


def _looseness(filter: Filter, choices: Choices) -> tuple[float, float]:
    """Return a sort key. It is smallest for the filter with the least noise, then for the one with the most trials."""
    held = filter.trials_that_fit(choices.menu, 10**9)[0]
    return (choices.noise or 0.0), -float(held)


def total_steps(choices: Choices, trials: float, privacy: PrivacySection) -> tuple[Filter, Choices]:
    """Return a filter that limits the total number of steps. All trials have the same sample rate and noise.

    Raises:
        BudgetRefusedError: even the shortest trial exceeds ε with the noise in the file.
    """
    (rate,) = {choice.sample_rate for choice in choices.menu}
    target, delta = privacy.epsilon, privacy.delta
    if choices.calibrates:
        steps = steps_of_runs(trials, max(each.longest for each in choices.menu))
        noise = calibrate_noise(sample_rate=rate, steps=steps, epsilon=target, delta=delta)
        choices = replace(choices, noise=noise)
        return TotalSteps(choices.menu[0].mechanism, steps), choices
    mechanism, shortest = choices.menu[0].mechanism, min(each.shortest for each in choices.menu)
    steps = max_steps(mechanism, epsilon=target, delta=delta)
    if steps < shortest:
        raise _refuse_run(mechanism, shortest, target, delta)
    return TotalSteps(mechanism, steps), choices


def _coupon_book(choices: Choices, trials: float, privacy: PrivacySection) -> tuple[Filter, Choices]:
    if not choices.calibrates:
        return _largest_book(choices, trials, privacy.epsilon, privacy.delta), choices
    from tuner.privacy.accountant.calibration import calibrate_composed

    menu = [(choice.sample_rate, _share(choices, trials) * choice.longest) for choice in choices.menu]
    noise = calibrate_composed(menu, epsilon=privacy.epsilon, delta=privacy.delta)
    choices = replace(choices, noise=noise)
    return CouponBook.planned(choices.menu, trials), choices


def _share(choices: Choices, trials: float) -> int:
    """Return the number of planned trials for each pair of sample rate and noise."""
    return ceil(trials / len(choices.menu))


def _largest_book(choices: Choices, trials: float, target: float, delta: float) -> CouponBook:
    """Multiply all planned quotas by the largest factor that fits ε (to 0.1 %), and return the coupon book."""
    planned = sum(_share(choices, trials) * choice.weight**2 for choice in choices.menu)
    guess = log(guess_gdp(target, delta) ** 2 / planned)
    low, high = -inf, inf  # logarithms of a factor that fits, and of one that does not
    for _ in range(40):
        cost = CouponBook.planned(choices.menu, trials, scale=exp(guess)).claim(delta)
        low, high = (max(low, guess), high) if cost <= target else (low, min(high, guess))
        if high - low < 1e-3:
            break
        # ε grows at least with the square root of the steps, so 2·log(missing factor) does not overshoot far.
        step = max(min(1.5 * log(target / cost), 1.0), -1.0) if isfinite(cost) else -1.0
        guess = guess + step + (2e-4 if step > 0 else -2e-4)
        if not low < guess < high:
            guess = (low + high) / 2
    book = CouponBook.planned(choices.menu, trials, scale=exp(low)) if isfinite(low) else None
    menu = {choice.mechanism: choice for choice in choices.menu}
    if book is None or book.claim(delta) > target or all(steps < menu[m].shortest for m, steps in book.quotas):
        cheapest = min(choices.menu, key=lambda choice: choice.weight)
        raise _refuse_run(cheapest.mechanism, cheapest.shortest, target, delta)
    return book


def _fixed_order(choices: Choices, trials: float, privacy: PrivacySection) -> tuple[Filter, Choices]:
    if choices.calibrates:
        return _calibrated_order(choices, trials, privacy)
    target, delta = privacy.epsilon, privacy.delta
    at = _order_of(choices.dearest[0], trials, privacy)
    filter = FixedOrder.of(order=at, epsilon=target, delta=delta)
    if filter is None or all(filter.left({}, choice.mechanism) < choice.shortest for choice in choices.menu):
        cheapest = min(choices.menu, key=lambda choice: choice.weight)
        held = f" by composition, and more by a Rényi filter of order {at:g}, which this cap uses"
        raise _refuse_run(cheapest.mechanism, cheapest.shortest, target, delta, held=held)
    return filter, choices


def _calibrated_order(choices: Choices, trials: float, privacy: PrivacySection) -> tuple[Filter, Choices]:
    """Return the filter with the smallest noise at which `trials` trials of the most expensive configuration fit."""
    from tuner.privacy.accountant.calibration import calibrate_at_order

    target, delta = privacy.epsilon, privacy.delta
    order = None if isinstance(privacy.order, str) else float(privacy.order)
    dearest = choices.dearest[0]
    for _ in range(len(choices.menu) + 1):
        menu = [(dearest.sample_rate, steps_of_runs(trials, dearest.longest))]
        filled = replace(choices, noise=calibrate_at_order(menu, epsilon=target, delta=delta, order=order))
        here = next(choice for choice in filled.menu if choice.batch_size == dearest.batch_size)
        filter = FixedOrder.of(order=_order_of(here, trials, privacy), epsilon=target, delta=delta)
        if filter is None:
            break
        worst = max(filled.menu, key=lambda choice: choice.longest * filter.price(choice.mechanism))
        if filter.left({}, worst.mechanism) >= steps_of_runs(trials, worst.longest):
            return filter, filled
        dearest = worst
    raise BudgetRefusedError(
        "budget-too-small",
        f"{trials:g} whole trials do not fit any Rényi filter with `privacy.epsilon: {target:g}`. Raise "
        "`privacy.epsilon`, remove `privacy.order`, or plan fewer trials or epochs.",
    )


def _order_of(choice: Choice, trials: float, privacy: PrivacySection) -> float:
    """Return the Rényi order in the file. With `order: auto`, return the best order for `trials` trials of `choice`."""
    from tuner.privacy.accountant.calibration import best_order

    if not isinstance(privacy.order, str):
        return float(privacy.order)
    return best_order(
        [(choice.mechanism, steps_of_runs(trials, choice.longest))], epsilon=privacy.epsilon, delta=privacy.delta
    )


def _refuse_run(
    mechanism: SampledGaussian, steps: int, target: float, delta: float, *, held: str = ""
) -> BudgetRefusedError:
    """Return the error for one run whose `steps` steps exceed ε. In the error, the text `held` follows the run's ε."""
    return BudgetRefusedError(
        "budget-too-small",
        f"One run of {steps} steps at noise multiplier {mechanism.noise_multiplier:g} does not fit `privacy.epsilon: "
        f"{target:g}`: it has ε = {epsilon(mechanism, steps, delta):.4g}{held}. Raise "
        "`privacy.noise_multiplier` (or set it to auto), lower `trainable.epochs`, or raise `privacy.epsilon`.",
    )
