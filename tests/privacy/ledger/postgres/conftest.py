"""Ledgers in a real PostgreSQL server."""

from __future__ import annotations

import pytest
from postgres_server import PostgresServer

from tuner.privacy.ledger.ledger import Ledger


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.emptied()


@pytest.fixture
def ledger(url: str) -> Ledger:
    """The owner's, with a cap."""
    made = Ledger.open(url)
    made.set_cap("digits", 8.0, 1e-4)
    return made


@pytest.fixture
def reader(postgres: PostgresServer, url: str, ledger: Ledger) -> str:
    """The URL of a role that may look, as docs/ledger.md grants it."""
    role = postgres.role()
    postgres.sql(f"GRANT USAGE ON SCHEMA dp_tuner TO {role}", url)
    postgres.sql(f"GRANT SELECT ON entries, heads, meta TO {role}", url)
    return postgres.url(postgres.name_of(url), role)


@pytest.fixture
def trainer(postgres: PostgresServer, url: str, reader: str) -> str:
    """The URL of a role that may charge too."""
    role = postgres.role_of(reader)
    postgres.sql(f"GRANT INSERT ON entries TO {role}", url)
    postgres.sql(f"GRANT INSERT, UPDATE ON heads TO {role}", url)
    postgres.sql(f"GRANT SELECT, INSERT ON divisions TO {role}", url)
    return reader
