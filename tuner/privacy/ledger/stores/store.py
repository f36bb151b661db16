"""Store of the ledger's entries: the database tables, and the statements that read and append entries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import uuid4

import sqlalchemy as sa

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import GENESIS, Entry
from tuner.privacy.ledger.key import LedgerKey, created_key, read_key

__all__ = ["BUSY_SECONDS", "TABLES", "Backend", "Store", "create_tables"]

_FORMAT = 2
"""Version number of the format in which tables and entries are stored."""

BUSY_SECONDS = 60
"""Longest time in seconds that a writer waits for another writer."""

TABLES = sa.MetaData()
_ENTRIES = sa.Table(
    "entries",
    TABLES,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(always=True), primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("writer", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.UniqueConstraint("dataset", "seq"),
    sqlite_autoincrement=True,
)
_HEADS = sa.Table(
    "heads",
    TABLES,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
# Only roles that charge may read this table: it says which hashed records belong to one hashed user.
_DIVISIONS = sa.Table(
    "divisions",
    TABLES,
    sa.Column("search", sa.Text, primary_key=True),
    sa.Column("pairs", sa.LargeBinary, nullable=False),
)
_META = sa.Table(
    "meta",
    TABLES,
    sa.Column("one", sa.Integer, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    sa.Column("schema", sa.Integer, nullable=False),
    sa.Column("ledger", sa.Text, nullable=False),
    sa.Column("key_check", sa.Text, nullable=False),
)

# The statements are built only once. SQLAlchemy takes longer to build a statement than SQLite to execute it.
_READ_META = sa.select(_META.c.schema, _META.c.ledger, _META.c.key_check)
_READ_AFTER = sa.select(_ENTRIES).where(_ENTRIES.c.id > sa.bindparam("last")).order_by(_ENTRIES.c.id)
_READ_HASH = sa.select(_ENTRIES.c.hash).where(
    _ENTRIES.c.dataset == sa.bindparam("of"), _ENTRIES.c.seq == sa.bindparam("number")
)
_READ_HEADS = sa.select(_HEADS)
_APPEND = sa.insert(_ENTRIES).returning(_ENTRIES.c.id)
_MOVE_HEAD = (
    sa.update(_HEADS)
    .where(_HEADS.c.dataset == sa.bindparam("of"), _HEADS.c.hash == sa.bindparam("before"))
    .values(seq=sa.bindparam("number"), hash=sa.bindparam("after"))
)
_FIRST_HEAD = sa.insert(_HEADS)
_READ_DIVISION = sa.select(_DIVISIONS.c.pairs).where(_DIVISIONS.c.search == sa.bindparam("of"))
_STORE_DIVISION = sa.insert(_DIVISIONS)


def create_tables(connection: sa.Connection, key_path: Callable[[str], Path]) -> None:
    """Create the tables, the random id and the key of a new ledger. `key_path` returns the key's file for an id."""
    ledger_id = str(uuid4())
    key = created_key(key_path(ledger_id))
    TABLES.create_all(connection, checkfirst=False)
    meta = {"one": 1, "schema": _FORMAT, "ledger": ledger_id, "key_check": key.check(ledger_id)}
    connection.execute(sa.insert(_META), meta)


class Backend(ABC):
    """Base class of the databases in which a ledger can be stored. The constructor does not connect.

    Attributes:
        url: absolute URL with which other processes open the ledger.
    """

    url: str

    @property
    def folder(self) -> Path | None:
        """The folder of the ledger's file; None for a server."""
        return None

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the ledger exists."""

    @abstractmethod
    def create(self) -> None:
        """Create an empty ledger. After an error nothing remains. If another process was first, keep its ledger."""

    def open(self) -> None:  # noqa: B027 - a server needs no preparation
        """Prepare for transactions; raise `LedgerCorruptError` if the database is not a ledger."""

    @abstractmethod
    def key_path(self, ledger_id: str) -> Path:
        """Return the default file of the ledger's key. It is never in the database."""

    @abstractmethod
    def user(self) -> str:
        """Return the user that the database or the operating system has authenticated."""

    @abstractmethod
    def transaction(self, *, writing: bool) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction, and commit it if the block ends without an error.

        A read transaction sees one consistent snapshot. A write transaction excludes other writers, sees everything
        that was committed before, and is on the disk after the block. Raise `LedgerError` if the transaction fails.
        """

    @abstractmethod
    def check_integrity(self, connection: sa.Connection) -> None:
        """Run the database's own checks; raise `LedgerCorruptError` if they find damage."""

    def check_durable(self, connection: sa.Connection) -> None:  # noqa: B027 - most databases have nothing to check
        """Raise `LedgerError` if a committed charge might not survive a crash of the server."""

    def check_author(self, connection: sa.Connection, entry: Entry) -> None:  # noqa: B027 - a file has no authors
        """Raise `LedgerError` if the database does not allow this user to write the entry."""


class Store:
    """Entries in a database, with one writer at a time. A store is safe across threads and forks.

    Attributes:
        url: absolute URL with which other processes open the ledger.
        ledger_id: random id that the ledger got when it was created.
    """

    def __init__(self, backend: Backend, *, create: bool) -> None:
        self.backend = backend
        self.url = backend.url
        if not backend.exists():
            if not create:
                raise LedgerError(
                    "ledger-not-found",
                    f"There is no ledger at {self.url}. Check the URL. If the ledger was lost, restore it from a "
                    "backup. A new ledger would not contain the charges made so far.",
                )
            backend.create()
        backend.open()
        with backend.transaction(writing=False) as connection:
            self.ledger_id, self._key_check = self._read_meta(connection)

    def key(self) -> LedgerKey:
        """Read the ledger's key; raise `LedgerError` if its file is missing or has the key of another ledger."""
        default = self.backend.key_path(self.ledger_id)
        return read_key(default, ledger_id=self.ledger_id, check=self._key_check, url=self.url)

    def user(self) -> str:
        """Return the user that the database or the operating system has authenticated."""
        return self.backend.user()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin a read transaction, which sees one consistent snapshot."""
        with self.backend.transaction(writing=False) as connection:
            self._check_id(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a write transaction, which excludes other writers. It is on the disk when the block has ended."""
        with self.backend.transaction(writing=True) as connection:
            self._check_id(connection)
            self.backend.check_durable(connection)
            yield connection

    def append(self, connection: sa.Connection, entry: Entry) -> int:
        """Append one entry, record it as the last entry of its data set, and return its row number."""
        row: int = connection.execute(_APPEND, vars(entry)).scalar_one()
        moved = connection.execute(
            _MOVE_HEAD, {"of": entry.dataset, "before": entry.previous, "number": entry.seq, "after": entry.hash}
        ).rowcount
        if not moved:
            if entry.previous != GENESIS:
                raise LedgerCorruptError(
                    "ledger-damaged",
                    f"The ledger no longer records the last entry of data set {entry.dataset!r}. Restore the ledger "
                    "from a backup.",
                )
            connection.execute(_FIRST_HEAD, {"dataset": entry.dataset, "seq": entry.seq, "hash": entry.hash})
        return row

    @staticmethod
    def after(connection: sa.Connection, last: int) -> list[tuple[int, Entry]]:
        """Return (row number, entry) of all entries after row `last`, in the order of writing."""
        return [
            (row, Entry(**dict(zip(_COLUMNS, values, strict=True))))
            for row, *values in connection.execute(_READ_AFTER, {"last": last})
        ]

    @staticmethod
    def hash_of(connection: sa.Connection, dataset: str, seq: int) -> str | None:
        """Return the hash of an entry, by its data set and number; None if there is none."""
        found: str | None = connection.execute(_READ_HASH, {"of": dataset, "number": seq}).scalar_one_or_none()
        return found

    @staticmethod
    def heads(connection: sa.Connection) -> dict[str, tuple[int, str]]:
        """Return the recorded (number, hash) of each data set's last entry. A mismatch reveals lost entries."""
        return {name: (seq, head) for name, seq, head in connection.execute(_READ_HEADS)}

    @staticmethod
    def division(connection: sa.Connection, search: str) -> bytes | None:
        """Return the (record, user) pairs that were stored with a search; None if there are none."""
        found = connection.execute(_READ_DIVISION, {"of": search}).scalar_one_or_none()
        return found if isinstance(found, bytes) else None  # SQLite returns a text if somebody wrote one

    @staticmethod
    def store_division(connection: sa.Connection, search: str, pairs: bytes) -> None:
        """Store the (record, user) pairs of a search. They are never changed or removed."""
        connection.execute(_STORE_DIVISION, {"search": search, "pairs": pairs})

    def _read_meta(self, connection: sa.Connection) -> tuple[str, str]:
        """Return the ledger's id, and the value by which its key is recognised."""
        row = connection.execute(_READ_META).one_or_none()
        if row is None:
            raise LedgerCorruptError(
                "ledger-damaged", f"The ledger {self.url} has lost its id. Restore the ledger from a backup."
            )
        found, ledger_id, key_check = row
        if found != _FORMAT:
            raise LedgerError(
                "ledger-format",
                f"The ledger {self.url} has format {found}, but this version of dp-tuner reads format {_FORMAT}. Use "
                "the version that wrote the ledger. Nothing was changed.",
            )
        return str(ledger_id), str(key_check)

    def _check_id(self, connection: sa.Connection) -> None:
        """Raise `LedgerError` if another ledger has replaced the one that was opened."""
        found, _ = self._read_meta(connection)
        if found != self.ledger_id:
            raise LedgerError(
                "ledger-replaced",
                f"The ledger {self.url} was replaced while it was in use: its id was {self.ledger_id} and is now "
                f"{found}. Restore the original ledger. Only the original ledger has all charges.",
            )


_COLUMNS = tuple(column.name for column in _ENTRIES.columns if column.name != "id")
