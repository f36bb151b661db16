"""Ledgers of every kind, each with a way to reach into its tables past the program."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path

from postgres_server import PostgresServer


class Backdoor(ABC):
    """The address of a ledger that is not made yet, and SQL past it."""

    url: str

    @abstractmethod
    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement; names of tables are bare."""

    @abstractmethod
    def unguard(self) -> None:
        """Take away what keeps the tables append-only."""


class SqliteBackdoor(Backdoor):
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


class PostgresBackdoor(Backdoor):
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.emptied()

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self.server.sql(statement, self.url)

    def unguard(self) -> None:
        for table in ("entries", "heads", "meta"):
            self.sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
