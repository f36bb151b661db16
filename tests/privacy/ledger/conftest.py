"""A ledger in each of the stores, with a door behind its back, and one that was used."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledgers import TRAINING_STEPS, lease
from store_backdoors import Backdoor, PostgresBackdoor, SqliteBackdoor

from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.stores import open_store
from tuner.privacy.ledger.stores.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Backdoor:
    if request.param == "sqlite":
        return SqliteBackdoor(tmp_path)
    return PostgresBackdoor(request.getfixturevalue("postgres"))


@pytest.fixture
def store(door: Backdoor) -> Store:
    return open_store(door.url, create=True)


@pytest.fixture
def used(door: Backdoor) -> Ledger:
    ledger = Ledger.open(door.url)
    ledger.open_search("digits", "first", filter=TRAINING_STEPS, epsilon=4.0, delta=1e-5)
    ledger.reserve("first", "a", 100)
    lease(ledger, "first", "a", 60)
    ledger.settle("first", "a", 60)
    return ledger
