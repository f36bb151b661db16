"""Privacy filter with a quota of steps for each of several mechanisms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, expm1, floor
from typing import Any, ClassVar, Self

from tuner.errors import InputError
from tuner.privacy.accountant.filters.base import FixedParts, Part, TrialSteps, Used
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps

__all__ = ["CouponBook"]


@dataclass(frozen=True)
class CouponBook(FixedParts):
    """Privacy filter with a quota of steps for each of several mechanisms. Each allowed step is called a coupon.

    Formal guarantees:
        Trials may choose adaptively among the mechanisms, run concurrently and stop after any step. Each coupon is
        used at most once. So all trials together lose at most as much privacy as the composition of all coupons.

    Args:
        quotas: pairs (mechanism, steps), in any sequence. Each mechanism occurs once.
    """

    kind: ClassVar[str] = "coupon_book"
    label: ClassVar[str] = (
        "a quota of steps for each of several mechanisms (a coupon book); any trial may use any steps that are left"
    )
    accounting: ClassVar[str] = "all quotas composed, by a pessimistic privacy loss distribution (connect-the-dots)"
    assumption: ClassVar[tuple[str, str]] = (
        "each step is counted in the quota of its sample rate and noise multiplier",
        "the quotas were fixed when the search was opened",
    )
    quotas: tuple[Part, ...]

    def __post_init__(self) -> None:
        for _, steps in self.quotas:
            require_steps(steps, minimum=1, name="quota")
        if not self.quotas or len(dict(self.quotas)) != len(self.quotas):
            raise InputError(
                "filter-invalid",
                f"A coupon book must have at least one mechanism, and no mechanism twice (got {self.quotas!r}).",
            )
        object.__setattr__(self, "quotas", tuple(sorted(self.quotas)))

    @classmethod
    def planned(cls, menu: Sequence[TrialSteps], trials: float, *, scale: float = 1.0) -> Self:
        """Return the coupon book for `trials` full-length trials. Mechanisms get equal numbers of trials, rounded up.

        Args:
            menu: the possible choices of a trial. Each mechanism occurs once.
            trials: number of planned trials, possibly a fraction. Each mechanism gets a whole number of them.
            scale: factor by which every quota is multiplied. The product is rounded down, but is at least 1.
        """
        each = ceil(trials / len(menu))
        quotas = {choice.mechanism: floor(scale * each * choice.longest * (1 + 1e-12)) for choice in menu}
        return cls(tuple((mechanism, max(steps, 1)) for mechanism, steps in quotas.items()))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The mechanisms with their quotas."""
        return self.quotas

    def left_after(self, mechanism: SampledGaussian, *, steps: int, same: int, units: int, price: int) -> int:
        """Return how many coupons of `mechanism` are left; 0 if `mechanism` has no quota."""
        return max(dict(self.quotas).get(mechanism, 0) - same, 0)

    def share(self, used: Used, *, units: int) -> float:
        """Return the share of all quotas that the steps in `used` consume.

        Each step is weighted by q²(e^(1/σ²) − 1), which is about the variance of its privacy loss (Bu et al. 2020).
        """
        whole = sum(steps * _weight(mechanism) for mechanism, steps in self.quotas)
        return sum(steps * _weight(mechanism) for mechanism, steps in used.items()) / whole

    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return how many trials fit all quotas together: first if all are longest, then if all are shortest.

        Quotas of mechanisms that are not in `menu` are not for these trials.
        """
        quotas = dict(self.quotas)
        least = sum(quotas.get(choice.mechanism, 0) // choice.longest for choice in menu)
        most = sum(quotas.get(choice.mechanism, 0) // choice.shortest for choice in menu)
        return min(trials, least), min(trials, most)

    def cheapest(self, trials: Sequence[Part]) -> Sequence[Part]:
        """Return the shortest trial of each mechanism, because each mechanism has its own quota."""
        shortest = dict(sorted(trials, key=lambda trial: -trial[1]))
        return tuple(shortest.items())

    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: float, delta: float) -> float:
        """Return the ε at `delta` that the coupon book from `planned` claims."""
        return self.planned(menu, trials).claim(delta)

    @property
    def summary(self) -> str:
        """Short text for a table: the kind of the filter, and its limits as numbers."""
        return f"a coupon book of {len(self.quotas)} mechanisms and {self.most_steps} steps"

    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the mechanism's quota in words, for the message of a refused request."""
        return f"{dict(self.quotas).get(mechanism, 0)} {unit} of {mechanism!r}"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        coupons = [{**mechanism.body(), "steps": steps} for mechanism, steps in self.quotas]
        return {"kind": self.kind, "coupons": coupons}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""
        return cls(tuple((SampledGaussian.from_body(coupon), coupon["steps"]) for coupon in body["coupons"]))


def _weight(mechanism: SampledGaussian) -> float:
    return max(mechanism.sample_rate**2 * expm1(min(mechanism.noise_multiplier**-2, 300.0)), 1e-300)
