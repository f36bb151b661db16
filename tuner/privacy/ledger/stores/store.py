"""Store of the ledger: its tables, and the statements that read and append entries."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Identity,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    insert,
    select,
    update,
)

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import GENESIS, Entry

__all__ = ["BUSY_SECONDS", "FORMAT", "TABLES", "Backend", "Store", "create_tables", "masked"]

FORMAT = 1
"""The format of the tables and of the entries."""

BUSY_SECONDS = 60
"""How long a writer waits for another one."""

TABLES = MetaData()
_ENTRIES = Table(
    "entries",
    TABLES,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(always=True), primary_key=True),
    Column("dataset", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("time", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    UniqueConstraint("dataset", "seq"),
    sqlite_autoincrement=True,
)
_HEADS = Table(
    "heads",
    TABLES,
    Column("dataset", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)
_META = Table(
    "meta",
    TABLES,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("schema", Integer, nullable=False),
    Column("ledger", Text, nullable=False),
)

# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_READ_META = select(_META.c.schema, _META.c.ledger)
_READ_AFTER = select(_ENTRIES).where(_ENTRIES.c.id > bindparam("last")).order_by(_ENTRIES.c.id)
_READ_HEADS = select(_HEADS)
_APPEND = insert(_ENTRIES).returning(_ENTRIES.c.id)
_MOVE_HEAD = (
    update(_HEADS)
    .where(_HEADS.c.dataset == bindparam("of"), _HEADS.c.hash == bindparam("before"))
    .values(seq=bindparam("number"), hash=bindparam("after"))
)
_FIRST_HEAD = insert(_HEADS)


def create_tables(connection: Connection) -> None:
    """Create the tables of a new ledger, with its random id."""
    TABLES.create_all(connection, checkfirst=False)
    connection.execute(insert(_META), {"one": 1, "schema": FORMAT, "ledger": str(uuid4())})


class Backend(ABC):
    """What differs between databases: one implementation for each kind of URL.

    Constructing one opens nothing.

    Attributes:
        url: absolute; what another process opens.
    """

    url: str

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is a ledger."""

    @abstractmethod
    def create(self) -> None:
        """Create an empty ledger, as a whole; if another process was first, its ledger is kept."""

    @abstractmethod
    def open(self) -> None:
        """Prepare for transactions.

        Raises:
            LedgerCorruptError: this is no ledger.
        """

    @abstractmethod
    def user(self) -> str:
        """Return who is charging, as far as the database or the operating system has authenticated it."""

    @abstractmethod
    def transaction(self, *, writing: bool) -> AbstractContextManager[Connection]:
        """Begin a transaction, and commit it when the block ends without an error.

        A reading one sees one consistent snapshot. A writing one is the only writer, sees everything that was
        committed before, and is on the disk when the block has ended.

        Raises:
            LedgerError: this user may only read, or the transaction failed.
        """

    @abstractmethod
    def check_integrity(self, connection: Connection) -> None:
        """Let the database check itself.

        Raises:
            LedgerCorruptError: it is damaged.
        """

    def check_durable(self, connection: Connection) -> None:  # noqa: B027 - most databases have nothing to check
        """Refuse a server on which a committed charge might not survive a crash."""

    def check_author(self, connection: Connection, entry: Entry) -> None:  # noqa: B027 - a file knows no authors
        """Refuse an entry that this user may not write, as far as the database knows its users."""


class Store:
    """Entries in a database, one writer at a time; safe across threads and forks.

    Args:
        backend: the database.
        create: whether to create a ledger where there is none.

    Attributes:
        url: absolute; what another process opens.
        ledger_id: random, given when the ledger was created: two ledgers are the same if and only if it is.

    Raises:
        LedgerError: there is no ledger and none may be created, it cannot be opened, or it has another format.
        LedgerCorruptError: this is no ledger.
    """

    def __init__(self, backend: Backend, *, create: bool) -> None:
        self.backend = backend
        self.url = backend.url
        if not backend.exists():
            if not create:
                raise LedgerError(
                    "ledger-not-found",
                    f"There is no ledger at {self.url}. Check the address. A lost ledger is restored from a backup, "
                    "never started afresh.",
                )
            backend.create()
        backend.open()
        with backend.transaction(writing=False) as connection:
            self.ledger_id = self._read_id(connection)

    def user(self) -> str:
        """Return who is charging, as far as the database or the operating system has authenticated it."""
        return self.backend.user()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self.backend.transaction(writing=False) as connection:
            self._check_id(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The only writer; committed, and on the disk, when the block ends without an error.

        Raises:
            LedgerError: this user may only read, the server is not durable, or the write failed.
        """
        with self.backend.transaction(writing=True) as connection:
            self._check_id(connection)
            self.backend.check_durable(connection)
            yield connection

    def check_pages(self) -> None:
        """Let the database check itself.

        Raises:
            LedgerCorruptError: it is damaged.
        """
        with self.reading() as connection:
            self.backend.check_integrity(connection)

    def append(self, connection: Connection, entry: Entry) -> int:
        """Write one entry and move the head; final once the transaction is committed.

        Returns:
            The number of its row.

        Raises:
            LedgerError: this user may not write it, as far as the database knows its users.
        """
        self.backend.check_author(connection, entry)
        row: int = connection.execute(_APPEND, vars(entry)).scalar_one()
        moved = connection.execute(
            _MOVE_HEAD, {"of": entry.dataset, "before": entry.previous, "number": entry.seq, "after": entry.hash}
        ).rowcount
        if not moved:
            if entry.previous != GENESIS:
                raise LedgerCorruptError(
                    "ledger-damaged",
                    f"The head of data set {entry.dataset!r} is missing. Restore the ledger from a backup.",
                )
            connection.execute(_FIRST_HEAD, {"dataset": entry.dataset, "seq": entry.seq, "hash": entry.hash})
        return row

    @staticmethod
    def after(connection: Connection, last: int) -> list[tuple[int, Entry]]:
        """Return the entries after row `last` with their row numbers, in the order of writing."""
        return [
            (row, Entry(**dict(zip(_COLUMNS, values, strict=True))))
            for row, *values in connection.execute(_READ_AFTER, {"last": last})
        ]

    @staticmethod
    def heads(connection: Connection) -> dict[str, tuple[int, str]]:
        """Return the last number and hash of every data set; kept apart from the chain, so that a lost tail shows."""
        return {name: (seq, head) for name, seq, head in connection.execute(_READ_HEADS)}

    def _read_id(self, connection: Connection) -> str:
        row = connection.execute(_READ_META).one_or_none()
        if row is None:
            raise LedgerCorruptError(
                "ledger-damaged", f"The ledger {self.url} has lost its id. Restore it from a backup."
            )
        found, ledger_id = row
        if found != FORMAT:
            raise LedgerError(
                "ledger-format",
                f"The ledger {self.url} has format {found}; this version reads format {FORMAT}. Nothing was changed. "
                "Open it with the version of dp-tuner that wrote it.",
            )
        return str(ledger_id)

    def _check_id(self, connection: Connection) -> None:
        """Check in every transaction that this is still the ledger that was opened."""
        found = self._read_id(connection)
        if found != self.ledger_id:
            raise LedgerError(
                "ledger-replaced",
                f"The ledger {self.url} was replaced while it was in use: its id was {self.ledger_id} and is now "
                f"{found}. Put the original back; only it holds what was charged.",
            )


_COLUMNS = tuple(column.name for column in _ENTRIES.columns if column.name != "id")


def masked(url: str) -> str:
    """Return the URL without its passwords, for a message."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"(//[^:/@]*):[^/]*@", r"\1:***@", url))
