"""What a search may do to the records: its filter, fixed before it starts. The odometer is another object.

An allowance answers two questions and nothing else: whether so many more steps of a mechanism may be promised, given
all that was promised before, and which (ε, δ) holds whatever is then done with the promises: in which order, by how
many trials at once, and when each of them stops. `docs/guarantees.md` has the proofs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, log
from typing import Any, ClassVar, TypeAlias

from tuner.errors import InputError
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_steps
from tuner.privacy.accountant.rdp import ORDER_RANGE
from tuner.privacy.accountant.run_laws import RunLaw

__all__ = ["UNITS", "Allowance", "CouponBook", "FixedOrder", "Sealed", "TotalSteps", "Used", "from_body"]

UNITS = 10**15
"""Rényi divergence is counted in whole units of 1e-15, prices rounded up and budgets down: sums have no rounding."""

_ROUNDING = 1e-12
"""Far above what a sum of three doubles loses."""

Used: TypeAlias = Mapping[SampledGaussian, int]
"""Steps of each mechanism that are leased or promised."""


@dataclass(frozen=True)
class TotalSteps:
    """One mechanism for all trials, and a cap on the steps of all of them together (privacy.md §3).

    Args:
        mechanism: every step of every trial.
        step_cap: at least 1.
    """

    kind: ClassVar[str] = "total_steps"
    mechanism: SampledGaussian
    step_cap: int

    def __post_init__(self) -> None:
        require_steps(self.step_cap, minimum=1, name="step_cap")

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """Those that a trial may use."""
        return (self.mechanism,)

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """How many more steps of `mechanism` may be promised; 0 for one that it does not know."""
        return max(self.step_cap - sum(used.values()), 0) if mechanism == self.mechanism else 0

    def claim(self, delta: float) -> float:
        """ε at `delta` of everything that this allows; `math.inf` where nothing is claimed."""
        from tuner.privacy.accountant.pld import epsilon

        return epsilon(self.mechanism, self.step_cap, delta)

    def body(self) -> dict[str, Any]:
        """Plain JSON, for the ledger."""
        return {"kind": self.kind, **_plain(self.mechanism), "step_cap": self.step_cap}


@dataclass(frozen=True)
class CouponBook:
    """A menu of mechanisms, each with a quota of steps; all coupons are composed once (privacy.md §3).

    Args:
        quotas: (mechanism, steps), each mechanism once; sorted when made.
    """

    kind: ClassVar[str] = "coupon_book"
    quotas: tuple[tuple[SampledGaussian, int], ...]

    def __post_init__(self) -> None:
        for _, steps in self.quotas:
            require_steps(steps, minimum=1, name="quota")
        if not self.quotas or len(dict(self.quotas)) != len(self.quotas):
            raise InputError(f"a coupon book must name each of its mechanisms once, got {self.quotas!r}.")
        ordered = sorted(self.quotas, key=lambda item: (item[0].sample_rate, item[0].noise_multiplier))
        object.__setattr__(self, "quotas", tuple(ordered))

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """Those that a trial may use."""
        return tuple(mechanism for mechanism, _ in self.quotas)

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """How many coupons of `mechanism` are left; 0 for one that is not on the menu."""
        return max(dict(self.quotas).get(mechanism, 0) - used.get(mechanism, 0), 0)

    def claim(self, delta: float) -> float:
        """ε at `delta` of all coupons composed; `math.inf` where nothing is claimed."""
        from tuner.privacy.accountant.pld import epsilon_composed

        return epsilon_composed(self.quotas, delta)

    def body(self) -> dict[str, Any]:
        """Plain JSON, for the ledger."""
        coupons = [{**_plain(mechanism), "steps": steps} for mechanism, steps in self.quotas]
        return {"kind": self.kind, "coupons": coupons}


@dataclass(frozen=True)
class FixedOrder:
    """A Rényi filter at ONE order, fixed before the search; any mechanism may be chosen at any time (privacy.md §3).

    Sound for adaptively chosen mechanisms (Feldman & Zrnic 2021, Theorem 4.3) and concurrent ones (Haney et al. 2023).
    "Some order is still within its budget" is NOT: `tests/privacy/accountant/test_filters.py` has the counter-example.

    Args:
        order: within `rdp.ORDER_RANGE`.
        budget: Rényi divergence of that order, in `UNITS`.
    """

    kind: ClassVar[str] = "fixed_order"
    order: float
    budget: int

    def __post_init__(self) -> None:
        low, high = ORDER_RANGE
        if isinstance(self.order, bool) or not low <= self.order <= high:
            raise InputError(f"order must be a number from {low} to {high:g}, got {self.order!r}. Write for example 8.")
        object.__setattr__(self, "order", float(self.order))
        require_steps(self.budget, minimum=1, name="budget")

    @classmethod
    def of(cls, *, order: float, epsilon: float, delta: float) -> FixedOrder | None:
        """The filter that keeps (ε, δ) at this order, or None when it would admit nothing.

        Args:
            order: above 1.
            epsilon: of the claim.
            delta: of the claim.
        """
        require_delta(delta)
        # Canonne, Kamath & Steinke 2020, Proposition 12: ε = ρ + log((a − 1)/a) − (log δ + log a)/(a − 1).
        terms = (epsilon, -log((order - 1) / order), (log(delta) + log(order)) / (order - 1))
        divergence = sum(terms) - 4 * _ROUNDING * sum(map(abs, terms))
        budget = floor(divergence * UNITS) if isfinite(divergence) else 0
        return cls(order, budget) if budget >= 1 else None

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """None in particular: any may be used."""
        return ()

    def price(self, mechanism: SampledGaussian) -> int:
        """Units that one step of `mechanism` costs, rounded up."""
        from tuner.privacy.accountant.rdp import divergence

        found = divergence(mechanism, self.order)
        return max(ceil(found * UNITS), 1) if isfinite(found) else self.budget + 1

    def spent(self, used: Used) -> int:
        """Units that all of `used` cost."""
        return sum(steps * self.price(mechanism) for mechanism, steps in used.items() if steps)

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """How many more steps of `mechanism` may be promised."""
        return max((self.budget - self.spent(used)) // self.price(mechanism), 0)

    def claim(self, delta: float) -> float:
        """ε at `delta` of everything that this allows."""
        require_delta(delta)
        order = self.order
        terms = (self.budget / UNITS, log((order - 1) / order), -(log(delta) + log(order)) / (order - 1))
        found = sum(terms) + _ROUNDING * sum(map(abs, terms))
        return max(found, 1e-6) if isfinite(found) else inf

    def body(self) -> dict[str, Any]:
        """Plain JSON, for the ledger."""
        return {"kind": self.kind, "order": self.order, "budget": self.budget}


@dataclass(frozen=True)
class Sealed:
    """A sealed search: a random, hidden number of independent runs, of which only the best leaves (privacy.md §2).

    It is charged as a whole when it begins, so that the ledger says nothing of how many runs there were.

    Args:
        law: of the number of runs.
        at_most: runs after which the law is cut off; what that adds to δ is part of the claim.
        runs: (mechanism, steps) of one run; where the prior chooses among several, all of them.
        ratio: (c, C), between which an adaptive sampler keeps its density over the prior's (DP-HyPO); (1, 1) is none.
    """

    kind: ClassVar[str] = "sealed"
    law: RunLaw
    at_most: int
    runs: tuple[tuple[SampledGaussian, int], ...]
    ratio: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        require_steps(self.at_most, minimum=1, name="at_most")
        for _, steps in self.runs:
            require_steps(steps, minimum=1)
        low, high = self.ratio
        if not self.runs or not (isfinite(low) and isfinite(high) and 0 < low <= 1 <= high):
            raise InputError(f"a sealed search needs a run, and 0 < c <= 1 <= C, got {self.runs!r}, {self.ratio!r}.")
        ordered = sorted(set(self.runs), key=lambda run: (run[0].sample_rate, run[0].noise_multiplier, run[1]))
        object.__setattr__(self, "runs", tuple(ordered))
        object.__setattr__(self, "ratio", (float(low), float(high)))

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """Those that a run may use."""
        return tuple(dict(self.runs))

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """0: nothing is promised piece by piece."""
        return 0

    def claim(self, delta: float) -> float:
        """ε at `delta` of the winner, truncation included; `math.inf` where nothing is claimed."""
        from tuner.privacy.accountant.selection import epsilon_selection

        return epsilon_selection(self.law, self.runs, delta, at_most=self.at_most, ratio=self.ratio)

    def body(self) -> dict[str, Any]:
        """Plain JSON, for the ledger."""
        runs = [{**_plain(mechanism), "steps": steps} for mechanism, steps in self.runs]
        return {
            "kind": self.kind, "law": self.law.body(), "at_most": self.at_most, "runs": runs, "ratio": list(self.ratio)
        }  # fmt: skip


Allowance: TypeAlias = TotalSteps | CouponBook | FixedOrder | Sealed


def from_body(body: Mapping[str, Any]) -> Allowance:
    """The allowance that `body()` of it wrote.

    Raises:
        InputError: it is none, or a value is out of range.
        KeyError: a value is missing.
    """
    match body["kind"]:
        case TotalSteps.kind:
            return TotalSteps(_mechanism(body), body["step_cap"])
        case CouponBook.kind:
            return CouponBook(tuple((_mechanism(coupon), coupon["steps"]) for coupon in body["coupons"]))
        case FixedOrder.kind:
            return FixedOrder(body["order"], body["budget"])
        case Sealed.kind:
            low, high = body["ratio"]
            runs = tuple((_mechanism(run), run["steps"]) for run in body["runs"])
            return Sealed(RunLaw.from_body(body["law"]), body["at_most"], runs, (low, high))
        case kind:
            raise InputError(f"an allowance must be of a known kind, got {kind!r}; written by a newer version?")


def _plain(mechanism: SampledGaussian) -> dict[str, float]:
    return {"sample_rate": mechanism.sample_rate, "noise_multiplier": mechanism.noise_multiplier}


def _mechanism(body: Mapping[str, Any]) -> SampledGaussian:
    return SampledGaussian(body["sample_rate"], body["noise_multiplier"])
