"""What every store of the ledger does alike: the tables, and the statements that read and append."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from sqlalchemy import Connection, text

from tuner.errors import LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import GENESIS, Entry

__all__ = ["BUSY_SECONDS", "SCHEMA", "Store", "masked"]

SCHEMA = 1
"""The format of the tables and of the entries."""

BUSY_SECONDS = 60
"""How long a writer waits for another one."""

# Made once: SQLAlchemy takes longer to read a statement than SQLite to execute it.
_AFTER = text("SELECT id, dataset, seq, time, kind, body, previous, hash FROM entries WHERE id > :last ORDER BY id")
_HEADS = text("SELECT dataset, seq, hash FROM heads")
_APPEND = text(
    "INSERT INTO entries (dataset, seq, time, kind, body, previous, hash) "
    "VALUES (:dataset, :seq, :time, :kind, :body, :previous, :hash) RETURNING id"
)
_MOVE = text("UPDATE heads SET seq = :seq, hash = :hash WHERE dataset = :dataset AND hash = :previous")
_BEGIN = text("INSERT INTO heads VALUES (:dataset, :seq, :hash)")


class Store(ABC):
    """Entries in a database, one writer at a time; safe across threads, and forks.

    Attributes:
        url: absolute; what another process opens.
        ledger_id: random, given when the ledger was made: two ledgers are the same one if and only if it is.
    """

    url: str
    ledger_id: str
    _meta_table = "meta"

    @abstractmethod
    def user(self) -> str:
        """Who is charging: as far as the database or the operating system has authenticated it."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """One consistent snapshot."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Connection]:
        """The one writer at a time; committed, and on the disk, when the block ends without an error.

        Raises:
            LedgerError: this user may only look, or the write failed.
        """

    @abstractmethod
    def check_pages(self) -> None:
        """Let the database check itself.

        Raises:
            LedgerCorruptError: it is damaged.
        """

    def _read_id(self, connection: Connection) -> str:
        """Return the id of the ledger, if its format is ours.

        Raises:
            LedgerCorruptError: it has lost its id.
            LedgerError: it is of another format.
        """
        row = connection.execute(text(f"SELECT schema, ledger FROM {self._meta_table}")).one_or_none()
        if row is None:
            raise LedgerCorruptError(f"the id of the ledger {self.url} is missing. Restore the ledger from a backup.")
        schema, found = row
        if schema != SCHEMA:
            raise LedgerError(
                f"The format of the ledger must be {SCHEMA} (got {schema} in {self.url}). Nothing was changed. Open it "
                "with the version of dp-tuner that wrote it."
            )
        return str(found)

    def _check_id(self, connection: Connection) -> None:
        """Hold the ledger against the one that was opened, in every transaction.

        Raises:
            LedgerCorruptError: it has lost its id.
            LedgerError: another ledger has taken its place, or another version has changed its format.
        """
        found = self._read_id(connection)
        if found != self.ledger_id:
            raise LedgerError(
                f"the ledger must stay the same one while it is used, but {self.url} was replaced: its id was "
                f"{self.ledger_id} and is {found}. Put the original back; what was charged stands only there."
            )

    @staticmethod
    def after(connection: Connection, last: int) -> list[tuple[int, Entry]]:
        """Entries written after row `last`, with their row numbers, in the order of writing."""
        rows = connection.execute(_AFTER, {"last": last})
        return [
            (
                row.id,
                Entry(
                    dataset=row.dataset, seq=row.seq, time=row.time, kind=row.kind,
                    body=row.body, previous=row.previous, hash=row.hash,
                ),
            )
            for row in rows
        ]  # fmt: skip

    @staticmethod
    def heads(connection: Connection) -> dict[str, tuple[int, str]]:
        """The last number and hash of every data set, kept beside the chain so that a lost tail is noticed."""
        rows = connection.execute(_HEADS)
        return {row.dataset: (row.seq, row.hash) for row in rows}

    def append(self, connection: Connection, entry: Entry) -> int:
        """Write one entry and move the head; true only once the transaction is committed.

        Raises:
            LedgerError: it is not this user's to write, as far as the store knows its users.
        """
        row: int = connection.execute(_APPEND, vars(entry)).scalar_one()
        moved = connection.execute(_MOVE, vars(entry)).rowcount
        if not moved:
            if entry.previous != GENESIS:
                raise LedgerCorruptError(
                    f"the head of data set {entry.dataset!r} is missing. Restore the ledger from a backup."
                )
            connection.execute(_BEGIN, vars(entry))
        return row


def masked(url: str) -> str:
    """The URL without its passwords, for a message."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"(//[^:/@]*):[^/]*@", r"\1:***@", url))
