"""Where the ledger's entries lie, by URL: an SQLite file, or a PostgreSQL database for a team."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import InputError
from tuner.privacy.ledger.store_base import Store, masked
from tuner.privacy.ledger.store_postgres import PostgresStore, check_url
from tuner.privacy.ledger.store_sqlite import SqliteStore, path_of

__all__ = ["Store", "absolute_url", "exists", "masked", "open_store"]


def open_store(url: str, *, create: bool) -> Store:
    """Open the store at `url`.

    Args:
        url: `sqlite:///runs/ledger.db` or `postgresql://user@host/database`.
        create: whether a ledger is made where there is none. A worker says False: it must never start afresh.

    Raises:
        InputError: the URL is of neither, or the driver is not installed.
        LedgerError: there is none and none may be made, it cannot be opened, or is of another format.
        LedgerCorruptError: what is there is no ledger.
    """
    return PostgresStore(url, create=create) if _is_postgres(url) else SqliteStore(url, create=create)


def exists(url: str) -> bool:
    """Whether there is a ledger at `url`; looking does not make one.

    Raises:
        InputError: the URL is neither of an SQLite file nor of a PostgreSQL database.
        LedgerError: the database cannot be asked.
    """
    return PostgresStore.exists(url) if _is_postgres(url) else path_of(url).exists()


def absolute_url(url: str) -> str:
    """The URL as another process in another folder may use it; nothing is opened.

    Raises:
        InputError: the URL is neither of an SQLite file nor of a PostgreSQL database.
    """
    if _is_postgres(url):
        check_url(url)
        return url
    return f"sqlite:///{path_of(url)}"


def _is_postgres(url: str) -> bool:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InputError(
            "ledger must be a URL like sqlite:///runs/ledger.db or postgresql://user@host/database, got "
            f"{masked(url)!r}."
        ) from error
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        return True
    if parsed.get_backend_name() != "sqlite":
        raise InputError(
            f"ledger must be an SQLite file or a PostgreSQL database, got {masked(url)!r}. "
            "Write sqlite:///runs/ledger.db or postgresql://user@host/database."
        )
    return False
