"""What the entries of a data set add up to: its cap and shares, its searches, their pools, their trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, Inexact
from functools import cached_property
from typing import Any

from tuner.errors import LedgerError
from tuner.privacy.accountant.filters import Allowance, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.entries import GENESIS
from tuner.privacy.ledger.persistent import Persistent

__all__ = [
    "TRAINING",
    "VALIDATION",
    "Cap",
    "Committed",
    "DatasetState",
    "PoolState",
    "SearchState",
    "Share",
    "TrialState",
    "exact_sum",
]

TRAINING, VALIDATION = "training", "validation"
"""The pools of a search: the records that train, and those that score where that is inside the guarantee."""

_EXACT = Context(prec=2000, traps=[Inexact])  # more digits than the sum of any two doubles has


def exact_sum(*values: float | Decimal) -> Decimal:
    """The sum of the decimals that people wrote: three times 0.1 is 0.3, not a hair more."""
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value if isinstance(value, Decimal) else Decimal(repr(value)))
    return total


@dataclass(frozen=True)
class Cap:
    """The (ε, δ) that the owner of a data set allows over all searches.

    Attributes:
        epsilon: over all searches.
        delta: over all searches.
        order: of the Rényi filter that may admit a search as well, each of the two rules with half of δ; None for the
            sum of the searches' (ε, δ) alone.
        units: what that filter holds, in `allowances.UNITS`; None where it would admit nothing.
    """

    epsilon: float
    delta: float
    order: float | None = None
    units: int | None = None


@dataclass(frozen=True)
class Share:
    """The (ε, δ) of the data set's cap that one user's searches may have committed; zero when it was revoked."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class TrialState:
    """What one trial was promised of one pool, what it durably charged, and how it ended.

    Attributes:
        mechanism: of every step; None before the first reservation.
        reserved: steps reserved over its life.
        leased: steps charged, all attempts together; they stay charged.
        settled: whether it ended; what was reserved and never leased has then gone back.
        taken: training steps it said it took when it was settled, else None.
        price: Rényi units of one step, as noted when it was first reserved; 0 outside a fixed order.
        restarts: how often it reserved again after it had leased: it was cut off, and repeats steps.
    """

    mechanism: SampledGaussian | None = None
    reserved: int = 0
    leased: int = 0
    settled: bool = False
    taken: int | None = None
    price: int = 0
    restarts: int = 0

    @property
    def outstanding(self) -> int:
        """Steps reserved and not yet leased; 0 once settled."""
        return 0 if self.settled else self.reserved - self.leased


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """One allowance and what the trials have of it. A step of the pool `validation` is one released score.

    Attributes:
        allowance: the filter.
        trials: by id.
        leased: steps charged, by mechanism.
        reserved: steps promised and not yet leased, by mechanism.
        leased_steps: all together.
        reserved_steps: all together.
        leased_units: Rényi units of what is leased; 0 outside a fixed order.
        reserved_units: Rényi units of what is promised and not yet leased.
    """

    allowance: Allowance
    trials: Persistent[str, TrialState] = field(default_factory=Persistent)
    leased: Persistent[SampledGaussian, int] = field(default_factory=Persistent)
    reserved: Persistent[SampledGaussian, int] = field(default_factory=Persistent)
    leased_steps: int = 0
    reserved_steps: int = 0
    leased_units: int = 0
    reserved_units: int = 0

    def used(self) -> dict[SampledGaussian, int]:
        """Steps of each mechanism that are leased or promised."""
        return {mechanism: self.leased.get(mechanism, 0) + steps for mechanism, steps in self.reserved.items()}

    def price(self, mechanism: SampledGaussian) -> int:
        """Rényi units of one step of `mechanism`; 0 outside a fixed order."""
        return self.allowance.price(mechanism) if isinstance(self.allowance, FixedOrder) else 0

    def left(self, mechanism: SampledGaussian, *, price: int | None = None) -> int:
        """How many more steps of `mechanism` may be promised, whatever the number of trials.

        Args:
            mechanism: of the steps.
            price: Rényi units of one step where they are known; read under a fixed order only.
        """
        if not isinstance(self.allowance, FixedOrder):
            return self.allowance.left(self.used(), mechanism)
        price = self.price(mechanism) if price is None else price
        return max((self.allowance.budget - self.leased_units - self.reserved_units) // price, 0)

    def having(self, trial: str, after: TrialState) -> PoolState:
        """The pool once `trial` stands as `after`."""
        before = self.trials.get(trial, TrialState())
        mechanism = after.mechanism
        leased, reserved = after.leased - before.leased, after.outstanding - before.outstanding
        by_leased, by_reserved = self.leased, self.reserved
        if mechanism is not None:
            by_leased = by_leased.having(mechanism, by_leased.get(mechanism, 0) + leased)
            by_reserved = by_reserved.having(mechanism, by_reserved.get(mechanism, 0) + reserved)
        return PoolState(
            allowance=self.allowance,
            trials=self.trials.having(trial, after),
            leased=by_leased,
            reserved=by_reserved,
            leased_steps=self.leased_steps + leased,
            reserved_steps=self.reserved_steps + reserved,
            leased_units=self.leased_units + leased * after.price,
            reserved_units=self.reserved_units + reserved * after.price,
        )


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """One search as its entries tell it.

    Attributes:
        search: name, unique in the ledger.
        dataset: whose records.
        epsilon: the cap of this search, the claim: for a record that trains and for one that validates.
        delta: with that δ.
        pools: `training`, and `validation` where scores are inside the guarantee.
        validation_claim: the (ε, δ) of the pool `validation`, or None.
        unit: `record` or `user`: what a neighbour has one more or less of.
        user: who opened it.
        fingerprint: of the data, or None.
        details: what the caller noted when it was opened.
        status: `open` or `closed`.
        begun: whether a sealed search was charged.
        cards: (sha256, kind, seq) of each card recorded.
        units: Rényi units at the order of the data set's cap, when it began to count; None when not finite.
        opened_seq: where in the data set's chain it was opened.
        opened_time: the note beside it.
    """

    search: str
    dataset: str
    epsilon: float
    delta: float
    pools: Mapping[str, PoolState]
    validation_claim: tuple[float, float] | None
    unit: str
    user: str
    fingerprint: str | None
    details: Mapping[str, Any]
    status: str = "open"
    begun: bool = False
    cards: tuple[tuple[str, str, int], ...] = ()
    units: int | None
    opened_seq: int
    opened_time: str

    @property
    def training(self) -> PoolState:
        """The pool of the records that train."""
        return self.pools[TRAINING]

    @property
    def validation(self) -> PoolState | None:
        """The pool of the records that score; None where their scores are outside the guarantee."""
        return self.pools.get(VALIDATION)

    @property
    def allowance(self) -> Allowance:
        """Of the training pool."""
        return self.training.allowance

    @property
    def sealed(self) -> bool:
        """Whether it is charged as a whole when it begins."""
        return isinstance(self.allowance, Sealed)

    @property
    def trials(self) -> Persistent[str, TrialState]:
        """What the trials have of the training pool."""
        return self.training.trials

    @property
    def leased_steps(self) -> int:
        """Training steps charged."""
        return self.training.leased_steps

    @property
    def reserved_steps(self) -> int:
        """Training steps promised and not yet leased."""
        return self.training.reserved_steps

    @property
    def mechanism(self) -> SampledGaussian:
        """Of every training step, under a cap on total steps.

        Raises:
            LedgerError: the search has another allowance.
        """
        if not isinstance(self.allowance, TotalSteps):
            raise LedgerError(
                f"only a search with a cap on total steps has one mechanism, {self.search!r} has an allowance of kind "
                f"{self.allowance.kind}. Read its allowance."
            )
        return self.allowance.mechanism

    @property
    def touched(self) -> bool:
        """Whether anything of it may depend on a record."""
        return self.begun or any(pool.leased_steps > 0 for pool in self.pools.values())

    @property
    def counts(self) -> bool:
        """Whether its cap counts against the data set: not when it was closed before it touched a record."""
        return self.status == "open" or self.touched


@dataclass(frozen=True)
class Committed:
    """What the searches that count hold together, without rounding.

    Attributes:
        epsilon: sum of their ε.
        delta: sum of their δ.
        units: sum of their Rényi units, of those where they are finite.
        unbounded: how many have none.
        unit: `record` or `user`; None when nothing counts.
        searches: how many.
    """

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    units: int = 0
    unbounded: int = 0
    unit: str | None = None
    searches: int = 0

    def adding(self, search: SearchState, sign: int) -> Committed:
        """With `search` (`sign` 1), or without it (−1)."""
        searches = self.searches + sign
        return Committed(
            epsilon=exact_sum(self.epsilon, sign * search.epsilon),
            delta=exact_sum(self.delta, sign * search.delta),
            units=self.units + sign * (search.units or 0),
            unbounded=self.unbounded + sign * (search.units is None),
            unit=search.unit if searches else None,
            searches=searches,
        )


@dataclass(frozen=True, kw_only=True)
class DatasetState:
    """All that was ever allowed and charged on one data set.

    Attributes:
        dataset: name.
        cap: the owner's latest cap, or None.
        grants: the latest share of each user who ever had one.
        by_name: the searches, in the order in which they were opened.
        committed: what those hold that count.
        committed_of: the same by user.
        fingerprints: of the records that the searches named.
        seq: number of entries.
        head: hash of the last one.
    """

    dataset: str
    cap: Cap | None = None
    grants: Persistent[str, Share] = field(default_factory=Persistent)
    by_name: Persistent[str, SearchState] = field(default_factory=Persistent)
    committed: Committed = Committed()
    committed_of: Persistent[str, Committed] = field(default_factory=Persistent)
    fingerprints: frozenset[str] = frozenset()
    seq: int = 0
    head: str = GENESIS

    @cached_property
    def searches(self) -> tuple[SearchState, ...]:
        """In the order in which they were opened."""
        return tuple(self.by_name.values())

    @property
    def committed_epsilon(self) -> float:
        """Sum of the ε caps of the searches that count: what the data set's cap is held against."""
        return float(self.committed.epsilon)

    @property
    def committed_delta(self) -> float:
        """Sum of the δ of the searches that count."""
        return float(self.committed.delta)

    def committed_by(self, user: str) -> tuple[float, float]:
        """The same of one user's searches: (ε, δ)."""
        found = self.committed_of.get(user, Committed())
        return float(found.epsilon), float(found.delta)

    def having(self, after: SearchState) -> DatasetState:
        """The data set once the search of that name stands as `after`."""
        before = self.by_name.get(after.search)
        committed, of = self.committed, self.committed_of
        for search, sign in ((before, -1), (after, 1)):
            # What a search holds is noted when it begins to count, so that the same is taken off again.
            if search is not None and search.counts and not (before and after.counts and before.counts):
                committed = committed.adding(search, sign)
                of = of.having(search.user, of.get(search.user, Committed()).adding(search, sign))
        known, named = self.fingerprints, after.fingerprint
        return replace(
            self,
            by_name=self.by_name.having(after.search, after),
            committed=committed,
            committed_of=of,
            fingerprints=known if named is None or named in known else known | {named},
        )
