"""Base classes of the filters.

A filter is fixed before its search starts. It says how many more steps of a mechanism trials may reserve, given all
steps that are reserved or charged already. Its ε holds for any order of the steps, any number of concurrent trials and
any early stops. `docs/guarantees.md` has the proofs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon_composed, epsilon_curve
from tuner.privacy.accountant.rdp import divergence
from tuner.privacy.accountant.run_laws import RunLaw

__all__ = ["UNITS", "Filter", "FixedParts", "Part", "Tally", "TrialSteps", "Used"]

UNITS = 10**15
"""Units in a Rényi divergence of 1. Prices are rounded up to whole units and budgets down, so sums are exact."""

Part: TypeAlias = tuple[SampledGaussian, int]
"""A mechanism and a number of steps."""

Used: TypeAlias = Mapping[SampledGaussian, int]
"""Steps of each mechanism that are reserved or charged."""


class TrialSteps(Protocol):
    """A mechanism that a planned trial may choose, and the range of the trial's steps."""

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step."""

    @property
    def longest(self) -> int:
        """Steps of the longest trial."""

    @property
    def shortest(self) -> int:
        """Steps of the shortest trial."""


@dataclass(frozen=True)
class Tally:
    """Totals of the reserved and charged steps, for a request of steps of one mechanism.

    Attributes:
        steps: steps of all mechanisms.
        same: steps of the requested mechanism.
        units: Rényi units of all steps; 0 if steps are not priced.
    """

    steps: int
    same: int
    units: int


class Filter(ABC):
    """A limit on what a search may do to the records. Each filter is a frozen dataclass.

    Attributes:
        kind: stable name in experiment files and ledger entries.
        label: the rule in one line, for the privacy card.
        accounting: how ε is computed, for the privacy card.
        assumption: (assumption, reason why it holds), for the privacy card.
        charged_whole: whether the whole search is charged when it begins. Then no single step is charged, and the
            ledger shows nothing about the runs.
    """

    kind: ClassVar[str]
    label: ClassVar[str]
    accounting: ClassVar[str]
    assumption: ClassVar[tuple[str, str]]
    charged_whole: ClassVar[bool] = False

    # The rule.

    @property
    @abstractmethod
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """The mechanisms that a trial may use; empty if it may use any."""

    @property
    def only_mechanism(self) -> SampledGaussian | None:
        """The only mechanism that a trial may use; None if there are several."""
        return self.mechanisms[0] if len(self.mechanisms) == 1 else None

    def admits(self, mechanism: SampledGaussian) -> bool:
        """Return whether a trial may use `mechanism`."""
        return not self.mechanisms or mechanism in self.mechanisms

    @abstractmethod
    def left_after(self, tally: Tally, mechanism: SampledGaussian, *, price: int) -> int:
        """Return how many more steps with `mechanism` can be reserved.

        Args:
            tally: totals of the reserved and charged steps.
            mechanism: the requested mechanism.
            price: Rényi units of one step; 0 if steps are not priced.
        """

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """Return how many more steps with `mechanism` can be reserved; 0 if no trial may use it."""
        tally = Tally(steps=sum(used.values()), same=used.get(mechanism, 0), units=self.units(used))
        return self.left_after(tally, mechanism, price=self.price(mechanism))

    @abstractmethod
    def claim(self, delta: float) -> float:
        """Return ε at `delta` of everything that the filter allows; `math.inf` if there is no bound."""

    def claims(self, deltas: Sequence[float]) -> Sequence[float]:
        """Return `claim` at each of `deltas`."""
        return [self.claim(delta) for delta in deltas]

    def discretisation_error(self, delta: float) -> float | None:
        """Return how far the claim may be above the true ε because of its grid; None if that is not estimated."""
        return None

    # Rényi divergence.

    @property
    def renyi_order(self) -> float | None:
        """The Rényi order at which steps are priced; None if steps are counted instead."""
        return None

    @property
    def priced(self) -> bool:
        """Whether each step has a price in Rényi units."""
        return self.renyi_order is not None

    def price(self, mechanism: SampledGaussian) -> int:
        """Return the Rényi units of one step of `mechanism`; 0 if steps are not priced."""
        return 0

    def units(self, used: Used) -> int:
        """Return the Rényi units of all steps in `used`; 0 if steps are not priced."""
        return sum(steps * self.price(mechanism) for mechanism, steps in used.items() if steps)

    @abstractmethod
    def units_at(self, order: float) -> int | None:
        """Return the Rényi units at `order` of everything that the filter allows; None if they are not finite."""

    # Steps, and shares of the budget.

    @property
    def most_steps(self) -> int | None:
        """Number of steps that the filter allows; None if that depends on the mechanisms or steps are not counted."""
        return None

    @abstractmethod
    def share(self, used: Used, *, units: int) -> float:
        """Return the share of the filter that the steps `used`, with `units` Rényi units, take: from 0 to 1."""

    @abstractmethod
    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return the least and the most of `trials` unpruned trials that fit, over all choices from `menu`."""

    def cheapest(self, trials: Sequence[Part]) -> Sequence[Part]:
        """Return the cheapest of `trials` (mechanism, steps): if any of `trials` fits, one of these fits."""
        return (min(trials, key=lambda trial: trial[1]),)

    @abstractmethod
    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: int, delta: float) -> float:
        """Return ε at `delta` of the smallest filter that admits all planned trials unpruned."""

    # Runs of a sealed search.

    @property
    def charged_runs(self) -> tuple[Part, ...]:
        """(mechanism, steps) of the runs that are charged as a whole; empty if each step is charged."""
        return ()

    @property
    def hidden_runs(self) -> tuple[RunLaw, int] | None:
        """Law and largest value of a hidden number of runs; None if the number of runs may be seen."""
        return None

    def law_facts(self, epsilon: float) -> dict[str, Any] | None:
        """Return the law of a hidden number of runs for the card of a search with this ε; None if there is none."""
        return None

    # In words and as JSON.

    @property
    @abstractmethod
    def summary(self) -> str:
        """The filter and its numbers in a few words, for a table."""

    @abstractmethod
    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the limit that a refused request of steps or releases (`unit`) would exceed, for its message."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""

    @classmethod
    @abstractmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""


class FixedParts(Filter):
    """Base class of filters that fix the steps of each mechanism and compose all of them once."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Each mechanism with its number of steps."""

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """The mechanisms that a trial may use."""
        return tuple(mechanism for mechanism, _ in self.parts)

    @property
    def most_steps(self) -> int:
        """Number of steps that the filter allows."""
        return sum(steps for _, steps in self.parts)

    def claim(self, delta: float) -> float:
        """Return ε at `delta` of all steps composed; `math.inf` if there is no bound."""
        return epsilon_composed(self.parts, delta)

    def claims(self, deltas: Sequence[float]) -> Sequence[float]:
        """Return `claim` at each of `deltas`, from one composition."""
        return epsilon_curve(self.parts, deltas)

    def units_at(self, order: float) -> int | None:
        """Return the Rényi units at `order` of all steps; None if they are not finite."""
        prices = [(divergence(mechanism, order), steps) for mechanism, steps in self.parts]
        if not all(isfinite(price) for price, _ in prices):
            return None
        return sum(ceil(price * UNITS) * steps for price, steps in prices)
