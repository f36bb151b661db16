"""Ledgers in temporary folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledgers import MECHANISM

from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.ledger.ledger import Ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs/ledger.db"


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger.open(url)


@pytest.fixture
def search(ledger: Ledger) -> str:
    ledger.open_search("digits", "first", filter=TotalSteps(MECHANISM, 1000), epsilon=4.0, delta=1e-5)
    return "first"
