"""The ledger in a PostgreSQL database, for a team: append-only tables in their own schema, one writer at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.store_base import BUSY_SECONDS, SCHEMA, Store, masked

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tuner.privacy.ledger.entries import Entry

__all__ = ["PostgresStore", "check_url"]

_NAMESPACE = "dp_tuner"  # a schema of our own: another program's tables of the same names are never touched
_NOT_THEIRS = "DP001"  # SQLSTATE of our own trigger, for what another role may write
_LOCK = 0x44505442  # "DPTB": the advisory lock that a writer holds, per database
_QUERY = ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout")
_CONNECT = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": str(BUSY_SECONDS * 1000),
    "application_name": "dp-tuner ledger",
    "client_encoding": "UTF8",
}
# Set in every transaction, so that no setting of the role, the database or a connection pooler can make a charge less
# than durable or lead to other tables. A writer that hangs is ended by the server before the others give up.
_SETTINGS = (
    f"SET LOCAL synchronous_commit = on; SET LOCAL search_path = pg_catalog, {_NAMESPACE}, pg_temp; "
    f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'; SET LOCAL statement_timeout = 0; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{BUSY_SECONDS // 2}s'"
)
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_SETTINGS}"
# READ COMMITTED: a snapshot that is older than the lock would miss what the writer before has charged.
_WRITE = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_SETTINGS}; SELECT pg_catalog.pg_advisory_xact_lock({_LOCK})"
)
_TABLES = f"""
CREATE TABLE {_NAMESPACE}.entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset text NOT NULL, seq bigint NOT NULL, time text NOT NULL, kind text NOT NULL,
    body text NOT NULL, previous text NOT NULL, hash text NOT NULL, UNIQUE (dataset, seq)
);
CREATE TABLE {_NAMESPACE}.heads (dataset text PRIMARY KEY, seq bigint NOT NULL, hash text NOT NULL);
CREATE TABLE {_NAMESPACE}.meta (one integer PRIMARY KEY CHECK (one = 1), schema integer NOT NULL, ledger text NOT NULL);
CREATE FUNCTION {_NAMESPACE}.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$;
CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {_NAMESPACE}.entries
    FOR EACH STATEMENT EXECUTE FUNCTION {_NAMESPACE}.refuse();
CREATE TRIGGER heads_stay BEFORE DELETE OR TRUNCATE ON {_NAMESPACE}.heads
    FOR EACH STATEMENT EXECUTE FUNCTION {_NAMESPACE}.refuse();
CREATE TRIGGER meta_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {_NAMESPACE}.meta
    FOR EACH STATEMENT EXECUTE FUNCTION {_NAMESPACE}.refuse();
"""
# The server's own word for who charges, whatever program writes and whatever its search_path: `session_user` is who
# logged in, whatever role was put on since. What is null is refused.
_VOUCH = f"""
CREATE FUNCTION {_NAMESPACE}.vouch() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$ BEGIN
    IF NEW.kind IN ('cap', 'grant', 'revoke') AND
        (SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = TG_RELID) IS NOT TRUE
    THEN RAISE EXCEPTION USING ERRCODE = '{_NOT_THEIRS}',
        MESSAGE = 'only who owns the ledger sets caps and shares, and ' || session_user || ' does not';
    END IF;
    IF NEW.kind = 'open_search' AND
        ((NEW.body::jsonb ->> 'user') COLLATE "C" = session_user::text COLLATE "C") IS NOT TRUE
    THEN RAISE EXCEPTION USING ERRCODE = '{_NOT_THEIRS}',
        MESSAGE = 'a search is of who opens it, and ' || session_user || ' opens one of another user';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER entries_are_vouched_for BEFORE INSERT ON {_NAMESPACE}.entries
    FOR EACH ROW EXECUTE FUNCTION {_NAMESPACE}.vouch();
"""
_FOUND = text(
    "SELECT c.relname, CAST(c.relpersistence AS text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{_NAMESPACE}' AND c.relname IN ('entries', 'heads', 'meta')"
)
_GUARDS = text(
    "SELECT t.tgname, t.tgenabled IN ('O', 'A') FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{_NAMESPACE}' AND NOT t.tgisinternal"
)
_FINAL = {"entries_are_final", "heads_stay", "meta_is_final"}
_VOUCHED = "entries_are_vouched_for"
# Whether this session may set caps and shares.
_OWNS = text(
    "SELECT pg_has_role(session_user, c.relowner, 'MEMBER') FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{_NAMESPACE}' AND c.relname = 'entries'"
)


class PostgresStore(Store):
    """Entries in tables of a PostgreSQL database, in the schema `dp_tuner`.

    Whoever may SELECT there can read; who charges needs INSERT on `entries` and INSERT, UPDATE on `heads` too. Caps and
    shares are set by who owns the tables, and a search is of the role that opens it: a trigger holds both. A charge
    is on the server's disk when it is answered (`synchronous_commit`; a server with `fsync` off is refused).

    Args:
        url: `postgresql://user@host/database`, without a password.
        create: whether the tables are made where there are none. A worker that finds none must not start afresh.

    Raises:
        InputError: the URL is malformed, or psycopg is not installed.
        LedgerError: there is no ledger and none may be made, the server cannot be used, or the format is another.
        LedgerCorruptError: a part of the ledger is missing.
    """

    # By its full name: who may not enter the schema is then told so, and not that there is no such table.
    _meta_table = f"{_NAMESPACE}.meta"

    def __init__(self, url: str, *, create: bool) -> None:
        self.url = url
        self._engine = _engine(check_url(url))
        with self._transaction(_READ) as connection:
            found = self._tables(connection)
            self._user: str = connection.execute(text("SELECT session_user")).scalar_one()
        if not found:
            if not create:
                raise LedgerError(
                    f"the ledger must exist, but there is none in {url}. Check the address; a ledger that is lost is "
                    "restored from a backup, never started afresh."
                )
            self._create()
        with self._transaction(_READ) as connection:
            self.ledger_id = self._read_id(connection)

    @classmethod
    def exists(cls, url: str) -> bool:
        """Whether there is a ledger in the database at `url`.

        Raises:
            InputError: the URL is malformed, or psycopg is not installed.
            LedgerError: the database cannot be asked.
        """
        asked = cls.__new__(cls)
        asked.url, asked._engine = url, _engine(check_url(url))
        with asked._transaction(_READ) as connection:
            return asked._tables(connection)

    def user(self) -> str:
        """The database role that the server authenticated (`session_user`)."""
        return self._user

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self._transaction(_READ) as connection:
            self._check_id(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The one writer at a time; committed, and on the server's disk, when the block ends without an error.

        Raises:
            LedgerError: this role may only look, or the write failed.
        """
        with self._transaction(_WRITE) as connection:
            self._check_id(connection)
            if connection.exec_driver_sql("SHOW fsync").scalar_one() != "on":
                raise LedgerError(
                    f"a charge must survive a crash, but the server of {self.url} runs with fsync = off. Nothing is "
                    "charged. Set fsync = on in postgresql.conf and reload it."
                )
            yield connection

    def check_pages(self) -> None:
        """Look for what the server does not check by itself as it reads: triggers that were dropped, unlogged tables.

        Raises:
            LedgerCorruptError: something is missing.
        """
        with self.reading() as connection:
            self._tables(connection)
            guards = self._guards(connection)
        if not all(guards.get(name) for name in _FINAL):
            raise LedgerCorruptError(
                f"the ledger must be append-only, but triggers of schema {_NAMESPACE} in {self.url} were dropped or "
                "disabled. Compare the ledger with a backup, and put them back."
            )
        if not guards.get(_VOUCHED):
            raise LedgerCorruptError(
                f"the server must vouch for who charges, but the trigger {_VOUCHED} of {self.url} was dropped or "
                "disabled. Put it back, and compare caps, shares and users with what was agreed."
            )

    def append(self, connection: Connection, entry: Entry) -> int:
        """Write one entry, if it is this role's to write; the server's trigger holds whoever does not ask here.

        Raises:
            LedgerError: a cap or a share by who does not own the tables, or a search of another user.
        """
        if entry.kind in {"cap", "grant"} and not connection.execute(_OWNS).scalar_one():
            raise LedgerError(
                f"only who owns the tables of {self.url} sets caps and shares, got {entry.kind} by {self._user}. "
                "Nothing is written. Let the owner of the data do it."
            )
        if entry.kind == "open_search" and (user := entry.data["user"]) != self._user:
            raise LedgerError(
                f"a search in {self.url} is of who opens it, got one of {user!r} by {self._user}. Nothing is charged. "
                "Connect as that role."
            )
        return super().append(connection, entry)

    def _guards(self, connection: Connection) -> dict[str, bool]:
        """The triggers that are there, and whether each is enabled."""
        return {str(name): bool(enabled) for name, enabled in connection.execute(_GUARDS)}

    def _create(self) -> None:
        with self._transaction(_WRITE) as connection:
            if self._tables(connection):  # another process was first: its ledger is the ledger
                return
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
            if encoding != "UTF8":
                raise LedgerError(
                    f"the ledger's database must be in UTF8, got {encoding} in {self.url}. Make one: createdb "
                    "--encoding UTF8 --template template0 NAME."
                )
            there = text("SELECT count(*) FROM pg_namespace WHERE nspname = :name")
            if not connection.execute(there, {"name": _NAMESPACE}).scalar_one():
                connection.exec_driver_sql(f"CREATE SCHEMA {_NAMESPACE}")
            connection.exec_driver_sql(_TABLES)
            connection.exec_driver_sql(_VOUCH)
            connection.execute(
                text("INSERT INTO meta VALUES (1, :schema, :id)"), {"schema": SCHEMA, "id": str(uuid4())}
            )

    def _tables(self, connection: Connection) -> bool:
        """Whether the ledger's tables are there: all, or none."""
        found = {str(name): str(persistence) for name, persistence in connection.execute(_FOUND)}
        if found and len(found) < 3:
            raise LedgerCorruptError(
                f"the ledger must be whole, but only {', '.join(sorted(found))} of its tables entries, heads and meta "
                f"are left in schema {_NAMESPACE} of {self.url}. Restore it from a backup; it is never started afresh."
            )
        if set(found.values()) - {"p"}:
            raise LedgerError(
                f"a charge must survive a crash, but tables of {self.url} are UNLOGGED. Nothing is charged. "
                f"ALTER TABLE {_NAMESPACE}.entries SET LOGGED, and heads and meta likewise."
            )
        return bool(found)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(begin)
                yield connection
                driver: Any = connection.connection.driver_connection
                if driver.info.transaction_status.name != "INTRANS":  # its COMMIT would be a ROLLBACK, without an error
                    raise LedgerError(f"a transaction of {self.url} failed before its end. Nothing is charged. Resume.")
                connection.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            raise _explain(error, self.url) from error


def check_url(url: str) -> URL:
    """The parsed URL of a PostgreSQL database.

    Raises:
        InputError: it holds a password, or what is not supported.
    """
    parsed = make_url(url)
    if parsed.password is not None or "password" in parsed.query:
        raise InputError(
            f"the ledger's URL must hold no password, got {masked(url)}: it is stored in the folder of every sweep and "
            "shown in MLflow. Take it out, and put the password into ~/.pgpass or PGPASSWORD."
        )
    unknown = sorted(set(parsed.query) - set(_QUERY))
    if unknown:
        raise InputError(
            f"the ledger's URL may set {', '.join(_QUERY)} after its ?, got {', '.join(unknown)} in {masked(url)}. "
            "Take it out, or set it in the server or in libpq's environment."
        )
    hosts = (parsed.host or "", parsed.query.get("host", ""), parsed.query.get("port", ""))
    if any(not isinstance(host, str) or "," in host for host in hosts):
        raise InputError(
            f"the ledger's URL must name one server, got {url!r}. Name the one that is written to: two servers that "
            "do not agree at once would be two budgets."
        )
    if not parsed.database:
        raise InputError(f"the ledger's URL must name a database, got {url!r}. Write postgresql://user@host/database.")
    return parsed


def _engine(url: URL) -> Engine:
    options = {**_CONNECT, **url.query}
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg", query=options),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",  # transactions begin where we say
            use_native_hstore=False,
            connect_args={"prepare_threshold": None},  # a pooler between us and the server may not keep them
        )
    except ImportError as error:
        raise InputError(
            f"a ledger in PostgreSQL needs psycopg, which cannot be imported here ({error}). "
            "Install it: pip install 'dp-tuner[postgres]'."
        ) from error


def _explain(error: DBAPIError, url: str) -> LedgerError:
    original: Any = error.orig
    said = re.sub(r"\s+", " ", str(original)).strip(" .?")
    state = getattr(original, "sqlstate", None)
    match state:
        case "42P01" | "3F000" | "42703" | "XX001" | "XX002" | "23505":
            return _damaged(said, url)
        case None | "57P01" | "57P02" | "57P03" | "28000" | "28P01" | "3D000" | "25P03":
            fix = (
                "Check that the server runs, the address, that the database exists and that the role may connect "
                "(its password comes from ~/.pgpass or PGPASSWORD); then resume."
            )
        case "42501":
            fix = (
                f"Its owner has to GRANT USAGE ON SCHEMA {_NAMESPACE} and SELECT on its tables, and to who charges "
                f"INSERT ON {_NAMESPACE}.entries and INSERT, UPDATE ON {_NAMESPACE}.heads. If there is no ledger "
                "yet, who may CREATE in the database opens it first."
            )
        case _ if state == _NOT_THEIRS:
            fix = "Let the owner of the tables set caps and shares, and open a search under your own role."
        case "53100":
            fix = "Free space on the server's disk, then resume."
        case "53300":
            fix = "The server has no connection left; raise max_connections, or try again."
        case "55P03":
            fix = "Another process holds the ledger; end it, or try again."
        case "25006":
            fix = "The server is a standby or read-only; name the one that is written to."
        case _:
            fix = f"Check the server's log (SQLSTATE {state})."
    return LedgerError(f"the ledger must be readable and writable, but {url}: {said}. Nothing more is charged. {fix}")


def _damaged(said: str, url: str) -> LedgerCorruptError:
    return LedgerCorruptError(
        f"the ledger {url} is damaged or was taken away ({said}). Restore it from a backup; it is never started afresh."
    )
