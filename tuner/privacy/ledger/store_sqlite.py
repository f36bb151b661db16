"""The ledger in an append-only SQLite file, written in one immediate transaction at a time."""

from __future__ import annotations

import os
import pwd
import sqlite3
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.store_base import BUSY_SECONDS, SCHEMA, Store, masked

__all__ = ["SqliteStore", "path_of"]

_WRITE = "BEGIN IMMEDIATE"
_MAGIC = 0x44505442  # "DPTB", in the header of the file: another program's database is never written to
_TABLES = (
    "CREATE TABLE entries ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " dataset TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, kind TEXT NOT NULL,"
    " body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (dataset, seq))",
    "CREATE TABLE heads (dataset TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL)",
    "CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), schema INTEGER NOT NULL, ledger TEXT NOT NULL)",
    "CREATE TRIGGER meta_stays BEFORE DELETE ON meta BEGIN SELECT RAISE(ABORT, 'the ledger keeps its id'); END",
    "CREATE TRIGGER meta_is_final BEFORE UPDATE OF ledger ON meta"
    " BEGIN SELECT RAISE(ABORT, 'the ledger keeps its id'); END",
    f"PRAGMA application_id = {_MAGIC}",
)


class SqliteStore(Store):
    """Entries in an SQLite file (WAL, synchronous=FULL, every transaction moved into the file itself at once).

    A process that may write keeps its connection: whoever closes the last one makes SQLite fold up its files, which
    takes longer than the transaction. After an error, and after a fork, the next transaction begins with a fresh one.

    Who may not write the file or its folder can still read, as long as SQLite can: `budget` and `verify` need no more.

    Args:
        url: `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`; made absolute at once.
        create: whether a file that does not exist is made. Only who opens a ledger on purpose may create one; a
            worker that finds none must not start afresh.

    Raises:
        InputError: the URL is not an SQLite file.
        LedgerError: the file is absent and may not be created, cannot be opened, or is of another format.
        LedgerCorruptError: the file is not a ledger.
    """

    def __init__(self, url: str, *, create: bool) -> None:
        self.path = path_of(url)
        self.url = f"sqlite:///{self.path}"
        if create and not self.path.exists():
            _create(self.path)
        self._size = 0
        self._identity = self._identify()
        self._process = os.getpid()
        self._engine = _engine(self.path)
        weakref.finalize(self, self._engine.dispose)
        with self._transaction("BEGIN") as connection:
            self._require_ledger(connection)
            self.ledger_id = self._read_id(connection)

    def user(self) -> str:
        """The account of the operating system under which this process runs."""
        number = os.geteuid()
        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:  # a container without a line for this user
            return f"uid {number}"

    def _require_ledger(self, connection: Connection) -> None:
        if connection.execute(text("PRAGMA application_id")).scalar_one() != _MAGIC:
            raise LedgerCorruptError(
                f"{self.path} must be a ledger of dp-tuner, but is another database. Name another file."
            )

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self._transaction("BEGIN") as connection:
            self._check_id(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The one writer at a time; committed, and on the disk, when the block ends without an error.

        Raises:
            LedgerError: this user may only look, or the write failed.
        """
        if not _may_write(self.path):
            raise LedgerError(
                f"the ledger must be writable to charge or set anything, but this user may only read {self.path}. "
                "Nothing is charged. Give this user the right to write the file and its folder."
            )
        with self._transaction(_WRITE) as connection:
            self._check_id(connection)
            yield connection

    def check_pages(self) -> None:
        """Let SQLite check its own pages and indexes.

        Raises:
            LedgerCorruptError: a page is damaged.
        """
        with self.reading() as connection:
            found = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check(5)"))]
        if found != ["ok"]:
            raise LedgerCorruptError(
                f"{self.path} must be an undamaged SQLite file: {'; '.join(found)}. Restore a backup."
            )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        if self._identify() != self._identity:
            raise LedgerError(
                f"the ledger must stay the same file while it is used, but {self.path} was replaced. "
                "Put the original back; what was charged stands only there."
            )
        if self._process != os.getpid():
            self._engine.dispose(close=False)  # the parent's connections: to close them here would undo its locks
            self._process = os.getpid()
        seen = None if _may_write(self.path) else _stamp(self.path)
        try:
            with self._engine.connect() as connection:
                try:
                    connection.exec_driver_sql(begin)
                    yield connection
                    connection.exec_driver_sql("COMMIT")
                    if begin == _WRITE:
                        _move_into_file(connection)
                except BaseException:
                    connection.invalidate()
                    raise
        except (DBAPIError, sqlite3.Error, LedgerCorruptError) as error:
            _refuse_changed(self.path, seen, error)
            if isinstance(error, LedgerCorruptError):
                raise
            raise _explain(error, self.path) from error
        _refuse_changed(self.path, seen, None)

    def _identify(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise LedgerError(
                f"the ledger must exist, but {self.path} cannot be opened ({error.strerror}). "
                "Check the path; a ledger that is lost is restored from a backup, never started afresh."
            ) from error
        if found.st_size == 0:
            raise LedgerCorruptError(f"the ledger {self.path} is empty: it was cut off. Restore it from a backup.")
        # A connection that is kept remembers pages, and would not miss those that a shorter file has lost.
        if found.st_size < self._size:
            raise LedgerCorruptError(
                f"a ledger only grows, but {self.path} had {self._size} bytes and has {found.st_size}: it was cut off. "
                "Restore it from a backup."
            )
        self._size = found.st_size
        return found.st_dev, found.st_ino


def path_of(url: str) -> Path:
    """The absolute path of the SQLite file at `url`.

    Raises:
        InputError: the URL is not of an SQLite file.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.query or parsed.host:
        raise InputError(f"ledger must be a URL like sqlite:///runs/ledger.db, got {masked(url)!r}. Write it so.")
    if not parsed.database or parsed.database == ":memory:":
        raise InputError(
            f"ledger must be a file, or its spending is forgotten, got {url!r}. Write sqlite:///runs/ledger.db."
        )
    return Path(parsed.database).expanduser().resolve()


def _create(path: Path) -> None:
    """Make an empty ledger under a temporary name and link it into place: nobody ever sees half a ledger."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            draft = Path(folder) / "draft.db"
            raw = sqlite3.connect(draft)
            try:
                raw.execute("PRAGMA journal_mode=WAL")
                raw.execute("PRAGMA synchronous=FULL")
                for statement in _TABLES:
                    raw.execute(statement)
                raw.execute("INSERT INTO meta VALUES (1, ?, ?)", (SCHEMA, str(uuid4())))
                raw.commit()
            finally:
                raw.close()
            try:
                os.link(draft, path)
            except FileExistsError:  # another process was first: its ledger is the ledger
                return
            parent = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the ledger must be in a folder that can be written, but {path}: {error}.") from error


def _engine(path: Path) -> Engine:
    # Who may only look opens the file each time, in the way that its state then asks for.
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
    # mode=rw: opening never creates. isolation_level None: transactions begin where we say, not where the driver
    # guesses.
    mode = "mode=rw"
    if not _may_write(path):
        # Without the right to make its -shm file SQLite reads a WAL file only as immutable, which overlooks entries
        # that are still in the -wal: so only where there are none. Else -shm is there too, and mode=ro is enough.
        mode = "mode=ro" if _stamp(_wal(path)) else "mode=ro&immutable=1"
    return sqlite3.connect(
        f"{path.as_uri()}?{mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
        check_same_thread=False,
    )


def _move_into_file(connection: Connection) -> None:
    """Empty the -wal file after a transaction that is committed, and durable in it already.

    A process that is killed then leaves a file that holds all entries, and no -wal that another ledger at this place,
    or a backup that is put back, would be mixed with. Whoever reads at this moment keeps it from being emptied: the
    next transaction does it. Its failure changes nothing of what is charged.
    """
    with suppress(DBAPIError, sqlite3.Error):
        connection.exec_driver_sql("PRAGMA busy_timeout=20")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        connection.exec_driver_sql(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")


def _may_write(path: Path) -> bool:
    """Whether this user may write the file and make SQLite's helpers beside it; false on a read-only disk too."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in (path, path.parent))


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _stamp(path: Path) -> tuple[int, int] | None:
    """Size and time of change; None where there is no such file or nothing in it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None


def _refuse_changed(path: Path, seen: tuple[int, int] | None, error: Exception | None) -> None:
    """A reader without the right to lock the file must notice by itself that a writer moved entries into it."""
    if seen is not None and _stamp(path) != seen:
        raise LedgerError(
            f"a ledger must hold still while it is read, but {path} was just written. Try again."
        ) from error


def _explain(error: Exception, path: Path) -> LedgerError:
    said = str(getattr(error, "orig", error))
    if any(sign in said for sign in ("malformed", "not a database", "corrupt", "no such table", "no such column")):
        return LedgerCorruptError(
            f"the ledger {path} is damaged ({said}). Restore it from a backup; it is never started afresh."
        )
    if "unable to open" in said and not _may_write(path):
        return LedgerError(
            f"the ledger must be readable, but {path}: {said}. This user may not read it, or its last entries are "
            f"still in {_wal(path).name} and only who may write can move them: let its owner look at it once, or look "
            "at a copy of both files."
        )
    if "locked" in said or "busy" in said:
        fix = "Another process holds the ledger; end it, or try again."
    elif "readonly" in said or "read-only" in said:
        fix = "Give this user the right to write the file and its folder."
    elif "full" in said or "I/O" in said:
        fix = "Free space on the disk, then resume."
    else:
        fix = "Check the file and its folder."
    return LedgerError(f"the ledger must be readable and writable, but {path}: {said}. Nothing more is charged. {fix}")
