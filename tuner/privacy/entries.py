"""The entries of the ledger, the hash that chains them, and the pure fold from entries to what has been spent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from math import isfinite
from types import MappingProxyType
from typing import Any

from tuner.errors import InputError, LedgerCorruptError
from tuner.privacy.events import SampledGaussian

__all__ = [
    "GENESIS",
    "KINDS",
    "Cap",
    "DatasetState",
    "Entry",
    "SearchState",
    "TrialState",
    "apply",
    "canonical",
    "entry_hash",
    "exact_sum",
]

GENESIS = "0" * 64
"""What the first entry of a data set names as the hash before it."""

KINDS = frozenset({"cap", "open_search", "reserve", "lease", "settle", "close_search", "reopen_search", "card"})


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, floats by `repr`, so that they round-trip bit for bit.

    Raises:
        InputError: the value holds NaN, infinity, or something that JSON does not have.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        same = json.loads(text) == value
    except (TypeError, ValueError) as error:
        raise InputError(
            f"what goes into the ledger or a card must be plain JSON with finite numbers, got {value!r} ({error}). "
            "Use strings, whole numbers, finite floats, lists and mappings with string keys."
        ) from error
    if not same and not _has_tuples(value):
        raise InputError(
            f"what goes into the ledger or a card must survive JSON unchanged, got {value!r}. Use string keys."
        )
    return text


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a data set's chain. Its hash covers every other field.

    Attributes:
        dataset: name of the data set whose records were touched.
        seq: 1, 2, 3, … within the data set, without a gap.
        time: UTC, ISO 8601. A note for people; nothing is computed from it.
        kind: one of `KINDS`.
        body: canonical JSON.
        previous: hash of the entry before, or `GENESIS`.
        hash: SHA-256, hexadecimal.
    """

    dataset: str
    seq: int
    time: str
    kind: str
    body: str
    previous: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """The body, parsed."""
        data: dict[str, Any] = json.loads(self.body)
        return data


def entry_hash(*, dataset: str, seq: int, time: str, kind: str, body: str, previous: str) -> str:
    """SHA-256 over all that an entry says, its place in the chain and its time included."""
    said = {"body": body, "dataset": dataset, "kind": kind, "previous": previous, "seq": seq, "time": time}
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


def exact_sum(values: tuple[float, ...]) -> Decimal:
    """The sum of the decimals that people wrote: three times 0.1 is 0.3, not a hair more."""
    return sum((Decimal(repr(value)) for value in values), Decimal(0))


@dataclass(frozen=True)
class Cap:
    """The (ε, δ) that the owner of a data set allows over all searches."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class TrialState:
    """What one trial was promised, what it durably charged, and how it ended.

    Attributes:
        reserved: steps reserved over its life.
        leased: steps charged, all attempts together; they stay charged.
        settled: whether it ended; what was reserved and never leased has then gone back.
        taken: steps it said it took when it was settled, else None.
    """

    reserved: int = 0
    leased: int = 0
    settled: bool = False
    taken: int | None = None

    @property
    def outstanding(self) -> int:
        """Steps reserved and not yet leased; 0 once settled."""
        return 0 if self.settled else self.reserved - self.leased


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """One search as its entries tell it.

    Attributes:
        search: name, unique in the ledger.
        dataset: whose records.
        mechanism: what one step is, for every trial.
        epsilon: the cap of this search, the claim.
        delta: with that δ.
        step_cap: total steps of all trials that the cap allows.
        fingerprint: of the data, or None.
        details: what the caller noted when it was opened.
        trials: by id.
        status: `open` or `closed`.
        cards: (sha256, kind, seq) of each card recorded.
        opened_seq: where in the data set's chain it was opened.
    """

    search: str
    dataset: str
    mechanism: SampledGaussian
    epsilon: float
    delta: float
    step_cap: int
    fingerprint: str | None
    details: Mapping[str, Any]
    trials: Mapping[str, TrialState] = field(default_factory=lambda: MappingProxyType({}))
    status: str = "open"
    cards: tuple[tuple[str, str, int], ...] = ()
    opened_seq: int = 0
    leased_steps: int = 0
    reserved_steps: int = 0

    @property
    def left_steps(self) -> int:
        """Steps of the cap that are neither leased nor promised to a trial."""
        return self.step_cap - self.leased_steps - self.reserved_steps

    @property
    def counts(self) -> bool:
        """Whether its cap counts against the data set: not when it was closed before it touched a record."""
        return self.status == "open" or self.leased_steps > 0


@dataclass(frozen=True, kw_only=True)
class DatasetState:
    """All that was ever allowed and charged on one data set.

    Attributes:
        dataset: name.
        cap: the owner's latest cap, or None.
        searches: in the order in which they were opened.
        seq: number of entries.
        head: hash of the last one.
    """

    dataset: str
    cap: Cap | None = None
    searches: tuple[SearchState, ...] = ()
    seq: int = 0
    head: str = GENESIS

    @property
    def committed_epsilon(self) -> float:
        """Sum of the ε caps of the searches that count: what the data set's cap is held against."""
        return float(exact_sum(tuple(search.epsilon for search in self.searches if search.counts)))

    @property
    def committed_delta(self) -> float:
        """Sum of the δ of the searches that count."""
        return float(exact_sum(tuple(search.delta for search in self.searches if search.counts)))

    @property
    def odometer_delta(self) -> float:
        """The δ at which the odometer is read: the cap's, else the largest of the searches'."""
        return self.cap.delta if self.cap else max((search.delta for search in self.searches), default=1e-5)

    @cached_property
    def epsilon_spent(self) -> float:
        """ODOMETER, not a guarantee: PLD composition of every step leased so far, at `odometer_delta`.

        Steps were chosen adaptively; what may be claimed is the caps. Computed when first asked for (about a second).
        """
        from tuner.privacy.accounting import epsilon_composed

        return epsilon_composed(
            ((search.mechanism, search.leased_steps) for search in self.searches), self.odometer_delta
        )


def apply(state: DatasetState, entry: Entry) -> DatasetState:
    """The state after one more entry: checks the chain and that the history allows it.

    Raises:
        LedgerCorruptError: the entry does not follow from what stands before it.
    """
    where = f"entry {entry.seq} of data set {entry.dataset!r}"
    if entry.seq != state.seq + 1:
        raise _corrupt(where, f"its number must be {state.seq + 1}")
    if entry.previous != state.head:
        raise _corrupt(where, f"it must name the hash before it, {state.head}, but names {entry.previous}")
    found = entry_hash(
        dataset=entry.dataset, seq=entry.seq, time=entry.time, kind=entry.kind, body=entry.body, previous=entry.previous
    )
    if found != entry.hash:
        raise _corrupt(where, f"its content hashes to {found}, but {entry.hash} was written with it")
    try:
        data = entry.data
        if canonical(data) != entry.body:
            raise _corrupt(where, "its body is not canonical JSON")
        changed = _apply_kind(state, entry, data)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise _corrupt(where, f"its body cannot be read ({error!r}): {entry.body[:200]}") from error
    return replace(changed, seq=entry.seq, head=entry.hash)


def _apply_kind(state: DatasetState, entry: Entry, data: dict[str, Any]) -> DatasetState:
    if entry.kind == "cap":
        if not (isfinite(data["epsilon"]) and data["epsilon"] > 0 and 0 < data["delta"] < 1):
            raise ValueError("a cap must be finite and positive")
        return replace(state, cap=Cap(data["epsilon"], data["delta"]))
    if entry.kind == "open_search":
        opened = SearchState(
            search=data["search"],
            dataset=entry.dataset,
            mechanism=SampledGaussian(data["sample_rate"], data["noise_multiplier"]),
            epsilon=data["epsilon"],
            delta=data["delta"],
            step_cap=data["step_cap"],
            fingerprint=data["fingerprint"],
            details=MappingProxyType(data["details"]),
            opened_seq=entry.seq,
        )
        if any(search.search == opened.search for search in state.searches):
            raise ValueError("a search is opened once")
        return replace(state, searches=(*state.searches, opened))
    index = next((i for i, search in enumerate(state.searches) if search.search == data["search"]), None)
    if index is None:
        raise ValueError(f"search {data['search']!r} was never opened")
    changed = _apply_search(state.searches[index], entry, data)
    return replace(state, searches=(*state.searches[:index], changed, *state.searches[index + 1 :]))


def _apply_search(search: SearchState, entry: Entry, data: dict[str, Any]) -> SearchState:
    match entry.kind:
        case "reserve" | "lease" | "settle":
            return _apply_trial(search, entry.kind, data)
        case "close_search":
            return replace(search, status="closed")
        case "reopen_search":
            return replace(search, status="open")
        case "card":
            return replace(search, cards=(*search.cards, (data["card_sha256"], data["card_kind"], entry.seq)))
        case _:
            raise ValueError(f"unknown kind {entry.kind!r}; written by a newer version?")


def _apply_trial(search: SearchState, kind: str, data: dict[str, Any]) -> SearchState:
    before = search.trials.get(data["trial"], TrialState())
    steps: int = data["steps_taken"] if kind == "settle" else data["steps"]
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < (0 if kind == "settle" else 1):
        raise ValueError(f"steps must be a positive whole number, got {steps!r}")
    if before.settled:
        raise ValueError(f"trial {data['trial']!r} was settled already")
    if search.status != "open" and kind != "settle":
        raise ValueError(f"search {search.search!r} is closed")
    if kind == "reserve":
        after = replace(before, reserved=before.reserved + steps)
    elif kind == "lease":
        after = replace(before, leased=before.leased + steps)
    else:
        after = replace(before, settled=True, taken=steps)
    leased = search.leased_steps + after.leased - before.leased
    reserved = search.reserved_steps + after.outstanding - before.outstanding
    if (
        after.leased > after.reserved
        or leased + reserved > search.step_cap
        or (kind == "settle" and steps > after.leased)
    ):
        raise ValueError("more steps than were reserved, leased or capped")
    # Copying the mapping keeps states immutable; a search has tens of trials, so it is cheap.
    trials = MappingProxyType({**search.trials, data["trial"]: after})
    return replace(search, trials=trials, leased_steps=leased, reserved_steps=reserved)


def _corrupt(where: str, why: str) -> LedgerCorruptError:
    return LedgerCorruptError(
        f"the ledger must be an unbroken chain of what was charged, but at {where}: {why}. "
        "Restore the ledger from a backup that holds every entry; never delete it, or its spending is forgotten."
    )


def _has_tuples(value: object) -> bool:
    if isinstance(value, tuple):
        return True
    if isinstance(value, Mapping):
        return any(_has_tuples(item) for item in value.values())
    return isinstance(value, list) and any(_has_tuples(item) for item in value)
