"""Ledgers of every kind, each with a way to reach into its tables past the program.

A backdoor has the URL of a ledger that is not made yet. `sql` runs one statement with bare names of tables. `unguard`
takes away what keeps the tables append-only, and `guard` puts it back.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeAlias

from postgres_server import PostgresServer


class SqliteBackdoor:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs" / "ledger.db"
        self.url = f"sqlite:///{self.path}"

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        raw = sqlite3.connect(self.path)
        try:
            found = raw.execute(statement).fetchall()
            raw.commit()
        finally:
            raw.close()
        return found

    def unguard(self) -> None:
        for (name,) in self.sql("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            self.sql(f"DROP TRIGGER {name}")

    def guard(self) -> None:
        """A file is not asked for its triggers."""


class PostgresBackdoor:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.emptied()

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self.server.sql(statement, self.url)

    def unguard(self) -> None:
        for table in ("divisions", "entries", "heads", "meta"):
            self.sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")

    def guard(self) -> None:
        for table in ("divisions", "entries", "heads", "meta"):
            self.sql(f"ALTER TABLE {table} ENABLE TRIGGER USER")


Backdoor: TypeAlias = SqliteBackdoor | PostgresBackdoor
