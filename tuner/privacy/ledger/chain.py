"""The chains of one store in memory: read what was written since, and write in one transaction what follows from it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import Connection

from tuner.errors import LedgerCorruptError
from tuner.privacy.accountant.filters import FILTERS
from tuner.privacy.ledger.entries import Entry, canonical, entry_hash
from tuner.privacy.ledger.prices import check_prices
from tuner.privacy.ledger.rules import checked_state_after, state_after
from tuner.privacy.ledger.state import DatasetState
from tuner.privacy.ledger.stores import Store

__all__ = ["Chain", "Write"]


class Chain:
    """What the entries of every data set add up to; read and verified when made.

    Args:
        store: where the entries lie.

    Raises:
        LedgerCorruptError: a chain is broken.
        LedgerError: the store cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.RLock()
        self._states: dict[str, DatasetState] = {}
        self._last = 0
        self.read()

    def read(self) -> dict[str, DatasetState]:
        """All data sets as they stand now."""
        with self._lock:
            with self.store.reading() as connection:
                self._states, self._last = self._folded(connection)
            return self._states

    def write(self) -> Write:
        """One immediate transaction, as a context."""
        return Write(self)

    def entries(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Every entry of a data set, read again and checked, with the state right after it."""
        with self._lock, self.store.reading() as connection:
            rows = self.store.after(connection, 0)
        states: dict[str, DatasetState] = {}
        history = []
        for entry in (entry for _, entry in rows if entry.dataset == dataset):
            states[dataset] = checked_state_after(states, entry)
            history.append((entry, states[dataset]))
        return history

    def verify(self) -> None:
        """Read everything again from the first byte.

        Raises:
            LedgerCorruptError: something does not follow; the message names the entry.
        """
        with self._lock:
            self.store.check_pages()
            with self.store.reading() as connection:
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

    def _folded(self, connection: Connection) -> tuple[dict[str, DatasetState], int]:
        return self._fold(connection, self._states, self._last)

    def _fold(
        self, connection: Connection, states: dict[str, DatasetState], last: int
    ) -> tuple[dict[str, DatasetState], int]:
        """Fold what was written since, and hold it against the heads: a tail that vanished is noticed here."""
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
                    f"The chain of data set {name!r} ends at {folded.get(name)} instead of its head "
                    f"{heads.get(name)}: entries were lost or changed. Restore the ledger from a backup.",
                )
        return states, last


def _time_of(before: DatasetState, kind: str, data: dict[str, Any]) -> str:
    """Now; of a sealed search the day on which it was opened, for the hours to its end would tell of its runs."""
    now = datetime.now(UTC)
    search = before.by_name.get(str(data.get("search", "")))
    if search is not None and search.charged_whole:
        return search.opened_time
    if kind == "open_search" and FILTERS[data["filter"]["kind"]].charged_whole:
        now = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return now.isoformat(timespec="microseconds")


class Write:
    """One immediate transaction: sees the newest state, appends, and is remembered only once it is committed.

    Attributes:
        states: of all data sets, with what was appended.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.states: dict[str, DatasetState] = {}

    def __enter__(self) -> Self:
        self._chain._lock.acquire()
        try:
            self._transaction = self._chain.store.writing()
            self._connection = self._transaction.__enter__()
            try:
                self.states, self._last = self._chain._folded(self._connection)
            except BaseException as error:
                self._transaction.__exit__(type(error), error, error.__traceback__)
                raise
        except BaseException:
            self._chain._lock.release()
            raise
        return self

    def order(self, dataset: str) -> float | None:
        """Of the data set's cap."""
        state = self.states.get(dataset)
        return state.cap.order if state and state.cap else None

    def __call__(self, dataset: str, kind: str, data: dict[str, Any]) -> None:
        """Append one entry.

        Raises:
            BudgetRefusedError: it would pass a cap; leave the transaction with it, and nothing is written.
            LedgerError: the history does not allow it.
        """
        before = self.states.get(dataset, DatasetState(dataset=dataset))
        body = canonical(data)
        time = _time_of(before, kind, data)
        seq, previous = before.seq + 1, before.head
        digest = entry_hash(dataset=dataset, seq=seq, time=time, kind=kind, body=body, previous=previous)
        entry = Entry(dataset=dataset, seq=seq, time=time, kind=kind, body=body, previous=previous, hash=digest)
        # The same rules as on reading: nothing is written that would not be read again.
        self.states[dataset] = state_after(self.states, entry)
        self._last = self._chain.store.append(self._connection, entry)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:  # noqa: ANN401 - the protocol of `with`
        try:
            self._transaction.__exit__(kind, error, trace)
            if error is None:
                self._chain._states, self._chain._last = self.states, self._last
        finally:
            self._chain._lock.release()
