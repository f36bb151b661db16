"""Gates for searched parameters that affect the budget (batch_size, epochs, noise_multiplier) and for `privacy.cap`."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from search_spaces import Categorical, Fixed
from search_spaces.domains import as_yaml
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.values import NOISES

__all__ = ["CAP_GATES", "LARGEST_MENU"]

LARGEST_MENU = 64
"""Maximum number of quotas in a coupon book. A quota limits the steps for one sample rate and noise multiplier.

Composing more quotas takes minutes, and the `fixed_order` filter then allows about as many steps.
"""

_PRICED_AT = {
    "batch_size": "trainable.batch_size",
    "noise_multiplier": "privacy.noise_multiplier",
    "epochs": "trainable.epochs",
}
_NEEDS = ("search.space", "search.public", "privacy.noise_multiplier", "privacy.accounting")


@gate(*_NEEDS)
def priced(draft: Draft) -> Iterator[GateFinding]:
    """Check the domains of parameters that affect the budget. The accounting mode must be able to price them."""
    mode = draft.mode
    for name, (domain, path) in draft.priced.items():
        if isinstance(domain, Fixed):
            rule = f"{name} affects the budget, so its fixed value does not belong to `search.space`"
            fix = f"Write `{_PRICED_AT[name]}: {as_yaml(domain.value)}`."
            yield GateFinding("priced-value-fixed", path, rule, fix)
        elif mode.searches_public or draft.experiment.search.public is not None:
            rule = f"{name} cannot be searched with public data: the charged part is planned before the public search"
            fix = f"Write one number at {_PRICED_AT[name]}."
            yield GateFinding("priced-with-public", path, rule, fix)
        elif mode.runs_hidden and not isinstance(domain, Categorical):
            rule = f"{name} must be a list of values, because the ε of a sealed search is computed for each value"
            fix = f"Write `{{choice: [{', '.join(map(as_yaml, domain.grid(3)))}]}}`."
            yield GateFinding("priced-range-sealed", path, rule, fix)


@gate("search.space", "privacy.noise_multiplier")
def noise_once(draft: Draft) -> Iterator[GateFinding]:
    """Refuse a noise multiplier that is given both in `privacy` and in `search.space`."""
    noise, space = draft.experiment.privacy.noise_multiplier, draft.experiment.search.space
    if "noise_multiplier" in space and noise != "auto":
        yield GateFinding(
            "noise-given-twice",
            "search.space.noise_multiplier",
            "the noise multiplier must be given only once",
            "Remove `privacy.noise_multiplier`.",
            f"{as_yaml(space['noise_multiplier'])}, and {as_yaml(noise)} in privacy",
        )


@gate(*_NEEDS)
def noise_range(draft: Draft) -> Iterator[GateFinding]:
    """Require a searched noise multiplier within the range of the accountants."""
    domain, path = draft.priced.get("noise_multiplier", (None, ()))
    low, high = NOISES
    wrong = [] if domain is None else [value for value in domain.grid(2) if not low <= float(value) <= high]
    if wrong:
        rule = f"every noise_multiplier must be from {low:g} to {high:g}"
        yield GateFinding("value-out-of-range", path, rule, "Write values near 1.0.", ", ".join(map(as_yaml, wrong)))


@gate(*_NEEDS, "privacy.cap")
def cap(draft: Draft) -> Iterator[GateFinding]:
    """Require a cap that supports the searched parameters."""
    privacy, key = draft.experiment.privacy, "privacy.cap"
    if not draft.mode.caps:
        if privacy.cap != "auto":
            rule = f"a choice of cap needs `accounting: composition`, but the accounting is {privacy.accounting}"
            yield GateFinding("cap-without-composition", key, rule, "Remove the key.")
        return
    mechanisms = {name: domain for name, (domain, _) in draft.priced.items() if name != "epochs"}
    if privacy.cap == "total_steps" and any(len(domain.grid(2)) > 1 for domain in mechanisms.values()):
        rule = (
            "`cap: total_steps` needs the same sample rate and noise multiplier in all trials, but this file "
            f"searches {' and '.join(mechanisms)}"
        )
        yield GateFinding("cap-needs-one-mechanism", key, rule, "Write auto, coupon_book or fixed_order.")
    if privacy.cap == "coupon_book":
        ranges = [name for name, domain in mechanisms.items() if not isinstance(domain, Fixed | Categorical)]
        menu = prod(len(domain.grid(2)) for domain in mechanisms.values())
        if ranges:
            rule = f"`cap: coupon_book` can search only lists of values, but these are ranges: {', '.join(ranges)}"
            yield GateFinding("cap-needs-menu", key, rule, "Write a `choice` of values, or `cap: fixed_order`.")
        elif menu > LARGEST_MENU:
            rule = f"`cap: coupon_book` allows at most {LARGEST_MENU} pairs of sample rate and noise multiplier"
            yield GateFinding("cap-menu-too-large", key, rule, "Write `cap: fixed_order`.", f"{menu} pairs")


@gate("privacy.order", "privacy.cap")
def order(draft: Draft) -> Iterator[GateFinding]:
    """Require `cap: fixed_order` if a Rényi order is given."""
    privacy = draft.experiment.privacy
    if privacy.order != "auto" and privacy.cap != "fixed_order":
        rule = f"a Rényi order needs `cap: fixed_order`, but the cap is {privacy.cap}"
        yield GateFinding("order-without-cap", "privacy.order", rule, "Write `cap: fixed_order`, or remove the key.")


CAP_GATES: tuple[Gate, ...] = (priced, noise_once, noise_range, cap, order)
