"""The part of a ledger that only reads: it opens the store, verifies its entries and returns the states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tuner.errors import LedgerCorruptError, TunerError
from tuner.privacy.ledger.admission import require_search
from tuner.privacy.ledger.chain import Chain
from tuner.privacy.ledger.entries import Entry
from tuner.privacy.ledger.key import LedgerKey
from tuner.privacy.ledger.prices import check_search
from tuner.privacy.ledger.state import DatasetCap, DatasetState, SearchState
from tuner.privacy.ledger.stores import open_store, store_exists

if TYPE_CHECKING:
    from tuner.privacy.ledger.stores.store import Store

__all__ = ["LedgerReader"]


class LedgerReader:
    """Methods of `Ledger` that write nothing."""

    def __init__(self, store: Store) -> None:
        self._chain = Chain(store)
        self._priced: set[tuple[object, ...]] = set()  # searches of other users whose claims were computed

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a ledger, and verify all its entries.

        Args:
            url: `sqlite:///runs/ledger.db`, or `postgresql://user@host/database`.
            create: whether to create a ledger if there is none. Workers pass False, because a new ledger would forget
                all charges. Callers that only read pass False, because they may lack the right to write.

        Raises:
            InputError: the URL names no SQLite file or PostgreSQL database, or the database's driver is not installed.
            LedgerCorruptError: the file or database is unreadable or not a ledger. If only a data set of it is damaged,
                the ledger opens, and using that data set raises this error.
            LedgerError: the ledger does not exist (with `create=False`), cannot be opened or has another format.
        """
        return cls(open_store(url, create=create))

    @staticmethod
    def exists(url: str) -> bool:
        """Return whether a ledger exists at `url`, without creating one."""
        return store_exists(url)

    @property
    def url(self) -> str:
        """Absolute URL with which other processes open the ledger."""
        return self._chain.store.url

    @property
    def id(self) -> str:
        """Random id that the ledger got when it was created."""
        return self._chain.store.ledger_id

    @cached_property
    def key(self) -> LedgerKey:
        """The operator's key, which is read on first use. Only programs that compute fingerprints need it.

        Raises:
            LedgerError: the key's file is missing, or has the key of another ledger.
        """
        return self._chain.store.key()

    @property
    def release_folder(self) -> Path:
        """Folder of the stored releases, which is next to the default file of the key. It may not exist yet."""
        return self._chain.store.backend.key_path(self.id).with_suffix(".releases")

    def user(self) -> str:
        """Return the current user: the operating-system account, or the database role.

        A database server authenticates its roles. In an SQLite file, anyone with write access can record any user name.
        """
        return self._chain.store.user()

    def cap(self, dataset: str) -> DatasetCap | None:
        """Return the data set's current cap; None without a cap."""
        return self.dataset_state(dataset).cap

    def search_state(self, search: str) -> SearchState:
        """Return the current state of a search; raise `LedgerError` if no search has this name."""
        return require_search(self._chain.read(), search)

    def dataset_state(self, dataset: str) -> DatasetState:
        """Return the current state of a data set. If the data set has no entry, the state is empty.

        Raise `LedgerCorruptError` if the data set is damaged, or a search of another user claims too little.
        """
        return self.states_of((dataset,))[0]

    def states_of(self, datasets: Sequence[str]) -> tuple[DatasetState, ...]:
        """Return the states of several data sets at one moment; raise errors as `dataset_state`."""
        states = self._chain.read()
        found = tuple(states.get(name, DatasetState(dataset=name)).intact() for name in datasets)
        for state in found:
            self._require_priced(state)
        return found

    def _require_priced(self, state: DatasetState) -> None:
        """Compute the claims of other users' searches once, because the sums of a total trust what is written.

        A server knows who wrote an entry, but whoever may write an entry may write any claim and price in it.
        """
        for search in state.searches:
            priced = sum(len(pool.trials) for pool in search.pools.values() if pool.filter.priced)
            known = (search.search, state.dataset, search.units, search.counts, priced)
            if search.user != self._own_name and known not in self._priced:
                try:
                    check_search(state, search)
                except LedgerCorruptError:
                    raise
                except (TunerError, ArithmeticError, ValueError) as error:  # an entry that was written by hand
                    raise LedgerCorruptError("ledger-entry-unreadable", f"search {search.search!r}: {error}") from error
                self._priced.add(known)

    @cached_property
    def _own_name(self) -> str:
        return self.user()

    def states(self) -> Mapping[str, DatasetState]:
        """Return the current state of each data set by name; for a damaged data set, its state before the damage."""
        return dict(self._chain.read())

    def datasets(self) -> tuple[str, ...]:
        """Return the sorted names of all data sets with an entry, damaged ones included."""
        return tuple(sorted(self._chain.read()))

    def damage(self) -> dict[str, LedgerCorruptError]:
        """Return the error of each damaged data set, by its name."""
        damage = {}
        for name, state in sorted(self._chain.read().items()):
            try:
                self._require_priced(state.intact())
            except LedgerCorruptError as error:
                damage[name] = state.damage or error
        return damage

    def has_entry(self, dataset: str, seq: int, digest: str) -> bool:
        """Return whether the entry of a data set with the number `seq` has this hash."""
        return self._chain.hash_of(dataset, seq) == digest

    def has_search(self, search: str) -> bool:
        """Return whether a search has this name, even on a damaged data set."""
        return any(search in state.by_name or search in state.doubtful for state in self._chain.read().values())

    def state_at(self, dataset: str, seq: int) -> DatasetState:
        """Return the state of a data set right after its entry with the number `seq`."""
        before = [state for entry, state in self.entries(dataset) if entry.seq <= seq]
        return before[-1] if before else DatasetState(dataset=dataset)

    def entries(self, dataset: str) -> list[tuple[Entry, DatasetState]]:
        """Read and verify all entries of a data set again, and return each with the data set's state after it."""
        return self._chain.entries(dataset)

    def verify_division(self, dataset: str) -> None:
        """Check that the stored division of a data set among users is the one that its entries name.

        Raises:
            LedgerCorruptError: the stored division of a search that counts was changed or removed.
            LedgerError: this database role may not read divisions; the code is `ledger-not-granted`.
        """
        self._chain.verify_division(dataset)

    def verify_chain(self, dataset: str | None = None) -> dict[str, LedgerCorruptError]:
        """Read the whole ledger again, and raise `LedgerCorruptError` if it is damaged or contradicts itself.

        The check covers the database file, the hash chain, the recorded last entry of each data set, the ledger's
        rules, the prices and the claims. If `dataset` is given, damage of other data sets is returned, not raised.
        """
        damage = self._chain.verify()
        for name, error in damage.items():
            if dataset in {None, name}:
                raise error
        return damage
