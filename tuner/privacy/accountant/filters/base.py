"""Abstract filter: what every filter of a search answers.

A filter is fixed before its search starts. It says whether more steps of a mechanism may be promised, given everything
promised before, and which (ε, δ) holds whatever is done with the promises: in any order, by any number of trials at
once, wherever each of them stops. `docs/guarantees.md` has the proofs.
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
"""Rényi divergence is counted in whole units of 1e-15, prices rounded up and budgets down: sums have no rounding."""

Part: TypeAlias = tuple[SampledGaussian, int]
"""A mechanism and a number of its steps."""

Used: TypeAlias = Mapping[SampledGaussian, int]
"""Steps of each mechanism that are leased or promised."""


class TrialSteps(Protocol):
    """The steps that a planned trial may take of one mechanism."""

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step."""
        ...

    @property
    def longest(self) -> int:
        """The most steps of a trial."""
        ...

    @property
    def shortest(self) -> int:
        """The fewest steps of a trial."""
        ...


@dataclass(frozen=True)
class Tally:
    """What is leased and promised, as far as one more step of one mechanism depends on it.

    Attributes:
        steps: of all mechanisms.
        same: of the mechanism that is asked for.
        units: Rényi units of all steps; 0 where steps are not priced.
    """

    steps: int
    same: int
    units: int


class Filter(ABC):
    """A limit on what a search may do to the records.

    A new filter is one module: a frozen dataclass that inherits from this class and is listed in
    `tuner.privacy.accountant.filters.FILTERS`.

    Attributes:
        kind: stable name, in experiment files and ledger entries.
        label: the rule in one line, for the privacy card.
        accounting: how ε is computed, for the privacy card.
        assumption: what the guarantee rests on, and why it holds, for the privacy card.
        charged_whole: whether the search is charged as a whole when it begins. Then no step is charged by itself, and
            the ledger shows nothing of the runs.
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
        """The mechanisms that a trial may use; empty where it may use any."""

    @property
    def only_mechanism(self) -> SampledGaussian | None:
        """The only mechanism that a trial may use; None where there are several."""
        return self.mechanisms[0] if len(self.mechanisms) == 1 else None

    def admits(self, mechanism: SampledGaussian) -> bool:
        """Return whether a trial may use `mechanism`."""
        return mechanism in self.mechanisms

    @abstractmethod
    def left_after(self, tally: Tally, mechanism: SampledGaussian, *, price: int) -> int:
        """Return how many more steps of `mechanism` may be promised.

        Args:
            tally: what is leased and promised.
            mechanism: of the steps.
            price: Rényi units of one step; 0 where steps are not priced.
        """

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """Return how many more steps of `mechanism` may be promised; 0 for one that no trial may use."""
        tally = Tally(steps=sum(used.values()), same=used.get(mechanism, 0), units=self.units(used))
        return self.left_after(tally, mechanism, price=self.price(mechanism))

    @abstractmethod
    def claim(self, delta: float) -> float:
        """Return ε at `delta` of everything that the filter allows; `math.inf` where nothing is claimed."""

    def claims(self, deltas: Sequence[float]) -> Sequence[float]:
        """Return what `claim` gives at each of `deltas`."""
        return [self.claim(delta) for delta in deltas]

    def discretisation_error(self, delta: float) -> float | None:
        """Return how far the claim may be above the true ε because of its grid; None where that is not estimated."""
        return None

    # Rényi divergence.

    @property
    def renyi_order(self) -> float | None:
        """The Rényi order at which steps are priced; None where steps are counted instead."""
        return None

    @property
    def priced(self) -> bool:
        """Whether each step has a price in Rényi units."""
        return self.renyi_order is not None

    def price(self, mechanism: SampledGaussian) -> int:
        """Return the Rényi units of one step of `mechanism`; 0 where steps are not priced."""
        return 0

    def units(self, used: Used) -> int:
        """Return the Rényi units of all of `used`; 0 where steps are not priced."""
        return sum(steps * self.price(mechanism) for mechanism, steps in used.items() if steps)

    @abstractmethod
    def units_at(self, order: float) -> int | None:
        """Return the Rényi units at `order` of everything that the filter allows; None where they are not finite."""

    # Steps, and shares of the budget.

    @property
    def most_steps(self) -> int | None:
        """All steps that the filter allows; None where that depends on their mechanisms, or no step is counted."""
        return None

    @abstractmethod
    def share(self, used: Used, *, units: int) -> float:
        """Return the share of the filter that `used` takes, from 0 to 1.

        Args:
            used: steps of each mechanism.
            units: their Rényi units; 0 where steps are not priced.
        """

    @abstractmethod
    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return how many of `trials` trials fit when none is pruned: the least and the most, whatever they choose.

        Args:
            menu: what a trial may choose.
            trials: planned; also the answer where the number of runs is not counted.
        """

    def cheapest(self, trials: Sequence[Part]) -> Sequence[Part]:
        """Return those of `trials` of which one fits whenever any of them does.

        Args:
            trials: (mechanism, steps) of whole trials; at least one.
        """
        return (min(trials, key=lambda trial: trial[1]),)

    @abstractmethod
    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: int, delta: float) -> float:
        """Return ε at `delta` of the planned trials, none of them pruned: of the least filter that admits them."""

    # Runs of a sealed search.

    @property
    def charged_runs(self) -> tuple[Part, ...]:
        """(mechanism, steps) of the runs that are charged all together; empty where each step is charged."""
        return ()

    @property
    def hidden_runs(self) -> tuple[RunLaw, int] | None:
        """The law of a hidden number of runs, and where it is cut off; None where that number is open and charged."""
        return None

    def law_facts(self, epsilon: float) -> dict[str, Any] | None:
        """Return the law of the number of runs for the privacy card; None where that number is open and charged.

        Args:
            epsilon: of the search's claim.
        """
        return None

    # In words and as JSON.

    @property
    @abstractmethod
    def summary(self) -> str:
        """The filter with its numbers, in a few words for a table."""

    @abstractmethod
    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the limit that a refused request would pass, to complete "of all trials, at most …".

        Args:
            unit: `steps` or `releases`.
            mechanism: that was asked for.
        """

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""

    @classmethod
    @abstractmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter that `body()` wrote.

        Raises:
            InputError: a value is out of range.
            KeyError: a value is missing.
        """


class FixedParts(Filter):
    """Base of the filters that fix a number of steps of each mechanism, all composed once."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The mechanisms, each with all of its steps."""

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """The mechanisms that a trial may use."""
        return tuple(mechanism for mechanism, _ in self.parts)

    @property
    def most_steps(self) -> int:
        """All steps that the filter allows."""
        return sum(steps for _, steps in self.parts)

    def claim(self, delta: float) -> float:
        """Return ε at `delta` of all steps composed, or `math.inf` if no finite bound can be given."""
        return epsilon_composed(self.parts, delta)

    def claims(self, deltas: Sequence[float]) -> Sequence[float]:
        """Return what `claim` gives at each of `deltas`, from one composition."""
        return epsilon_curve(self.parts, deltas)

    def units_at(self, order: float) -> int | None:
        """Return the Rényi units at `order` of all steps; None where they are not finite."""
        prices = [(divergence(mechanism, order), steps) for mechanism, steps in self.parts]
        if not all(isfinite(price) for price, _ in prices):
            return None
        return sum(ceil(price * UNITS) * steps for price, steps in prices)
