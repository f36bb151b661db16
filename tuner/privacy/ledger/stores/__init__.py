"""Stores of the ledger's entries: an SQLite file, or a PostgreSQL database for a team."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.files import require_kept
from tuner.passwords import hide_password
from tuner.privacy.ledger.stores.file_url import file_of

if TYPE_CHECKING:
    from tuner.privacy.ledger.stores.store import Backend, Store

__all__ = ["absolute_url", "default_url", "open_store", "require_folder", "store_exists"]


def open_store(url: str, *, create: bool) -> Store:
    """Open the store at `url`. If it does not exist and `create` is true, create it first. See `Ledger.open`."""
    from tuner.privacy.ledger.stores.store import Store

    return Store(_backend(url), create=create)


def store_exists(url: str) -> bool:
    """Return whether a ledger exists at `url`, without creating one."""
    return _backend(url).exists()


def absolute_url(url: str) -> str:
    """Return the URL with which a process in any folder can open the ledger."""
    return _backend(url).url


def default_url() -> str:
    """Return the URL of the default ledger. It is the same in every folder, so that no folder hides a charge."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return f"sqlite:///{Path(home).expanduser().absolute()}/dp-tuner/ledger.db"


def require_folder(url: str, *, made: Path | None = None) -> None:
    """Raise an InputError if the URL is malformed, or if the folder of its file does not exist or will be deleted.

    A mistyped folder would start a ledger without history. That of the default ledger, and the folder `made` that a
    command makes first, may be missing.
    """
    file = file_of(url)
    folder = _backend(url).folder if file is None else file.parent
    require_kept(folder)
    default = file is not None and file == file_of(default_url())
    if not (folder is None or folder.is_dir() or default or (made and folder == made.absolute())):
        raise InputError(
            "ledger-folder-missing",
            f"The ledger's folder {folder} does not exist. Correct the path if you have a ledger, because a new "
            "ledger would contain no earlier search. If you have no ledger yet, make the folder first.",
        )


def _backend(url: str) -> Backend:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from tuner.privacy.ledger.stores.postgresql import Postgres
    from tuner.privacy.ledger.stores.sqlite import Sqlite

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise _not_a_url(url) from error
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        return Postgres(url)
    if parsed.get_backend_name() == "sqlite":
        return Sqlite(url)
    raise _not_a_url(url)


def _not_a_url(url: str) -> InputError:
    """Return the error for an address that is neither of SQLite nor of PostgreSQL. For a path, it writes the URL."""
    # The part after an @ or a ? may be a password, which the URL for the file would repeat.
    is_path = bool(url.strip()) and not url.startswith(("sqlite:", "postgresql:"))
    is_path = is_path and not any(mark in url for mark in ("://", "@", "?"))
    files = f"sqlite:///{Path(url)} for this file" if is_path else "sqlite:////srv/my.db for the file /srv/my.db"
    return InputError(
        "ledger-url",
        f"The ledger's URL must be one of SQLite or PostgreSQL (got {hide_password(url)!r}). Write {files}, or "
        "postgresql://user@host/database for a database.",
    )
