"""Base classes of the privacy filters (caps).

A filter is fixed before its search starts. From the steps that are already reserved or charged, it computes how many
more steps trials may reserve. Its claim holds in whatever sequence the steps are taken, however many trials run at
once, and whenever trials stop.

Formal guarantees:
    H_ε(P, Q) = sup over sets S of P(S) − e^ε·Q(S), the hockey-stick divergence, is jointly convex. A pair of laws
    dominates a mechanism if its H_ε is at least the mechanism's for every real ε. By Blackwell's theorem, the outputs
    on D and D′ are then one random function of a draw from either law.

    Claim. A search takes at most n_j steps of the mechanism M_j, j = 1, …, m. It chooses their order, their moments and
    all other settings from what it has seen. Then it is (ε, δ)-DP for every (ε, δ) of the composition of n_j dominating
    pairs of each M_j.

    Proof. Draw n_j samples of each pair in advance. The t-th step of M_j is a random function of its t-th sample, so
    the search is a random function of all samples, used or not, and no function raises H_ε. Concurrent trials only
    choose an order, because a step is one mechanism without interaction and is charged before its batch is drawn. A
    step that was reserved and never leased was never drawn, so another step may use its sample. Adding and removing a
    record are composed separately, and the larger δ counts.

    So the claim covers a smaller cap (`search.full_runs`), where pauses and promotions are choices from what was seen,
    and a committed run (`search.commit`), whose steps have other noise and so a quota of their own. `fixed_order` and
    the modules of filters that are charged as a whole state their own claims.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon_composed, epsilon_curve
from tuner.privacy.accountant.rdp import divergence
from tuner.privacy.accountant.run_laws import RunLaw

__all__ = ["UNITS", "ChargedWhole", "Filter", "FixedParts", "Part", "TrialSteps", "Used", "steps_of_runs"]

UNITS = 10**15
"""Number of Rényi units that make up a Rényi divergence of 1.

Prices of steps and budgets of filters are whole numbers of units, so their sums are exact. Prices are rounded up, and
budgets are rounded down.
"""

Part: TypeAlias = tuple[SampledGaussian, int]
"""A mechanism and its number of steps."""


def steps_of_runs(runs: float, longest: int) -> int:
    """Return the steps of `runs` runs of `longest` steps each, rounded up. `runs` may be a fraction."""
    return ceil(runs * longest * (1 - 1e-12))


Used: TypeAlias = Mapping[SampledGaussian, int]
"""Number of reserved or charged steps of each mechanism."""


class TrialSteps(Protocol):
    """One choice for a planned trial: the mechanism, and the smallest and the largest number of steps."""

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step of the trial."""

    @property
    def longest(self) -> int:
        """Largest number of steps that the trial may take."""

    @property
    def shortest(self) -> int:
        """Smallest number of steps that the trial may take."""


class Filter(ABC):
    """Privacy filter: a limit on the private steps of a search. Each subclass is a frozen dataclass.

    Attributes:
        kind: name of the kind of filter in experiment files and ledger entries. It never changes.
        label: one-line description of the limit, for the privacy card.
        accounting: how ε is computed, for the privacy card.
        assumption: pair (assumption, reason why it holds), for the privacy card.
        charged_whole: whether the ledger charges the whole search before its first step, instead of charging each step.
            If so, the ledger shows nothing about single runs.
        mode: name of the accounting mode whose searches have this filter.
        mechanism_label: what is charged, in words for the privacy card.
    """

    kind: ClassVar[str]
    label: ClassVar[str]
    accounting: ClassVar[str]
    assumption: ClassVar[tuple[str, str]]
    charged_whole: ClassVar[bool] = False
    mode: ClassVar[str] = "composition"
    mechanism_label: ClassVar[str] = "one Poisson-subsampled Gaussian mechanism per training step"

    # The rule.

    @property
    @abstractmethod
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """The mechanisms that a trial may use; empty if a trial may use any mechanism."""

    @property
    def only_mechanism(self) -> SampledGaussian | None:
        """The only mechanism that a trial may use; None if a trial may choose among several."""
        return self.mechanisms[0] if len(self.mechanisms) == 1 else None

    def admits(self, mechanism: SampledGaussian) -> bool:
        """Return whether a trial may use `mechanism`."""
        return mechanism in self.mechanisms

    @abstractmethod
    def left_after(self, mechanism: SampledGaussian, *, steps: int, same: int, units: int, price: int) -> int:
        """Return how many more steps with `mechanism` can be reserved.

        Args:
            mechanism: the requested mechanism.
            steps: number of steps already reserved or charged, over all mechanisms.
            same: number of steps already reserved or charged with the requested mechanism.
            units: price of the `steps` steps in Rényi units; 0 if the filter does not price steps.
            price: Rényi units of one more step; 0 if the filter does not price steps.
        """

    def left(self, used: Used, mechanism: SampledGaussian) -> int:
        """Return how many more steps with `mechanism` can be reserved; 0 if the filter does not allow `mechanism`."""
        return self.left_after(
            mechanism,
            steps=sum(used.values()),
            same=used.get(mechanism, 0),
            units=self.units(used),
            price=self.price(mechanism),
        )

    @abstractmethod
    def claim(self, delta: float) -> float:
        """Return the ε at `delta` that a search with this filter never exceeds; `math.inf` if there is no bound."""

    def claims(self, deltas: Sequence[float]) -> Sequence[float]:
        """Return the claimed ε at each of `deltas`."""
        return [self.claim(delta) for delta in deltas]

    def discretisation_error(self, delta: float) -> float | None:
        """Return an upper estimate of how far rounding of losses raises the claimed ε; None if it is unknown."""
        return None

    # Rényi divergence.

    @property
    def renyi_order(self) -> float | None:
        """The Rényi order at which steps are priced; None if the filter does not price steps."""
        return None

    @property
    def priced(self) -> bool:
        """Whether each step has a price in Rényi units."""
        return self.renyi_order is not None

    def price(self, mechanism: SampledGaussian) -> int:
        """Return the price of one step of `mechanism` in Rényi units; 0 if the filter does not price steps."""
        return 0

    def units(self, used: Used) -> int:
        """Return the price, in Rényi units, of all steps in `used`; 0 if the filter does not price steps."""
        return sum(steps * self.price(mechanism) for mechanism, steps in used.items() if steps)

    @abstractmethod
    def units_at(self, order: float) -> int | None:
        """Return an upper bound of the search's Rényi divergence at `order`, in Rényi units; None if unknown."""

    # Steps, and shares of the budget.

    @property
    def most_steps(self) -> int | None:
        """Total number of steps that the filter allows; None if there is no fixed number."""
        return None

    @abstractmethod
    def share(self, used: Used, *, units: int) -> float:
        """Return the used share of the filter's limit, from 0 to 1. `units` is the price of all steps in `used`."""

    @abstractmethod
    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return how many of `trials` trials fit without pruning: first in the worst case, then in the best case.

        The cases differ in what the trials choose from `menu`.
        """

    def cheapest(self, trials: Sequence[Part]) -> Sequence[Part]:
        """Return the cheapest members of `trials`. If none of them fits the filter, no member of `trials` fits."""
        return (min(trials, key=lambda trial: trial[1]),)

    @abstractmethod
    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: float, delta: float) -> float:
        """Return the smallest ε at `delta` at which this kind of filter admits `trials` unpruned trials from `menu`.

        `trials` may be a fraction.
        """

    # Runs of a sealed search.

    @property
    def charged_runs(self) -> tuple[Part, ...]:
        """Pair (mechanism, steps) of each possible run of a sealed search; empty for every other search."""
        return ()

    @property
    def hidden_runs(self) -> tuple[RunLaw, int] | None:
        """Probability law and largest possible value of the number of runs; None if the number is not hidden."""
        return None

    def law_facts(self, epsilon: float) -> dict[str, Any] | None:
        """Return facts about the law of the number of runs, for the privacy card; None if the number is not hidden.

        `epsilon` is the ε of the search's claim.
        """
        return None

    # In words and as JSON.

    @property
    @abstractmethod
    def summary(self) -> str:
        """Short text for a table: the kind of the filter, and its limits as numbers."""

    @abstractmethod
    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the filter's limit in words, for the message of a refused request. `unit` is `steps` or `releases`."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""

    @classmethod
    @abstractmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""


class FixedParts(Filter):
    """Base class of filters that allow a fixed number of steps of each mechanism."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Each mechanism with its allowed number of steps."""

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """The mechanisms that a trial may use."""
        return tuple(mechanism for mechanism, _ in self.parts)

    @property
    def most_steps(self) -> int:
        """Total number of steps that the filter allows."""
        return sum(steps for _, steps in self.parts)

    def claim(self, delta: float) -> float:
        """Return the ε at `delta` of all allowed steps composed; `math.inf` if there is no bound."""
        return epsilon_composed(self.parts, delta)

    def claims(self, deltas: Sequence[float]) -> Sequence[float]:
        """Return the claimed ε at each of `deltas`. The steps are composed only once."""
        return epsilon_curve(self.parts, deltas)

    def units_at(self, order: float) -> int | None:
        """Return the Rényi divergence of order `order` of all allowed steps, in Rényi units; None if it is infinite."""
        prices = [(divergence(mechanism, order), steps) for mechanism, steps in self.parts]
        if not all(isfinite(price) for price, _ in prices):
            return None
        return sum(ceil(price * UNITS) * steps for price, steps in prices)


class ChargedWhole(Filter):
    """Base class of filters whose search is charged as a whole, before its first use of the records.

    Attributes:
        charged_thing: what is charged as a whole, for the message of a refused request.
    """

    charged_whole: ClassVar[bool] = True
    charged_thing: ClassVar[str]

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """None: nothing is charged step by step."""
        return ()

    def left_after(self, mechanism: SampledGaussian, *, steps: int, same: int, units: int, price: int) -> int:
        """Return 0, because single steps cannot be reserved."""
        return 0

    def share(self, used: Used, *, units: int) -> float:
        """Return 0, because single steps are not charged."""
        return 0.0

    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return (`trials`, `trials`), because no trial is charged by itself."""
        return trials, trials

    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: float, delta: float) -> float:
        """Return the claimed ε at `delta`, whatever the trials are."""
        return self.claim(delta)

    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the limit 0 in words, for the message of a refused request. Single steps cannot be reserved."""
        return f"0 {unit}, because {self.charged_thing} charged as a whole"
