"""Stores of the ledger's entries, by URL: an SQLite file, or a PostgreSQL database for a team."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import InputError
from tuner.privacy.ledger.stores.postgresql import Postgres
from tuner.privacy.ledger.stores.sqlite import Sqlite
from tuner.privacy.ledger.stores.store import Backend, Store, masked

__all__ = ["Backend", "Store", "absolute_url", "masked", "open_store", "store_exists"]


def open_store(url: str, *, create: bool) -> Store:
    """Open the store at `url`.

    Args:
        url: `sqlite:///runs/ledger.db` or `postgresql://user@host/database`.
        create: whether to create a ledger where there is none. Workers pass False: they must never start afresh.

    Raises:
        InputError: the URL is of neither kind, or the driver is not installed.
        LedgerError: there is no ledger and none may be created, it cannot be opened, or it has another format.
        LedgerCorruptError: the file or database is not a ledger.
    """
    return Store(_backend(url), create=create)


def store_exists(url: str) -> bool:
    """Return whether there is a ledger at `url`; looking does not create one.

    Raises:
        InputError: the URL is neither of an SQLite file nor of a PostgreSQL database.
        LedgerError: the database does not answer.
    """
    return _backend(url).exists()


def absolute_url(url: str) -> str:
    """Return the URL as a process in another folder can use it; nothing is opened.

    Raises:
        InputError: the URL is neither of an SQLite file nor of a PostgreSQL database.
    """
    return _backend(url).url


def _backend(url: str) -> Backend:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InputError("ledger-url", f"The ledger's URL cannot be read: {masked(url)!r}. {_EXAMPLES}") from error
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        return Postgres(url)
    if parsed.get_backend_name() == "sqlite":
        return Sqlite(url)
    raise InputError(
        "ledger-url", f"The ledger must be an SQLite file or a PostgreSQL database (got {masked(url)!r}). {_EXAMPLES}"
    )


_EXAMPLES = "Write sqlite:///runs/ledger.db or postgresql://user@host/database."
