"""Reader, verifier and writer of the ledger's entries. It keeps the resulting states of the data sets in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tuner.errors import LedgerCorruptError, TunerError
from tuner.privacy.ledger.blocks import table_of
from tuner.privacy.ledger.division import known_pairs
from tuner.privacy.ledger.entries import Entry, canonical, entry_hash
from tuner.privacy.ledger.prices import check_prices
from tuner.privacy.ledger.rules import checked_state_after, state_after
from tuner.privacy.ledger.state import DatasetState

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tuner.privacy.ledger.stores.store import Store

__all__ = ["Chain", "Write"]


class Chain:
    """Entries of one store and the states of its data sets. A read verifies the entries added since the last read.

    If the entries of a data set contradict each other, that data set is damaged and the others are read on. A store
    that cannot be read at all is an error.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.RLock()
        self._states: dict[str, DatasetState] = {}
        self._last = 0
        self.read()

    def read(self) -> dict[str, DatasetState]:
        """Return the current states of all data sets."""
        with self._lock:
            with self.store.reading() as connection:
                self._states, self._last = self._fold(connection, self._states, self._last)
            return self._states

    @contextmanager
    def write(self) -> Iterator[Write]:
        """Begin a write transaction, which excludes all other writers; commit it if the block ends without an error."""
        with self._lock:
            writer = self.store.user()
            with self.store.writing() as connection:
                states, last = self._fold(connection, self._states, self._last)
                write = Write(self.store, connection, states, last, writer=writer)
                yield write
            # This line runs only after the commit. A failed transaction leaves the states in memory unchanged.
            self._states, self._last = write.states, write.last

    def entries(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Read and verify all entries of a data set again, and return each with the data set's state after it."""
        with self._lock, self.store.reading() as connection:
            rows = self.store.after(connection, 0)
        states: dict[str, DatasetState] = {}
        history = []
        for _, entry in rows:
            if entry.dataset == dataset:
                states[dataset] = checked_state_after(states, entry)
                history.append((entry, states[dataset]))
            elif table_of(entry.dataset) == table_of(dataset):  # a search may count on several blocks of its table
                states[entry.dataset] = _read_on(states, entry)
        return history

    def hash_of(self, dataset: str, seq: int) -> str | None:
        """Return the hash of an entry, by its data set and number; None if there is none."""
        with self._lock, self.store.reading() as connection:
            return self.store.hash_of(connection, dataset, seq)

    def verify(self) -> dict[str, LedgerCorruptError]:
        """Read the whole store again, and return what is wrong with each damaged data set.

        Raise `LedgerCorruptError` if the store itself is damaged.
        """
        with self._lock:
            with self.store.reading() as connection:
                self.store.backend.check_integrity(connection)
                fresh, _ = self._fold(connection, {}, 0)
            remembered = self._states
        damage = {name: state.damage for name, state in fresh.items() if state.damage is not None}
        for dataset, state in remembered.items():
            if dataset not in damage and (dataset not in fresh or fresh[dataset].seq < state.seq):
                damage[dataset] = LedgerCorruptError(
                    "ledger-damaged",
                    f"Data set {dataset!r} had {state.seq} entries in the ledger and now has fewer. Restore the ledger "
                    "from a backup.",
                )
        for dataset, state in fresh.items():
            try:
                check_prices(state)
            except LedgerCorruptError as error:
                damage.setdefault(dataset, error)
            except (TunerError, ArithmeticError, ValueError) as error:  # an entry by hand damages its own data set
                damage.setdefault(dataset, LedgerCorruptError("ledger-entry-unreadable", str(error)))
        return damage

    def verify_division(self, dataset: str) -> None:
        """Check the stored division of a data set among users; see `Ledger.verify_division`."""
        with self._lock, self.store.reading() as connection:
            states, _ = self._fold(connection, self._states, self._last)
            known_pairs(states.get(dataset), lambda search: self.store.division(connection, search))

    def _fold(
        self, connection: Connection, states: dict[str, DatasetState], last: int
    ) -> tuple[dict[str, DatasetState], int]:
        """Read and verify the entries after row `last`. Return the new states and the number of the last row read."""
        states = dict(states)
        for row, entry in self.store.after(connection, last):
            states[entry.dataset] = _read_on(states, entry)
            last = row
        heads = self.store.heads(connection)
        folded = {name: (state.seq, state.head) for name, state in states.items()}
        for name in sorted(heads.keys() | folded.keys()):
            state = states.get(name) or DatasetState(dataset=name)
            if heads.get(name) != folded.get(name) and state.damage is None:
                damage = LedgerCorruptError(
                    "ledger-damaged",
                    f"The last entry (number, hash) of data set {name!r} is {folded.get(name)}, but the ledger "
                    f"recorded {heads.get(name)}. Entries were lost or changed. Restore the ledger from a backup.",
                )
                states[name] = replace(state, damage=damage)
        return states, last


class Write:
    """One write transaction. It appends entries and updates the states of their data sets.

    Attributes:
        states: states of all data sets, including the appended entries.
        last: row number of the last entry.
    """

    def __init__(
        self, store: Store, connection: Connection, states: dict[str, DatasetState], last: int, *, writer: str
    ) -> None:
        self._store, self._connection, self._writer = store, connection, writer
        self.states, self.last = states, last

    def order(self, dataset: str) -> float | None:
        """Return the Rényi order of the data set's cap; None if there is no cap or it has no order."""
        state = self.states.get(dataset)
        return state.cap.order if state and state.cap else None

    def division(self, search: str) -> bytes | None:
        """Return the stored (record, user) pairs of a search; None if there are none."""
        return self._store.division(self._connection, search)

    def store_division(self, search: str, pairs: bytes) -> None:
        """Store the (record, user) pairs of a search that this transaction opens."""
        self._store.store_division(self._connection, search, pairs)

    def __call__(self, dataset: str, kind: str, data: dict[str, Any]) -> None:
        """Append one entry. The caller must not catch an error inside the ``with`` block, so that nothing is committed.

        Raises:
            BudgetRefusedError: the entry would exceed a cap.
            LedgerError: the earlier entries do not allow the entry, or the data set is damaged.
        """
        before = self.states.get(dataset, DatasetState(dataset=dataset)).intact()
        body = canonical(data)
        time = _time_of(before, data)
        seq, previous = before.seq + 1, before.head
        fields: dict[str, Any] = {
            "dataset": dataset, "seq": seq, "time": time, "kind": kind, "writer": self._writer, "body": body,
            "previous": previous,
        }  # fmt: skip
        entry = Entry(**fields, hash=entry_hash(**fields))
        # First, because the rules may tell an owner what others must not know.
        self._store.backend.check_author(self._connection, entry)
        # Readers apply the same rules, so they accept every entry that is written.
        self.states[dataset] = state_after(self.states, entry)
        self.last = self._store.append(self._connection, entry)


def _read_on(states: dict[str, DatasetState], entry: Entry) -> DatasetState:
    """Return the state of a data set after an entry from the store. A bad entry damages its own data set alone."""
    state = states.get(entry.dataset) or DatasetState(dataset=entry.dataset)
    if state.damage is None:
        try:
            return checked_state_after(states, entry)
        except LedgerCorruptError as error:
            state = replace(state, damage=error)
    # The records and names of a damaged data set stay taken, or its records could be used under another name.
    with suppress(ValueError, RecursionError):
        data = json.loads(entry.body)
        if isinstance(data, dict):
            named, known = data.get("search"), (data.get("fingerprint"), data.get("block_fingerprint"))
            return replace(
                state,
                doubtful=state.doubtful | ({named} if isinstance(named, str) else set()),
                fingerprints=state.fingerprints | {each for each in known if isinstance(each, str)},
            )
    return state


def _time_of(before: DatasetState, data: dict[str, Any]) -> str:
    """Return the UTC day of a new entry. For every entry of a sealed search, return the day on which it was opened.

    The hours of charges would tell when trials ended, and the day on which a sealed search ended its number of runs.
    """
    search = before.by_name.get(str(data.get("search", "")))
    if search is not None and search.hides_runs:
        return search.opened_time
    return datetime.now(UTC).strftime("%Y-%m-%d")
