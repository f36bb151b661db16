"""State of a data set that follows from its ledger entries: cap, shares, searches and the accounts of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, Inexact
from functools import cached_property
from typing import Any

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.accountant.filters import Filter
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.division import NamedDivision
from tuner.privacy.ledger.entries import GENESIS, canonical
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
    "Void",
    "exact_sum",
]

TRAINING, VALIDATION = "training", "validation"
"""Names of the two pools of a search. A pool is a filter for training or validation records, and the charges to it."""

_EXACT = Context(prec=2000, traps=[Inexact])  # more digits than a sum of two doubles has


def exact_sum(*values: float | Decimal) -> Decimal:
    """Return the exact sum of the values as decimal numbers. For example, 0.1 + 0.1 + 0.1 is exactly 0.3."""
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value if isinstance(value, Decimal) else Decimal(repr(value)))
    return total


@dataclass(frozen=True)
class DatasetCap:
    """The (ε, δ) that the owner of a data set allows for all searches together.

    Attributes:
        order: order of a Rényi filter; None without one. The filter may admit a search for which the sum of the claims
            is too large. The limit on the sum and the filter each use half of δ.
        units: budget of the Rényi filter in Rényi units; None if there is no filter or it admits nothing.
    """

    epsilon: float
    delta: float
    order: float | None = None
    units: int | None = None


@dataclass(frozen=True)
class Share:
    """Largest (ε, δ) to which the claims of one user's searches may sum; (0, 0) for a revoked share."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Void:
    """Use of records without protection, for which the owner gave up the data set's total.

    Attributes:
        day: UTC day of the entry.
        use: `public` or `not private`.
        why: reason, in the owner's words.
        sweep: id of the sweep that used the records.
    """

    day: str
    use: str
    why: str
    sweep: str


@dataclass(frozen=True)
class TrialAccount:
    """Reserved and charged steps of one trial in one pool.

    Attributes:
        mechanism: mechanism of every step; None before the first reservation.
        reserved: total of the steps of all reservations, including the leased steps.
        leased: number of steps charged so far, over all attempts of the trial. A step is charged when it is leased.
        settled: whether the trial has ended. At its end, steps that were reserved but not leased become free again.
        taken: number of training steps that the trial reported when it was settled; None before that.
        price: Rényi units of one step, fixed by the first reservation; 0 if the filter does not count units.
        restarts: number of reservations of steps to repeat, which are those after the first lease. A reservation of the
            next rung (`rung` in its entry) repeats nothing and is not counted.
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
        """Steps that are reserved and not yet leased; 0 for a settled trial."""
        return 0 if self.settled else self.reserved - self.leased


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """Pool of a search: a filter, and the trials' charges. In the pool `validation`, a step is one released score.

    Attributes:
        filter: limit on the charges.
        claim: (ε, δ) that the search claims for the pool.
        trials: accounts by trial id.
        leased: charged steps by mechanism.
        reserved: steps by mechanism that are reserved and not yet leased.
        leased_steps: sum of `leased`.
        reserved_steps: sum of `reserved`.
        leased_units: Rényi units of `leased`; 0 if the filter does not count Rényi units.
        reserved_units: Rényi units of `reserved`; 0 if the filter does not count Rényi units.
    """

    filter: Filter
    claim: tuple[float, float]
    trials: Persistent[str, TrialAccount] = field(default_factory=Persistent)
    leased: Persistent[SampledGaussian, int] = field(default_factory=Persistent)
    reserved: Persistent[SampledGaussian, int] = field(default_factory=Persistent)
    leased_steps: int = 0
    reserved_steps: int = 0
    leased_units: int = 0
    reserved_units: int = 0

    def left(self, mechanism: SampledGaussian, *, price: int | None = None) -> int:
        """Return how many more steps with `mechanism` can be reserved.

        `price` is the price of one step in Rényi units. If it is None, it is computed.
        """
        return self.filter.left_after(
            mechanism,
            steps=self.leased_steps + self.reserved_steps,
            same=self.leased.get(mechanism, 0) + self.reserved.get(mechanism, 0),
            units=self.leased_units + self.reserved_units,
            price=self.filter.price(mechanism) if price is None else price,
        )

    def account(self, trial: str) -> TrialAccount:
        """Return the account of `trial`. Before the trial's first reservation, the account is empty."""
        return self.trials.get(trial, TrialAccount())

    def with_trial(self, trial: str, after: TrialAccount) -> PoolState:
        """Return a copy of the pool in which `after` is the account of `trial`."""
        before = self.account(trial)
        mechanism = after.mechanism
        leased, reserved = after.leased - before.leased, after.outstanding - before.outstanding
        by_leased, by_reserved = self.leased, self.reserved
        if mechanism is not None:
            by_leased = by_leased.with_item(mechanism, by_leased.get(mechanism, 0) + leased)
            by_reserved = by_reserved.with_item(mechanism, by_reserved.get(mechanism, 0) + reserved)
        return replace(
            self,
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
    """State of one search.

    Attributes:
        search: name, unique in the ledger.
        epsilon: ε of the claim, for each training record and each protected validation record.
        delta: δ of the claim.
        pools: `training`, and `validation` if the guarantee covers the scores.
        unit: `record` or `user`; neighbouring data sets differ by one record or one user.
        fingerprint: checksum of the data, or None.
        block_fingerprint: of a search on several blocks, checksum of the records of the block `dataset` alone.
        division: how the records are divided among users; None unless the unit is a user.
        details: notes by the caller that opened the search.
        status: `open` or `closed`.
        begun: whether the search was charged as a whole: it is sealed and has begun, or is a release that was charged.
        secrets: SHA-256 of the secrets of a sealed search that has begun; None for another one.
        stored: SHA-256 of the release that was drawn, if the search is a release; None before it is stored.
        cards: (SHA-256, kind, number of the entry) of each recorded card.
        units: Rényi units of the whole search at the order of the data set's cap, computed when the claim last began to
            count; None if the cap has no order or the units are infinite.
        opened_seq: number of the entry that opened the search.
        blocks: other data sets on which the search counts too, by a mirror (`blocks.py`).
        mirror_of: name of the search whose mirror this is; None for a search of its own.
    """

    search: str
    dataset: str
    epsilon: float
    delta: float
    pools: Mapping[str, PoolState]
    unit: str
    user: str
    fingerprint: str | None
    division: NamedDivision | None
    details: Mapping[str, Any]
    status: str = "open"
    begun: bool = False
    secrets: str | None = None
    stored: str | None = None
    cards: tuple[tuple[str, str, int], ...] = ()
    units: int | None
    opened_seq: int
    opened_time: str
    blocks: tuple[str, ...] = ()
    mirror_of: str | None = None
    block_fingerprint: str | None = None

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets on which the whole claim counts: its own, and for a search over blocks all other blocks."""
        return (self.dataset, *self.blocks)

    @property
    def records(self) -> str | None:
        """Checksum of the records of `dataset` alone, or None; `fingerprint` is that of all blocks of the search."""
        return self.fingerprint if self.block_fingerprint is None else self.block_fingerprint

    @property
    def split(self) -> dict[str, Any] | None:
        """What decides which records validate: the settings of the split, and the records; None if not recorded.

        The part of a record in a user's own file follows from a hash of its values. So one that was changed between two
        searches may train in one and validate in the other. A user's part follows from the user's name alone.
        """
        split: dict[str, Any] | None = self.details.get("split")
        by_values = "own" in self.details and self.unit == "record"
        if split is None or self.records is None or not (by_values and split.get("fraction")):
            return split
        return {**split, "records": self.records}

    @property
    def training(self) -> PoolState:
        """The pool of the training records."""
        return self.pools[TRAINING]

    @property
    def validation(self) -> PoolState | None:
        """The pool of the validation records; None if the guarantee does not cover the scores."""
        return self.pools.get(VALIDATION)

    @property
    def validation_claim(self) -> tuple[float, float] | None:
        """(ε, δ) of the validation pool; None if the guarantee does not cover the scores."""
        return self.validation.claim if self.validation else None

    @property
    def filter(self) -> Filter:
        """The filter of the training pool."""
        return self.training.filter

    @property
    def charged_whole(self) -> bool:
        """Whether the search is charged as a whole before anything is drawn: a sealed search, or a release."""
        return self.filter.charged_whole

    @property
    def hides_runs(self) -> bool:
        """Whether the search is sealed: the number of its runs is random and never shown."""
        return self.filter.hidden_runs is not None

    @property
    def trials(self) -> Persistent[str, TrialAccount]:
        """The accounts of the trials in the training pool."""
        return self.training.trials

    @property
    def leased_steps(self) -> int:
        """Number of charged training steps."""
        return self.training.leased_steps

    @property
    def reserved_steps(self) -> int:
        """Number of training steps that are reserved and not yet leased."""
        return self.training.reserved_steps

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every training step; raises `LedgerError` if the filter allows several."""
        only = self.filter.only_mechanism
        if only is None:
            raise LedgerError(
                "mechanism-not-single",
                f"The trials of search {self.search!r} can choose among several mechanisms ({self.filter.summary}). "
                "Name one of them.",
            )
        return only

    @property
    def touched(self) -> bool:
        """Whether anything was charged, so that an output of the search may depend on a record."""
        return self.begun or any(pool.leased_steps > 0 for pool in self.pools.values())

    @property
    def counts(self) -> bool:
        """Whether the claim counts against the cap. It does not count if the search was closed before any charge."""
        return self.status == "open" or self.touched


@dataclass(frozen=True)
class Committed:
    """Exact sums over the searches whose claims count against a data set's cap.

    Attributes:
        units: sum of the searches' Rényi units. Searches whose units are None are left out.
        unbounded: number of searches whose Rényi units are None.
        unit: unit of protection, `record` or `user`; None if no search counts.
        searches: number of searches.
    """

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    units: int = 0
    unbounded: int = 0
    unit: str | None = None
    searches: int = 0

    def adding(self, search: SearchState, sign: int) -> Committed:
        """Return the sums with `search` added (if `sign` is 1) or removed (if `sign` is −1)."""
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
    """State of one data set.

    Attributes:
        grants: for each user who ever had a share, the share that was set last.
        by_name: searches by name, in the order in which they were opened.
        committed: sums over the searches whose claims count against the cap.
        committed_of: the same sums for each user, over the user's own searches.
        fingerprints: keyed checksums of the searches' data.
        public: keyed checksums of records that the owner entered as public under this name.
        voids: uses for which the owner gave up the total; the total is void if there is one.
        seq: number of entries.
        head: hash of the last entry.
        damage: why the entries contradict each other; None for an intact data set. The other fields are then those
            before the first bad entry, and the fingerprints are those of all entries.
        doubtful: names of searches in the entries from the first bad entry on.
    """

    dataset: str
    cap: DatasetCap | None = None
    grants: Persistent[str, Share] = field(default_factory=Persistent)
    by_name: Persistent[str, SearchState] = field(default_factory=Persistent)
    committed: Committed = Committed()
    committed_of: Persistent[str, Committed] = field(default_factory=Persistent)
    fingerprints: frozenset[str] = frozenset()
    public: frozenset[str] = frozenset()
    voids: tuple[Void, ...] = ()
    seq: int = 0
    head: str = GENESIS
    damage: LedgerCorruptError | None = None
    doubtful: frozenset[str] = frozenset()

    def intact(self) -> DatasetState:
        """Return this state; raise `LedgerCorruptError` if the data set is damaged."""
        if self.damage is not None:
            raise LedgerCorruptError(
                self.damage.code,
                f"Data set {self.dataset!r} is damaged in the ledger, so nothing can be charged or claimed for it. "
                f"The ledger's other data sets can be used. {self.damage.message}",
            )
        return self

    @cached_property
    def searches(self) -> tuple[SearchState, ...]:
        """The searches, in the order in which they were opened."""
        return tuple(self.by_name.values())

    @cached_property
    def validation_splits(self) -> tuple[str, ...]:
        """The different validation splits of the searches that count, as canonical JSON.

        One that is scored with noise is another one: without noise, no guarantee covers its validation records. If
        several versions of the records were used, they are numbered. Checksums of records are never shown.
        """
        counted = [each for each in self.searches if each.counts]
        splits = [each.split or {} for each in counted]
        versions = list(dict.fromkeys(split["records"] for split in splits if "records" in split))
        return tuple(sorted({canonical(_shown(each, versions)) for each in counted}))

    @property
    def has_own(self) -> bool:
        """Whether a search used the user's own records under this name, so that the ledger holds them as private.

        Of a damaged data set nothing can be excluded.
        """
        return self.damage is not None or any("own" in search.details for search in self.searches)

    @property
    def is_private(self) -> bool:
        """Whether the ledger holds the records of this name as private: they have a cap, or a search that counts."""
        return self.damage is not None or self.cap is not None or self.committed.searches > 0

    @property
    def committed_epsilon(self) -> float:
        """Sum of ε of the searches whose claims count against the cap."""
        return float(self.committed.epsilon)

    @property
    def committed_delta(self) -> float:
        """Sum of δ of the searches whose claims count against the cap."""
        return float(self.committed.delta)

    def committed_by(self, user: str) -> tuple[float, float]:
        """Return the sums of ε and δ of one user's searches whose claims count against the cap."""
        found = self.committed_of.get(user, Committed())
        return float(found.epsilon), float(found.delta)

    def with_search(self, after: SearchState) -> DatasetState:
        """Return a copy of this state in which `after` replaces the old state of the same search."""
        before = self.by_name.get(after.search)
        committed, of = self.committed, self.committed_of
        for search, sign in ((before, -1), (after, 1)):
            # A search is added when its claim begins to count, and removed when it no longer counts. Between these
            # two events the claim is constant.
            if search is not None and search.counts and not (before and after.counts and before.counts):
                committed = committed.adding(search, sign)
                of = of.with_item(search.user, of.get(search.user, Committed()).adding(search, sign))
        known = self.fingerprints
        new = {each for each in (after.fingerprint, after.block_fingerprint) if each is not None}
        return replace(
            self,
            by_name=self.by_name.with_item(after.search, after),
            committed=committed,
            committed_of=of,
            fingerprints=known if new <= known else known | new,
        )


def _shown(search: SearchState, versions: Sequence[str]) -> object:
    if search.split is None:
        return None
    shown = {name: value for name, value in search.split.items() if name != "records"}
    if len(versions) > 1 and "records" in search.split:
        shown["version"] = versions.index(search.split["records"]) + 1
    return shown if search.validation is None else {**shown, "scores": "protected"}
