"""State of a data set: what its entries add up to, from the cap and the shares down to each trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, Inexact
from functools import cached_property
from typing import Any

from tuner.errors import LedgerError
from tuner.privacy.accountant.filters import Filter, Tally
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.entries import GENESIS
from tuner.privacy.ledger.persistent import Persistent

__all__ = [
    "TRAINING",
    "VALIDATION",
    "Committed",
    "DatasetCap",
    "DatasetState",
    "PoolState",
    "SearchState",
    "Share",
    "TrialAccount",
    "exact_sum",
]

TRAINING, VALIDATION = "training", "validation"
"""The pools of a search: the records that train and, where scores are inside the guarantee, those that validate."""

_EXACT = Context(prec=2000, traps=[Inexact])  # more digits than the sum of any two doubles has


def exact_sum(*values: float | Decimal) -> Decimal:
    """Return the sum in the decimals that people wrote: three times 0.1 is exactly 0.3."""
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value if isinstance(value, Decimal) else Decimal(repr(value)))
    return total


@dataclass(frozen=True)
class DatasetCap:
    """The (ε, δ) that the owner of a data set allows for all searches together.

    Attributes:
        epsilon: of all searches together.
        delta: of all searches together.
        order: of the Rényi filter that may admit a search too, each of the two rules with half of δ; None for the sum
            of the searches' (ε, δ) alone.
        units: budget of that filter, in `filters.UNITS`; None where it would admit nothing.
    """

    epsilon: float
    delta: float
    order: float | None = None
    units: int | None = None


@dataclass(frozen=True)
class Share:
    """The (ε, δ) of the data set's cap that the searches of one user may commit; zero once it was revoked."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class TrialAccount:
    """The account of one trial in one pool: what it was promised, what it durably charged, and how it ended.

    Attributes:
        mechanism: of every step that is reserved and leased; None before the first reservation.
        reserved: steps reserved over its life.
        leased: steps charged, by all attempts together; they stay charged.
        settled: whether it ended; what was reserved and never leased has then been returned.
        taken: training steps that it reported when it was settled, else None.
        price: Rényi units of one step, as noted at its first reservation; 0 where steps are not priced.
        restarts: how often it reserved again after it had leased, because it was interrupted and repeats steps.
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
        """Steps that are reserved and not yet leased; 0 once it is settled."""
        return 0 if self.settled else self.reserved - self.leased


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """One filter and what the trials take of it. A step of the pool `validation` is one released score.

    Attributes:
        filter: the limit of the pool.
        trials: accounts by trial id.
        leased: steps charged, by mechanism.
        reserved: steps promised and not yet leased, by mechanism.
        leased_steps: steps charged, of all mechanisms.
        reserved_steps: steps promised and not yet leased, of all mechanisms.
        leased_units: Rényi units of what is leased; 0 where steps are not priced.
        reserved_units: Rényi units of what is promised and not yet leased.
    """

    filter: Filter
    trials: Persistent[str, TrialAccount] = field(default_factory=Persistent)
    leased: Persistent[SampledGaussian, int] = field(default_factory=Persistent)
    reserved: Persistent[SampledGaussian, int] = field(default_factory=Persistent)
    leased_steps: int = 0
    reserved_steps: int = 0
    leased_units: int = 0
    reserved_units: int = 0

    def left(self, mechanism: SampledGaussian, *, price: int | None = None) -> int:
        """Return how many more steps of `mechanism` may be promised, whatever the number of trials.

        Args:
            mechanism: of the steps.
            price: Rényi units of one step where they are known already.
        """
        tally = Tally(
            steps=self.leased_steps + self.reserved_steps,
            same=self.leased.get(mechanism, 0) + self.reserved.get(mechanism, 0),
            units=self.leased_units + self.reserved_units,
        )
        price = self.filter.price(mechanism) if price is None else price
        return self.filter.left_after(tally, mechanism, price=price)

    def with_trial(self, trial: str, after: TrialAccount) -> PoolState:
        """Return the pool with this account of `trial`."""
        before = self.trials.get(trial, TrialAccount())
        mechanism = after.mechanism
        leased, reserved = after.leased - before.leased, after.outstanding - before.outstanding
        by_leased, by_reserved = self.leased, self.reserved
        if mechanism is not None:
            by_leased = by_leased.with_item(mechanism, by_leased.get(mechanism, 0) + leased)
            by_reserved = by_reserved.with_item(mechanism, by_reserved.get(mechanism, 0) + reserved)
        return PoolState(
            filter=self.filter,
            trials=self.trials.with_item(trial, after),
            leased=by_leased,
            reserved=by_reserved,
            leased_steps=self.leased_steps + leased,
            reserved_steps=self.reserved_steps + reserved,
            leased_units=self.leased_units + leased * after.price,
            reserved_units=self.reserved_units + reserved * after.price,
        )


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """One search: what its entries add up to.

    Attributes:
        search: name, unique in the ledger.
        dataset: whose records.
        epsilon: the claim, for a record that trains and for one that validates.
        delta: the claim.
        pools: `training`, and `validation` where scores are inside the guarantee.
        validation_claim: the (ε, δ) of the pool `validation`, or None.
        unit: `record` or `user`: neighbouring data sets differ by one of them.
        user: who opened it.
        fingerprint: of the data, or None.
        details: notes of the caller from when it was opened.
        status: `open` or `closed`.
        begun: whether it was charged as a whole.
        cards: (sha256, kind, seq) of each card recorded.
        units: Rényi units at the order of the data set's cap, from when it began to count; None where not finite.
        opened_seq: number of the entry that opened it.
        opened_time: time of that entry.
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
    def filter(self) -> Filter:
        """The filter of the training pool."""
        return self.training.filter

    @property
    def charged_whole(self) -> bool:
        """Whether it is sealed: charged as a whole when it begins, with its runs hidden."""
        return self.filter.charged_whole

    @property
    def trials(self) -> Persistent[str, TrialAccount]:
        """The accounts of the trials in the training pool."""
        return self.training.trials

    @property
    def leased_steps(self) -> int:
        """Training steps that are charged."""
        return self.training.leased_steps

    @property
    def reserved_steps(self) -> int:
        """Training steps that are promised and not yet leased."""
        return self.training.reserved_steps

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every training step, where its filter allows only one.

        Raises:
            LedgerError: the filter allows several.
        """
        only = self.filter.only_mechanism
        if only is None:
            raise LedgerError(
                "mechanism-not-single",
                f"The trials of search {self.search!r} choose among several mechanisms ({self.filter.summary}). "
                "Name the mechanism.",
            )
        return only

    @property
    def touched(self) -> bool:
        """Whether anything that it shows may depend on a record."""
        return self.begun or any(pool.leased_steps > 0 for pool in self.pools.values())

    @property
    def counts(self) -> bool:
        """Whether its claim counts against the data set: not if it was closed before it touched a record."""
        return self.status == "open" or self.touched


@dataclass(frozen=True)
class Committed:
    """The total of the searches that count, without rounding.

    Attributes:
        epsilon: sum of their ε.
        delta: sum of their δ.
        units: sum of their Rényi units, where those are finite.
        unbounded: number of searches without finite Rényi units.
        unit: `record` or `user`; None where nothing counts.
        searches: number of searches.
    """

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    units: int = 0
    unbounded: int = 0
    unit: str | None = None
    searches: int = 0

    def adding(self, search: SearchState, sign: int) -> Committed:
        """Return the total with `search` (`sign` 1) or without it (−1)."""
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
    """Everything that was allowed and charged on one data set.

    Attributes:
        dataset: name.
        cap: the owner's latest cap, or None.
        grants: the latest share of each user who ever had one.
        by_name: the searches by name, in the order in which they were opened.
        committed: the total of the searches that count.
        committed_of: the same by user.
        fingerprints: of the records that the searches named.
        seq: number of entries.
        head: hash of the last one.
    """

    dataset: str
    cap: DatasetCap | None = None
    grants: Persistent[str, Share] = field(default_factory=Persistent)
    by_name: Persistent[str, SearchState] = field(default_factory=Persistent)
    committed: Committed = Committed()
    committed_of: Persistent[str, Committed] = field(default_factory=Persistent)
    fingerprints: frozenset[str] = frozenset()
    seq: int = 0
    head: str = GENESIS

    @cached_property
    def searches(self) -> tuple[SearchState, ...]:
        """The searches, in the order in which they were opened."""
        return tuple(self.by_name.values())

    @property
    def committed_epsilon(self) -> float:
        """Sum of the ε of the searches that count, which the data set's cap limits."""
        return float(self.committed.epsilon)

    @property
    def committed_delta(self) -> float:
        """Sum of the δ of the searches that count."""
        return float(self.committed.delta)

    def committed_by(self, user: str) -> tuple[float, float]:
        """Return the sums of ε and of δ of one user's searches that count."""
        found = self.committed_of.get(user, Committed())
        return float(found.epsilon), float(found.delta)

    def with_search(self, after: SearchState) -> DatasetState:
        """Return the data set with this state of the search of that name."""
        before = self.by_name.get(after.search)
        committed, of = self.committed, self.committed_of
        for search, sign in ((before, -1), (after, 1)):
            # What a search commits is fixed when it begins to count, so that the same amount is subtracted again.
            if search is not None and search.counts and not (before and after.counts and before.counts):
                committed = committed.adding(search, sign)
                of = of.with_item(search.user, of.get(search.user, Committed()).adding(search, sign))
        known, named = self.fingerprints, after.fingerprint
        return replace(
            self,
            by_name=self.by_name.with_item(after.search, after),
            committed=committed,
            committed_of=of,
            fingerprints=known if named is None or named in known else known | {named},
        )
