"""Ledgers in temporary folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.privacy.events import SampledGaussian
from tuner.privacy.ledger import Ledger

MECHANISM = SampledGaussian(0.05, 2.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs/ledger.db"


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger.open(url)


@pytest.fixture
def search(ledger: Ledger) -> str:
    ledger.open_search("digits", "first", mechanism=MECHANISM, epsilon=4.0, delta=1e-5, step_cap=1000)
    return "first"
