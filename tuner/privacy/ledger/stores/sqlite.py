"""Ledger in an SQLite database: one append-only file."""

from __future__ import annotations

import os
import pwd
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.files import create_private
from tuner.passwords import hide_password
from tuner.privacy.ledger.stores.store import BUSY_SECONDS, Backend, create_tables

__all__ = ["Sqlite"]

_READ, _WRITE = "BEGIN", "BEGIN IMMEDIATE"
_MAGIC = 0x44505442  # "DPTB" in the header of the file marks a ledger; databases of other programs are never written
_GUARDS = (
    "CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER divisions_are_final BEFORE UPDATE ON divisions"
    " BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER divisions_stay BEFORE DELETE ON divisions"
    " BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER meta_stays BEFORE DELETE ON meta BEGIN SELECT RAISE(ABORT, 'the ledger keeps its id'); END",
    "CREATE TRIGGER meta_is_final BEFORE UPDATE OF ledger ON meta"
    " BEGIN SELECT RAISE(ABORT, 'the ledger keeps its id'); END",
    f"PRAGMA application_id = {_MAGIC}",
)


class Sqlite(Backend):
    """Ledger in an SQLite file (WAL, synchronous=FULL). The -wal file is merged after every write transaction.

    A process that may write keeps its connection open. Closing the last connection would make SQLite merge its files,
    which takes longer than a transaction. After an error or a fork, the next transaction uses a new connection.

    A user who may not write to the file or its folder can still read the ledger, for example with `tune budget`.

    Args:
        url: `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`.

    Raises:
        InputError: the URL does not name a file.
    """

    def __init__(self, url: str) -> None:
        self._path = _path_of(url)
        self.url = f"sqlite:///{self._path}"

    def exists(self) -> bool:
        """Return whether the file exists."""
        try:
            return self._path.exists()
        except OSError as error:
            raise LedgerError(
                "ledger-not-readable",
                f"The ledger {self._path} cannot be opened ({error.strerror}). Give this user access to its folder.",
            ) from error

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._path.parent

    def create(self) -> None:
        """Create an empty ledger under a temporary name, then link it into place. So no unfinished file is visible.

        Only this account may enter its folder, if it is new, and read and write it. A team that shares a file opens it.
        """
        path = self._path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
                draft = Path(folder) / "draft.db"
                _write_draft(draft, self.key_path)
                try:
                    os.link(draft, path)
                except FileExistsError:  # another process created the ledger first; keep that one
                    return
                parent = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(parent)
                finally:
                    os.close(parent)
        except (OSError, DBAPIError) as error:
            raise LedgerError(
                "ledger-not-writable",
                f"The ledger {path} cannot be created ({getattr(error, 'orig', error)}). Choose a folder that this "
                "user may write.",
            ) from error

    def open(self) -> None:
        """Prepare for transactions; raise `LedgerCorruptError` if the file is another program's database."""
        self._size = 0
        self._identity = self._identify()
        self._process = os.getpid()
        self._engine = _engine(self._path)
        weakref.finalize(self, self._engine.dispose)
        with self.transaction(writing=False) as connection:
            if connection.exec_driver_sql("PRAGMA application_id").scalar_one() != _MAGIC:
                raise LedgerCorruptError(
                    "ledger-foreign", f"{self._path} is a database of another program. Choose another file."
                )

    def key_path(self, ledger_id: str) -> Path:
        """Return the default file of the ledger's key, which is next to the ledger."""
        return self._path.with_name(f"{self._path.name}.key")

    def user(self) -> str:
        """Return the account of the operating system under which this process runs."""
        number = os.geteuid()
        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:  # a container may have no account for this user
            return f"uid {number}"

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Connection]:
        """Begin a transaction, and commit it if the block ends without an error; see `Backend`."""
        path = self._path
        if writing and not _may_write(path):
            raise LedgerError(
                "ledger-read-only",
                f"This user may only read the ledger {path}. Give this user write access to the file and its folder.",
            )
        if self._identify() != self._identity:
            raise LedgerError(
                "ledger-replaced",
                f"The ledger {path} was replaced by another file while it was in use. Restore the original ledger. "
                "Only the original ledger has all charges.",
            )
        if self._process != os.getpid():
            self._engine.dispose(close=False)  # closing the parent process's connections would release its locks
            self._process = os.getpid()
        seen = None if _may_write(path) else _stamp(path)
        try:
            with self._engine.connect() as connection:
                try:
                    connection.exec_driver_sql(_WRITE if writing else _READ)
                    yield connection
                    connection.exec_driver_sql("COMMIT")
                    if writing:
                        _move_into_file(connection)
                except BaseException:
                    connection.invalidate()
                    raise
        except (DBAPIError, sqlite3.Error, LedgerCorruptError) as error:
            _refuse_changed(path, seen, error)
            if isinstance(error, LedgerCorruptError):
                raise
            raise _explain(error, path) from error
        _refuse_changed(path, seen, None)

    def check_integrity(self, connection: Connection) -> None:
        """Run SQLite's check of pages and indexes; raise `LedgerCorruptError` if it finds damage."""
        found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(5)")]
        if found != ["ok"]:
            raise LedgerCorruptError(
                "ledger-damaged",
                f"The ledger {self._path} is damaged: {'; '.join(found)}. Restore the ledger from a backup.",
            )

    def _identify(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise LedgerError(
                "ledger-not-found",
                f"The ledger {self._path} cannot be opened ({error.strerror}). Check the path. If the ledger was lost, "
                "restore it from a backup. A new ledger would not contain the charges made so far.",
            ) from error
        if found.st_size == 0:
            raise LedgerCorruptError(
                "ledger-damaged",
                f"The ledger {self._path} is an empty file. If it had entries, restore it from a backup. Else delete "
                "the file.",
            )
        # An open connection caches pages, so SQLite does not notice that a file was truncated.
        if found.st_size < self._size:
            raise LedgerCorruptError(
                "ledger-damaged",
                f"The ledger {self._path} was truncated from {self._size} to {found.st_size} bytes. Restore it from a "
                "backup.",
            )
        self._size = found.st_size
        return found.st_dev, found.st_ino


def _path_of(url: str) -> Path:
    parsed = make_url(url)
    if parsed.query or parsed.host:
        raise InputError(
            "ledger-url",
            f"The URL of an SQLite ledger must contain only a path (got {hide_password(url)}). Write sqlite:///FILE.",
        )
    if not parsed.database or parsed.database == ":memory:":
        raise InputError(
            "ledger-url", f"The ledger must be in a file, not in memory (got {url!r}). Write sqlite:///FILE."
        )
    return Path(parsed.database).expanduser().resolve()


def _write_draft(path: Path, key_path: Callable[[str], Path]) -> None:
    create_private(path)  # SQLite gives its other files the mode of this one
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        connection.exec_driver_sql("PRAGMA synchronous=FULL")
        create_tables(connection, key_path)
        for statement in _GUARDS:
            connection.exec_driver_sql(statement)


def _engine(path: Path) -> Engine:
    # A user without write access opens the file anew for each transaction, because the mode depends on the -wal file.
    pool: dict[str, Any] = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": -1}
    engine = create_engine(
        "sqlite://", creator=lambda: _connect(path), **(pool if _may_write(path) else {"poolclass": NullPool})
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own signature
        connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA wal_autocheckpoint=0")  # see _move_into_file

    return engine


def _connect(path: Path) -> sqlite3.Connection:
    mode = "mode=rw"  # never creates a file
    if not _may_write(path):
        # Without write access SQLite cannot create the -shm file, so the ledger is opened as immutable. SQLite then
        # ignores the -wal file. If the -wal file has entries, the -shm file exists already, and mode=ro works.
        mode = "mode=ro" if _stamp(_wal(path)) else "mode=ro&immutable=1"
    return sqlite3.connect(
        f"{path.as_uri()}?{mode}",
        uri=True,
        isolation_level=None,  # the driver begins no transactions
        timeout=BUSY_SECONDS,
        check_same_thread=False,
    )


def _move_into_file(connection: Connection) -> None:
    """Merge the -wal file into the database file. The committed transaction is already durable in the -wal file.

    Without the merge, a killed process could leave a -wal file that is later mixed with a restored backup. If a
    concurrent reader prevents the merge, the next transaction repeats it. A failure does not affect the charges.
    """
    with suppress(DBAPIError, sqlite3.Error):
        connection.exec_driver_sql("PRAGMA busy_timeout=20")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        connection.exec_driver_sql(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")


def _may_write(path: Path) -> bool:
    """Return whether this user may write to the file and create SQLite's helper files next to it."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in (path, path.parent))


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return the size and the modification time of a file, or None if the file is missing or empty."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None


def _refuse_changed(path: Path, seen: tuple[int, int] | None, error: Exception | None) -> None:
    """Raise `LedgerError` if the file no longer has the size and time `seen`; do nothing if `seen` is None.

    A user without write access cannot lock the file during a read, so the file may change.
    """
    if seen is not None and _stamp(path) != seen:
        raise LedgerError("ledger-busy", f"The ledger {path} was changed while it was read. Try again.") from error


def _explain(error: Exception, path: Path) -> LedgerError:
    said = str(getattr(error, "orig", error))
    if any(sign in said for sign in ("malformed", "not a database", "corrupt", "no such table", "no such column")):
        return LedgerCorruptError(
            "ledger-damaged", f"The ledger {path} is damaged ({said}). Restore the ledger from a backup."
        )
    if "unable to open" in said and not _may_write(path):
        return LedgerError(
            "ledger-not-readable",
            f"The ledger {path} cannot be read ({said}). Give this user read access. If the file "
            f"{_wal(path).name} exists, ask the ledger's owner to open the ledger once, or read a copy of both files.",
        )
    if "unable to open" in said and _wal(path).exists() and not _may_write(_wal(path)):
        return LedgerError(
            "ledger-not-readable",
            f"The ledger {path} cannot be used ({said}), because this user may not write {_wal(path).name}, which "
            "another user made. Let that user end their search. If it has ended, let that user open the ledger once "
            "(`tune budget show`). If several users share the ledger, run `chmod g+s` on its folder first.",
        )
    if "locked" in said or "busy" in said:
        code, fix = "ledger-busy", "Another process is using the ledger. Try again later, or end that process."
    elif "readonly" in said or "read-only" in said:
        code, fix = "ledger-read-only", "Give this user write access to the file and its folder."
    elif "full" in said or "I/O" in said:
        code, fix = "ledger-disk-full", "Free some disk space, then resume."
    else:
        code, fix = "ledger-unavailable", "Check the file and its folder."
    return LedgerError(code, f"The ledger {path} cannot be used ({said}). Nothing more is charged. {fix}")
