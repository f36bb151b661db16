"""Ledgers in temporary folders, and a card of every kind of search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from card_fakes import KINDS, IssuedCards, charged, set_caps
from ledgers import MECHANISM

from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.card.card import issue_card
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


@pytest.fixture(scope="session")
def issued_cards(tmp_path_factory: pytest.TempPathFactory) -> IssuedCards:
    """A card of every kind with its ledger, for tests that change neither."""
    found = {}
    for kind in KINDS:
        ledger = Ledger.open(f"sqlite:///{tmp_path_factory.mktemp('cards')}/{kind}.db")
        set_caps(ledger, kind)
        facts = replace(charged(ledger, kind), files={"model.safetensors": "a" * 64})
        found[kind] = (ledger, issue_card(ledger, facts))
    return found
