"""Reader, verifier and writer of the ledger's entries. It keeps the resulting states of the data sets in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from tuner.errors import LedgerCorruptError
from tuner.privacy.ledger.division import known_pairs
from tuner.privacy.ledger.entries import Entry, canonical, entry_hash
from tuner.privacy.ledger.prices import check_prices
from tuner.privacy.ledger.rules import checked_state_after, state_after
from tuner.privacy.ledger.state import DatasetState
from tuner.privacy.ledger.stores import Store

__all__ = ["Chain", "Write"]


class Chain:
    """Entries of one store and the states of its data sets. A read verifies the entries added since the last read."""

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
            with self.store.writing() as connection:
                states, last = self._fold(connection, self._states, self._last)
                write = Write(self.store, connection, states, last)
                yield write
            # This line runs only after the commit. A failed transaction leaves the states in memory unchanged.
            self._states, self._last = write.states, write.last

    def entries(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Read and verify all entries of a data set again, and return each with the data set's state after it."""
        with self._lock, self.store.reading() as connection:
            rows = self.store.after(connection, 0)
        states: dict[str, DatasetState] = {}
        history = []
        for entry in (entry for _, entry in rows if entry.dataset == dataset):
            states[dataset] = checked_state_after(states, entry)
            history.append((entry, states[dataset]))
        return history

    def verify(self) -> None:
        """Read the whole store again, and raise `LedgerCorruptError` if it is damaged or contradicts itself."""
        with self._lock:
            with self.store.reading() as connection:
                self.store.backend.check_integrity(connection)
                fresh, _ = self._fold(connection, {}, 0)
            remembered = self._states
        for dataset, state in remembered.items():
            if dataset not in fresh or fresh[dataset].seq < state.seq:
                raise LedgerCorruptError(
                    "ledger-damaged",
                    f"Data set {dataset!r} had {state.seq} entries in the ledger and now has fewer. Restore the ledger "
                    "from a backup.",
                )
        for state in fresh.values():
            check_prices(state)

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
            states[entry.dataset] = checked_state_after(states, entry)
            last = row
        heads = self.store.heads(connection)
        folded = {name: (state.seq, state.head) for name, state in states.items()}
        for name in sorted(heads.keys() | folded.keys()):
            if heads.get(name) != folded.get(name):
                raise LedgerCorruptError(
                    "ledger-damaged",
                    f"The last entry of data set {name!r} is {folded.get(name)}, but the ledger recorded "
                    f"{heads.get(name)}. Entries were lost or changed. Restore the ledger from a backup.",
                )
        return states, last


class Write:
    """One write transaction. It appends entries and updates the states of their data sets.

    Attributes:
        states: states of all data sets, including the appended entries.
        last: row number of the last entry.
    """

    def __init__(self, store: Store, connection: Connection, states: dict[str, DatasetState], last: int) -> None:
        self._store, self._connection = store, connection
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
            LedgerError: the earlier entries do not allow the entry.
        """
        before = self.states.get(dataset, DatasetState(dataset=dataset))
        body = canonical(data)
        # Only the day. The hours of charges would tell when trials ended, and how many runs a sealed search made.
        search = before.by_name.get(str(data.get("search", "")))
        sealed = search is not None and search.charged_whole
        time = search.opened_time if search is not None and sealed else datetime.now(UTC).strftime("%Y-%m-%d")
        seq, previous = before.seq + 1, before.head
        digest = entry_hash(dataset=dataset, seq=seq, time=time, kind=kind, body=body, previous=previous)
        entry = Entry(dataset=dataset, seq=seq, time=time, kind=kind, body=body, previous=previous, hash=digest)
        # Readers apply the same rules, so they accept every entry that is written.
        self.states[dataset] = state_after(self.states, entry)
        self.last = self._store.append(self._connection, entry)
