"""Privacy filter that limits the sum of all steps' Rényi divergences at one order. A step may use any mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log
from typing import Any, ClassVar, Self

from tuner.privacy.accountant.filters.base import UNITS, Filter, Part, TrialSteps, Used, steps_of_runs
from tuner.privacy.accountant.mechanism import SampledGaussian, require_delta, require_steps
from tuner.privacy.accountant.rdp import divergence, epsilon_of_divergence, require_order

__all__ = ["FixedOrder"]

_ROUNDING = 1e-12
"""Relative margin for rounding. It is far larger than the rounding error of a sum of three doubles."""


@dataclass(frozen=True)
class FixedOrder(Filter):
    """Rényi filter at ONE order, which is fixed before the search. A trial may use any mechanism at any time.

    Formal guarantees:
        The filter is sound for mechanisms that are chosen adaptively (Feldman & Zrnic 2021, Theorem 4.3) and run
        concurrently (Haney et al. 2023). A filter with several orders is NOT sound if it admits each step for which the
        budget of ANY order suffices. `tests/privacy/accountant/test_filters.py` has a counterexample.

        Proof. Let L_t be the likelihood ratio after t steps and R_t the sum of their divergences at order a. Then
        L_t^a·e^(−(a−1)·R_t) is a supermartingale under D′, whatever the next mechanism is. So R_t ≤ budget bounds the
        divergence of the whole, which is converted to (ε, δ) in `of`.

    Args:
        order: Rényi order, within `rdp.ORDER_RANGE`.
        budget: largest allowed sum of the steps' Rényi divergences at `order`, in units of 1 / `UNITS`.
    """

    kind: ClassVar[str] = "fixed_order"
    label: ClassVar[str] = "a cap on the total Rényi divergence of all steps at one order; any mechanism is allowed"
    accounting: ClassVar[str] = "a Rényi filter at one order that was fixed before the search, converted to (ε, δ)"
    assumption: ClassVar[tuple[str, str]] = (
        "one Rényi order is used, which was fixed before the search",
        "the order was fixed when the search was opened, and no other order is used",
    )
    order: float
    budget: int

    def __post_init__(self) -> None:
        require_order(self.order)
        object.__setattr__(self, "order", float(self.order))
        require_steps(self.budget, minimum=1, name="budget")

    @classmethod
    def of(cls, *, order: float, epsilon: float, delta: float) -> Self | None:
        """Return the filter of this order with the largest budget that proves (ε, δ); None if that budget is 0."""
        require_delta(delta)
        # Canonne, Kamath & Steinke 2020, Proposition 12: ε = ρ + log((a − 1)/a) − (log δ + log a)/(a − 1).
        terms = (epsilon, -log((order - 1) / order), (log(delta) + log(order)) / (order - 1))
        allowed = sum(terms) - 4 * _ROUNDING * sum(map(abs, terms))
        budget = floor(allowed * UNITS) if isfinite(allowed) else 0
        return cls(order, budget) if budget >= 1 else None

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """Empty tuple, because any mechanism may be used."""
        return ()

    def admits(self, mechanism: SampledGaussian) -> bool:
        """Return True, because any mechanism may be used."""
        return True

    @property
    def renyi_order(self) -> float:
        """The Rényi order at which steps are priced."""
        return self.order

    def price(self, mechanism: SampledGaussian) -> int:
        """Return the price of one step in Rényi units, rounded up; the budget plus 1 if the price is infinite."""
        found = divergence(mechanism, self.order)
        return max(ceil(found * UNITS), 1) if isfinite(found) else self.budget + 1

    def left_after(self, mechanism: SampledGaussian, *, steps: int, same: int, units: int, price: int) -> int:
        """Return how many more steps with `mechanism` can be reserved."""
        return max((self.budget - units) // price, 0)

    def claim(self, delta: float) -> float:
        """Return the ε at `delta` that a search with this filter never exceeds."""
        return epsilon_of_divergence(self.order, self.budget / UNITS, delta)

    def units_at(self, order: float) -> int | None:
        """Return the budget if `order` is at most the filter's order, and None otherwise.

        The Rényi divergence never decreases as the order grows, so a bound at one order holds at every lower order.
        """
        return self.budget if order <= self.order else None

    def share(self, used: Used, *, units: int) -> float:
        """Return `units` as a share of the budget."""
        return units / self.budget

    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return how many trials fit: first if all have the highest price, then if all have the lowest price."""
        left = [(self.left({}, choice.mechanism), choice) for choice in menu]
        least = min(steps // choice.longest for steps, choice in left)
        most = max(steps // choice.shortest for steps, choice in left)
        return min(trials, least), min(trials, most)

    def cheapest(self, trials: Sequence[Part]) -> Sequence[Part]:
        """Return the trial whose steps have the smallest sum of Rényi divergences."""
        return (min(trials, key=lambda trial: trial[1] * self.price(trial[0])),)

    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: float, delta: float) -> float:
        """Return ε at `delta` of `trials` trials if each of them is the most expensive one in `menu`."""
        units = max(steps_of_runs(trials, choice.longest) * self.price(choice.mechanism) for choice in menu)
        return epsilon_of_divergence(self.order, units / UNITS, delta)

    @property
    def summary(self) -> str:
        """Short text for a table: the kind of the filter, and its Rényi order."""
        return f"a Rényi filter of order {self.order:g}"

    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the budget in words, for the message of a refused request."""
        return f"{unit} with a total Rényi divergence of {self.budget / UNITS:g} at order {self.order:g}"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        return {"kind": self.kind, "order": self.order, "budget": self.budget}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""
        return cls(body["order"], body["budget"])
