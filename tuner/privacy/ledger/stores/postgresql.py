"""Ledger in a PostgreSQL database: append-only tables in the schema `dp_tuner`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from tuner.errors import InputError, LedgerCorruptError, LedgerError
from tuner.passwords import hide_password
from tuner.privacy.ledger.entries import Entry
from tuner.privacy.ledger.stores.postgresql_rules import (
    LOCK,
    NAMESPACE,
    NOT_CHAINED,
    NOT_OWNER,
    NOT_USER,
    TRIGGER_NAMES,
    TRIGGERS,
)
from tuner.privacy.ledger.stores.store import BUSY_SECONDS, TABLES, Backend, create_tables

__all__ = ["Postgres"]

_QUERY = ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout")
_CONNECT = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": str(BUSY_SECONDS * 1000),
    "application_name": "dp-tuner ledger",
    "client_encoding": "UTF8",
}
# Every transaction sets these values. With other values, which a role, a database or a connection pooler may set, a
# charge might be lost or go to other tables. The idle timeout is shorter than the lock timeout, so the server ends a
# hanging writer before the waiting writers give up.
_SETTINGS = (
    f"SET LOCAL synchronous_commit = on; SET LOCAL search_path = pg_catalog, {NAMESPACE}, pg_temp; "
    f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'; SET LOCAL statement_timeout = 0; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{BUSY_SECONDS // 2}s'"
)
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_SETTINGS}"
# READ COMMITTED, because a snapshot from before the lock would miss the charges of the previous writer.
_WRITE = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_SETTINGS}; SELECT pg_catalog.pg_advisory_xact_lock({LOCK})"
)
_FOUND = text(
    "SELECT c.relname, CAST(c.relpersistence AS text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{NAMESPACE}' AND c.relname IN ('divisions', 'entries', 'heads', 'meta')"
)
_TRIGGERS = text(
    "SELECT t.tgname, t.tgenabled IN ('O', 'A') FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{NAMESPACE}' AND NOT t.tgisinternal"
)
_OWNS = text(
    "SELECT pg_has_role(session_user, c.relowner, 'MEMBER') FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{NAMESPACE}' AND c.relname = 'entries'"
)


class Postgres(Backend):
    """Ledger in the tables of a PostgreSQL database, in the schema `dp_tuner`.

    A role with SELECT can read. A role that charges also needs INSERT on `entries` and INSERT, UPDATE on `heads`, and
    to protect users SELECT, INSERT on `divisions`. A trigger lets only owners of the tables set caps and shares, and a
    role write only about its own searches. A confirmed charge is on the server's disk, because `synchronous_commit` is
    set. A server with `fsync` off is refused.

    Args:
        url: `postgresql://user@host/database`, without a password.

    Raises:
        InputError: the URL is malformed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._parsed = _parse(url)

    def exists(self) -> bool:
        """Return whether the ledger's tables exist."""
        with self.transaction(writing=False) as connection:
            return self._has_tables(connection)

    def create(self) -> None:
        """Create the tables in one transaction. If they exist already, keep them."""
        with self.transaction(writing=True) as connection:
            if self._has_tables(connection):
                return
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
            if encoding != "UTF8":
                raise LedgerError(
                    "ledger-encoding",
                    f"The database of a ledger must have the encoding UTF8 (got {encoding} in {self.url}). Create one: "
                    "createdb --encoding UTF8 --template template0 NAME.",
                )
            there = text("SELECT count(*) FROM pg_namespace WHERE nspname = :name")
            if not connection.execute(there, {"name": NAMESPACE}).scalar_one():
                connection.exec_driver_sql(f"CREATE SCHEMA {NAMESPACE}")
            create_tables(connection, self.key_path)
            connection.exec_driver_sql(TRIGGERS)

    def key_path(self, ledger_id: str) -> Path:
        """Return the default file of the ledger's key, in the configuration of this account."""
        home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        return Path(home).expanduser().absolute() / "dp-tuner" / "keys" / f"{ledger_id}.key"

    def user(self) -> str:
        """Return the database role that the server authenticated (`session_user`)."""
        return self._session_user

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Connection]:
        """Begin a transaction, and commit it if the block ends without an error; see `Backend`."""
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(_WRITE if writing else _READ)
                yield connection
                driver: Any = connection.connection.driver_connection
                if driver.info.transaction_status.name != "INTRANS":  # COMMIT would roll back without an error
                    raise LedgerError(
                        "ledger-unavailable",
                        f"A transaction on {self.url} failed. Nothing is charged. Resume the search.",
                    )
                connection.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            raise _explain(error, self.url) from error

    def check_integrity(self, connection: Connection) -> None:
        """Raise a ledger error if a trigger or a table is missing, or if a table is unlogged."""
        self._has_tables(connection)
        enabled = {str(name) for name, is_enabled in connection.execute(_TRIGGERS) if is_enabled}
        missing = sorted(TRIGGER_NAMES - enabled)
        if missing:
            raise LedgerCorruptError(
                "ledger-trigger-missing",
                f"Triggers of schema {NAMESPACE} in {self.url} were dropped or disabled: {', '.join(missing)}. "
                "Restore the triggers, and compare the entries, caps, shares and users with a backup.",
            )

    def check_durable(self, connection: Connection) -> None:
        """Raise `LedgerError` if the server runs with fsync = off."""
        if connection.exec_driver_sql("SHOW fsync").scalar_one() != "on":
            raise LedgerError(
                "ledger-not-durable",
                f"The server of {self.url} runs with fsync = off, so a charge might not survive a crash. Nothing is "
                "charged. Set fsync = on in postgresql.conf and reload the file.",
            )

    def check_author(self, connection: Connection, entry: Entry) -> None:
        """Raise `LedgerError` for an entry that the server's trigger would refuse for this role."""
        if entry.kind in {"cap", "grant", "public", "void"} and not connection.execute(_OWNS).scalar_one():
            raise LedgerError(
                "ledger-not-owner",
                f"The role {self.user()} has no right to set caps and shares in {self.url}, because it does not own "
                "the tables. Nothing is written. Ask the owner of the data to set them.",
            )

    def _has_tables(self, connection: Connection) -> bool:
        """Return whether the ledger's tables exist; raise a ledger error if some are missing or unlogged."""
        found = {str(name): str(persistence) for name, persistence in connection.execute(_FOUND)}
        if found and len(found) < len(TABLES.tables):
            raise LedgerCorruptError(
                "ledger-damaged",
                f"Schema {NAMESPACE} of {self.url} must have the tables divisions, entries, heads and meta, but "
                f"has only {', '.join(sorted(found))}. Restore the ledger from a backup.",
            )
        if set(found.values()) - {"p"}:
            raise LedgerError(
                "ledger-not-durable",
                f"Tables of {self.url} are UNLOGGED, so a charge might not survive a crash. Nothing is charged. Run "
                f"ALTER TABLE {NAMESPACE}.entries SET LOGGED, and also for the tables divisions, heads and meta.",
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
                isolation_level="AUTOCOMMIT",  # the driver begins no transactions
                # Qualified names, so that a role without access to the schema gets the right error.
                execution_options={"schema_translate_map": {None: NAMESPACE}},
                use_native_hstore=False,
                connect_args={"prepare_threshold": None},  # a connection pooler may not keep prepared statements
            )
        except ImportError as error:
            raise InputError(
                "ledger-driver-missing",
                f"A ledger in PostgreSQL needs psycopg, which cannot be imported ({error}). Install psycopg: pip "
                "install 'dp-tuner[postgres]'.",
            ) from error


def _parse(url: str) -> URL:
    parsed = make_url(url)
    if parsed.password is not None or "password" in parsed.query:
        raise InputError(
            "ledger-url-password",
            f"The ledger's URL must not contain a password (got {hide_password(url)}), because sweep folders and "
            "MLflow show the URL. Remove the password from the URL, and put it into ~/.pgpass or PGPASSWORD.",
        )
    unknown = sorted(set(parsed.query) - set(_QUERY))
    if unknown:
        raise InputError(
            "ledger-url",
            f"The ledger's URL may set only the options {', '.join(_QUERY)} (got {', '.join(unknown)} in "
            f"{hide_password(url)}). Remove {', '.join(unknown)}. Use the server's settings or libpq's environment "
            "variables instead.",
        )
    hosts = (parsed.host or "", parsed.query.get("host", ""), parsed.query.get("port", ""))
    if any(not isinstance(host, str) or "," in host for host in hosts):
        raise InputError(
            "ledger-url",
            f"The ledger's URL must name exactly one server (got {url!r}). Name the server that accepts writes.",
        )
    if not parsed.database:
        raise InputError("ledger-url", f"The ledger's URL must name a database (got {url!r}). Add /DATABASE.")
    return parsed


def _explain(error: DBAPIError, url: str) -> LedgerError:
    original: Any = error.orig
    said = re.sub(r"\s+", " ", str(original)).strip(" .?")
    state = getattr(original, "sqlstate", None)
    match state:
        case "42P01" | "3F000" | "42703" | "XX001" | "XX002" | "23505":
            return LedgerCorruptError(
                "ledger-damaged",
                f"The ledger {url} is damaged or was removed ({said}). Restore the ledger from a backup.",
            )
        case None | "57P01" | "57P02" | "57P03" | "28000" | "28P01" | "3D000" | "25P03":
            code = "ledger-unavailable"
            fix = (
                "Check that the server runs at this address, that the database exists and that the role may connect "
                "(its password comes from ~/.pgpass or PGPASSWORD). Then resume."
            )
        case "42501":
            code = "ledger-not-granted"
            fix = (
                f"Ask the owner to GRANT USAGE ON SCHEMA {NAMESPACE} and SELECT on its tables. To charge, a role also "
                f"needs INSERT ON {NAMESPACE}.entries and INSERT, UPDATE ON {NAMESPACE}.heads. If there is no ledger "
                "yet, a role that may CREATE in the database must open the ledger first."
            )
        case _ if state == NOT_OWNER:
            code, fix = "ledger-not-owner", "Ask the owner of the tables to set caps and shares."
        case _ if state == NOT_USER:
            code, fix = "ledger-other-user", "Connect with the database role of the user who started the search."
        case _ if state == NOT_CHAINED:
            code, fix = "ledger-entry-refused", "Let only dp-tuner write to the ledger."
        case "53100":
            code, fix = "ledger-disk-full", "Free some space on the server's disk, then resume."
        case "53300":
            code, fix = "ledger-busy", "The server has no free connection. Raise max_connections, or try again."
        case "55P03":
            code, fix = "ledger-busy", "Another process is using the ledger. Try again later, or end that process."
        case "25006":
            code, fix = (
                "ledger-read-only",
                "The server is a standby or read-only. Use the URL of the server that accepts writes.",
            )
        case _:
            code, fix = "ledger-unavailable", f"Check the server's log (SQLSTATE {state})."
    return LedgerError(code, f"The ledger {url} cannot be used ({said}). Nothing more is charged. {fix}")
