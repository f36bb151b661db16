"""PostgreSQL as the ledger's database: append-only tables in a schema of their own, one writer at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.privacy.ledger.entries import Entry
from tuner.privacy.ledger.stores.store import BUSY_SECONDS, TABLES, Backend, create_tables, masked

__all__ = ["Postgres"]

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
# than durable or lead to other tables. The server ends a writer that hangs before the others give up.
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
_GUARDS = f"""
CREATE FUNCTION {_NAMESPACE}.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$;
CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {_NAMESPACE}.entries
    FOR EACH STATEMENT EXECUTE FUNCTION {_NAMESPACE}.refuse();
CREATE TRIGGER heads_stay BEFORE DELETE OR TRUNCATE ON {_NAMESPACE}.heads
    FOR EACH STATEMENT EXECUTE FUNCTION {_NAMESPACE}.refuse();
CREATE TRIGGER meta_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {_NAMESPACE}.meta
    FOR EACH STATEMENT EXECUTE FUNCTION {_NAMESPACE}.refuse();
"""
# The server itself checks who charges, whatever program writes and whatever its search_path: `session_user` is the
# role that logged in, whatever role was set since. NULL is refused.
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
_TRIGGERS = text(
    "SELECT t.tgname, t.tgenabled IN ('O', 'A') FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{_NAMESPACE}' AND NOT t.tgisinternal"
)
_FINAL = {"entries_are_final", "heads_stay", "meta_is_final"}
_VOUCHED = "entries_are_vouched_for"
_OWNS = text(
    "SELECT pg_has_role(session_user, c.relowner, 'MEMBER') FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{_NAMESPACE}' AND c.relname = 'entries'"
)


class Postgres(Backend):
    """Tables of a PostgreSQL database, in the schema `dp_tuner`.

    A role with SELECT can read; a role that charges also needs INSERT on `entries` and INSERT, UPDATE on `heads`. Only
    owners of the tables set caps and shares, and a search belongs to the role that opens it: a trigger enforces both.
    A charge is on the server's disk when it is answered (`synchronous_commit`; a server with `fsync` off is refused).

    Args:
        url: `postgresql://user@host/database`, without a password.

    Raises:
        InputError: the URL is malformed, or psycopg is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._parsed = _parse(url)

    def exists(self) -> bool:
        """Return whether the ledger's tables exist.

        Raises:
            LedgerError: the database does not answer, or its tables are not durable.
            LedgerCorruptError: some of the tables are missing.
        """
        with self.transaction(writing=False) as connection:
            return self._has_tables(connection)

    def create(self) -> None:
        """Create the tables in one transaction; if another process was first, its ledger is kept."""
        with self.transaction(writing=True) as connection:
            if self._has_tables(connection):
                return
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
            if encoding != "UTF8":
                raise LedgerError(
                    "ledger-encoding",
                    f"The database of a ledger must be in UTF8 (got {encoding} in {self.url}). Create one: createdb "
                    "--encoding UTF8 --template template0 NAME.",
                )
            there = text("SELECT count(*) FROM pg_namespace WHERE nspname = :name")
            if not connection.execute(there, {"name": _NAMESPACE}).scalar_one():
                connection.exec_driver_sql(f"CREATE SCHEMA {_NAMESPACE}")
            create_tables(connection)
            connection.exec_driver_sql(_GUARDS)
            connection.exec_driver_sql(_VOUCH)

    def open(self) -> None:
        """Do nothing: each transaction connects by itself."""

    def user(self) -> str:
        """Return the database role that the server authenticated (`session_user`)."""
        return self._session_user

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Connection]:
        """Begin a transaction, and commit it when the block ends without an error; see `Backend`."""
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(_WRITE if writing else _READ)
                yield connection
                driver: Any = connection.connection.driver_connection
                if driver.info.transaction_status.name != "INTRANS":  # its COMMIT would be a ROLLBACK, without an error
                    raise LedgerError(
                        "ledger-unavailable",
                        f"A transaction of {self.url} failed before its end. Nothing is charged. Resume.",
                    )
                connection.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            raise _explain(error, self.url) from error

    def check_integrity(self, connection: Connection) -> None:
        """Check what the server does not check as it reads: triggers that were dropped, and unlogged tables.

        Raises:
            LedgerCorruptError: something is missing.
        """
        self._has_tables(connection)
        enabled = {str(name) for name, is_enabled in connection.execute(_TRIGGERS) if is_enabled}
        missing = sorted({*_FINAL, _VOUCHED} - enabled)
        if missing:
            raise LedgerCorruptError(
                "ledger-trigger-missing",
                f"Triggers of schema {_NAMESPACE} in {self.url} were dropped or disabled: {', '.join(missing)}. Put "
                "them back, and compare the entries, caps, shares and users with a backup.",
            )

    def check_durable(self, connection: Connection) -> None:
        """Refuse a server that does not write to its disk.

        Raises:
            LedgerError: it runs with fsync = off.
        """
        if connection.exec_driver_sql("SHOW fsync").scalar_one() != "on":
            raise LedgerError(
                "ledger-not-durable",
                f"The server of {self.url} runs with fsync = off, so a charge might not survive a crash. Nothing is "
                "charged. Set fsync = on in postgresql.conf and reload it.",
            )

    def check_author(self, connection: Connection, entry: Entry) -> None:
        """Refuse an entry of another role's; the server's trigger refuses it too, whatever program writes.

        Raises:
            LedgerError: a cap or a share by a role that does not own the tables, or a search of another user.
        """
        if entry.kind in {"cap", "grant"} and not connection.execute(_OWNS).scalar_one():
            raise LedgerError(
                "ledger-not-owner",
                f"Only owners of the tables of {self.url} set caps and shares, and {self.user()} is not one. Nothing "
                "is written. Let the owner of the data do it.",
            )
        if entry.kind == "open_search" and (user := entry.data["user"]) != self.user():
            raise LedgerError(
                "ledger-other-user",
                f"A search belongs to the role that opens it: {self.user()} cannot open one of {user!r} in "
                f"{self.url}. Nothing is charged. Connect as that role.",
            )

    def _has_tables(self, connection: Connection) -> bool:
        """Return whether the ledger's tables exist: all, or none."""
        found = {str(name): str(persistence) for name, persistence in connection.execute(_FOUND)}
        if found and len(found) < len(TABLES.tables):
            raise LedgerCorruptError(
                "ledger-damaged",
                f"Only {', '.join(sorted(found))} of the tables entries, heads and meta are left in schema "
                f"{_NAMESPACE} of {self.url}. Restore the ledger from a backup; it is never started afresh.",
            )
        if set(found.values()) - {"p"}:
            raise LedgerError(
                "ledger-not-durable",
                f"Tables of {self.url} are UNLOGGED, so a charge might not survive a crash. Nothing is charged. ALTER "
                f"TABLE {_NAMESPACE}.entries SET LOGGED, and heads and meta likewise.",
            )
        return bool(found)

    @cached_property
    def _session_user(self) -> str:
        with self.transaction(writing=False) as connection:
            return str(connection.exec_driver_sql("SELECT session_user").scalar_one())

    @cached_property
    def _engine(self) -> Engine:
        options = {**_CONNECT, **self._parsed.query}
        try:
            return create_engine(
                self._parsed.set(drivername="postgresql+psycopg", query=options),
                poolclass=NullPool,
                isolation_level="AUTOCOMMIT",  # transactions begin where we say
                # Full names: a role without access to the schema is told so, and not that there is no such table.
                execution_options={"schema_translate_map": {None: _NAMESPACE}},
                use_native_hstore=False,
                connect_args={"prepare_threshold": None},  # a pooler between us and the server may not keep them
            )
        except ImportError as error:
            raise InputError(
                "ledger-driver-missing",
                f"A ledger in PostgreSQL needs psycopg, which cannot be imported here ({error}). Install it: pip "
                "install 'dp-tuner[postgres]'.",
            ) from error


def _parse(url: str) -> URL:
    parsed = make_url(url)
    if parsed.password is not None or "password" in parsed.query:
        raise InputError(
            "ledger-url-password",
            f"The ledger's URL contains a password ({masked(url)}), and it is stored in the folder of every sweep and "
            "shown in MLflow. Remove it, and put the password into ~/.pgpass or PGPASSWORD.",
        )
    unknown = sorted(set(parsed.query) - set(_QUERY))
    if unknown:
        raise InputError(
            "ledger-url",
            f"The ledger's URL sets {', '.join(unknown)} ({masked(url)}), but may set only {', '.join(_QUERY)}. Remove "
            "it, or set it in the server or in libpq's environment.",
        )
    hosts = (parsed.host or "", parsed.query.get("host", ""), parsed.query.get("port", ""))
    if any(not isinstance(host, str) or "," in host for host in hosts):
        raise InputError(
            "ledger-url",
            f"The ledger's URL names several servers (got {url!r}). Name the one that is written to: two servers that "
            "disagree would be two budgets.",
        )
    if not parsed.database:
        raise InputError("ledger-url", f"The ledger's URL names no database (got {url!r}). Add /DATABASE.")
    return parsed


def _explain(error: DBAPIError, url: str) -> LedgerError:
    original: Any = error.orig
    said = re.sub(r"\s+", " ", str(original)).strip(" .?")
    state = getattr(original, "sqlstate", None)
    match state:
        case "42P01" | "3F000" | "42703" | "XX001" | "XX002" | "23505":
            return LedgerCorruptError(
                "ledger-damaged",
                f"The ledger {url} is damaged or was removed ({said}). Restore it from a backup; it is never started "
                "afresh.",
            )
        case None | "57P01" | "57P02" | "57P03" | "28000" | "28P01" | "3D000" | "25P03":
            code = "ledger-unavailable"
            fix = (
                "Check that the server runs, the address, that the database exists and that the role may connect "
                "(its password comes from ~/.pgpass or PGPASSWORD); then resume."
            )
        case "42501":
            code = "ledger-not-granted"
            fix = (
                f"Its owner has to GRANT USAGE ON SCHEMA {_NAMESPACE} and SELECT on its tables, and for charging "
                f"INSERT ON {_NAMESPACE}.entries and INSERT, UPDATE ON {_NAMESPACE}.heads. If there is no ledger "
                "yet, a role that may CREATE in the database opens it first."
            )
        case _ if state == _NOT_THEIRS:
            code = "ledger-not-owner"
            fix = "Let the owner of the tables set caps and shares, and open a search under your own role."
        case "53100":
            code, fix = "ledger-disk-full", "Free space on the server's disk, then resume."
        case "53300":
            code, fix = "ledger-busy", "The server has no connection left; raise max_connections, or try again."
        case "55P03":
            code, fix = "ledger-busy", "Another process holds the ledger; end it, or try again."
        case "25006":
            code, fix = "ledger-read-only", "The server is a standby or read-only; name the one that is written to."
        case _:
            code, fix = "ledger-unavailable", f"Check the server's log (SQLSTATE {state})."
    return LedgerError(code, f"The ledger {url} cannot be used: {said}. Nothing more is charged. {fix}")
