"""Gates of what is searched and priced: batch_size, epochs and noise_multiplier, and the cap that holds over them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from search_spaces import Categorical, Fixed
from search_spaces.domains import show
from tuner.experiment.findings import Finding, Gate, priced_domains
from tuner.experiment.model import Experiment
from tuner.experiment.values import NOISES
from tuner.experiment.yamlfile import Path

__all__ = ["LARGEST_MENU", "PRICED_GATES"]

LARGEST_MENU = 64
"""More coupons than this are refused: composing them would take minutes, and a filter of one order is as good."""

_EPSILONS = (1e-6, 1e6)

_PRICED_AT = {
    "batch_size": "trainable.batch_size",
    "noise_multiplier": "privacy.noise_multiplier",
    "epochs": "trainable.epochs",
}


def _priced(experiment: Experiment) -> Iterator[Finding]:
    accounting = experiment.privacy.accounting
    for name, (domain, path) in priced_domains(experiment).items():
        if isinstance(domain, Fixed):
            rule = f"{name} is priced: its one value is a setting of the whole search"
            yield Finding(path=path, rule=rule, fix=f"Write {_PRICED_AT[name]}: {show(domain.value)}.")
        elif accounting == "public":
            rule = f"{name} is priced, and the noise of the one private run is calibrated for one value of it"
            yield Finding(path=path, rule=rule, fix=f"Write one number at {_PRICED_AT[name]}.")
        elif accounting == "selection" and not isinstance(domain, Categorical):
            rule = (
                f"{name} is priced, and a sealed search is priced by the dearest of finitely many configurations: it "
                "must be a choice"
            )
            yield Finding(path=path, rule=rule, fix=f"Write {{choice: [{', '.join(map(show, domain.grid(3)))}]}}.")


def _noise_stands_once(experiment: Experiment) -> Iterator[Finding]:
    noise = experiment.privacy.noise_multiplier
    if "noise_multiplier" in experiment.search.space and noise != "auto":
        yield Finding(
            path=("search", "space", "noise_multiplier"),
            rule="noise_multiplier must stand once",
            fix="Leave privacy.noise_multiplier out where it is searched.",
            value=f"{show(experiment.search.space['noise_multiplier'])} beside {show(noise)}",
        )


def _epsilons(experiment: Experiment) -> Iterator[Finding]:
    low, high = _EPSILONS
    given = {
        ("privacy", "epsilon"): experiment.privacy.epsilon,
        ("dataset", "validation", "epsilon"): experiment.dataset.validation.epsilon,
    }
    for path, epsilon in given.items():
        if epsilon is not None and not low <= epsilon <= high:
            rule = f"must be from {low:g} to {high:g}: no smaller one is ever claimed, and a larger one protects nobody"
            yield Finding(path=path, rule=rule, fix="Write for example 8.", value=show(epsilon))


def _noises(experiment: Experiment) -> Iterator[Finding]:
    domain, path = priced_domains(experiment).get("noise_multiplier", (None, ()))
    low, high = NOISES
    wrong = [] if domain is None else [value for value in domain.grid(2) if not low <= float(value) <= high]
    if wrong:
        rule = f"every noise_multiplier must be from {low:g} to {high:g}"
        yield Finding(path=path, rule=rule, fix="Choose among the likes of 1.0.", value=", ".join(map(show, wrong)))


def _cap(experiment: Experiment) -> Iterator[Finding]:
    privacy, path = experiment.privacy, ("privacy", "cap")
    if privacy.accounting != "composition":
        if privacy.cap != "auto":
            rule = f"the caps are those of composition, and the accounting is {privacy.accounting}"
            yield Finding(path=path, rule=rule, fix="Leave it out.")
        return
    domains = priced_domains(experiment)
    mechanisms = {name: domain for name, (domain, _) in domains.items() if name != "epochs"}
    names = " and ".join(mechanisms)
    if privacy.cap == "total_steps" and any(len(domain.grid(2)) > 1 for domain in mechanisms.values()):
        rule = f"a cap on total steps holds only with ONE (sample_rate, noise_multiplier), and {names} is searched"
        yield Finding(path=path, rule=rule, fix="Write auto, coupon_book or fixed_order.")
    if privacy.cap == "coupon_book":
        ranges = [name for name, domain in mechanisms.items() if not isinstance(domain, Fixed | Categorical)]
        menu = prod(len(domain.grid(2)) for domain in mechanisms.values())
        if ranges:
            rule = f"a coupon book needs a menu, and {' and '.join(ranges)} is a range"
            yield Finding(path=path, rule=rule, fix="Write a choice of a few values, or cap: fixed_order.")
        elif menu > LARGEST_MENU:
            rule = f"a coupon book holds at most {LARGEST_MENU} pairs of sample_rate and noise_multiplier"
            yield Finding(path=path, rule=rule, fix="Write cap: fixed_order.", value=f"{menu} pairs")


def _order(experiment: Experiment) -> Iterator[Finding]:
    if experiment.privacy.order != "auto" and experiment.privacy.cap != "fixed_order":
        rule = f"an order is of the fixed_order filter, and the cap is {experiment.privacy.cap}"
        yield Finding(path=("privacy", "order"), rule=rule, fix="Write cap: fixed_order beside it, or leave it out.")


_NEEDS: tuple[Path, ...] = (("search", "space"), ("privacy", "noise_multiplier"), ("privacy", "accounting"))

PRICED_GATES: tuple[tuple[Gate, tuple[Path, ...]], ...] = (
    (_priced, _NEEDS),
    (_noise_stands_once, (("search", "space"), ("privacy", "noise_multiplier"))),
    (_epsilons, (("privacy", "epsilon"), ("dataset", "validation"))),
    (_noises, _NEEDS),
    (_cap, (*_NEEDS, ("privacy", "cap"))),
    (_order, (("privacy", "order"), ("privacy", "cap"))),
)
"""Every gate with the keys it looks at."""
