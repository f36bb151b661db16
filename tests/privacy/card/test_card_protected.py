"""The card of a search with protected scores: one unit, everywhere the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from card_fakes import FACTS, KINDS, MECHANISM, charged, open_first
from ledgers import lease

from tuner.privacy.card.card import card_text, issue_card
from tuner.privacy.card.page import render_markdown
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify.checks import check_card

BOTH = "one record, whether it trains or validates"


@pytest.fixture
def card(ledger: Ledger) -> dict[str, Any]:
    return issue_card(ledger, charged(ledger, "validation"))


def test_the_unit_is_a_record_on_either_side_of_the_split(card: dict[str, Any]) -> None:
    assert card["claim"]["unit"] == BOTH
    assert card["training_cap"]["protects"] == "one training record"
    assert card["validation_cap"]["protects"] == "one validation record"
    page = render_markdown(card)
    meaning = page[page.index("## What this means") : page.index("## The numbers")]
    assert f"ε bounds how much {BOTH} can change" in meaning
    assert f"The unit is {BOTH}." in meaning
    assert "one training record" not in meaning
    assert "at most 1000 training steps and at most 40 protected scores, and not for one trial" in meaning
    assert "180 steps and 8 scores in 2 trials had been charged" in meaning
    assert "| the most that may be taken, for a record that trains: 1000 training steps |" in page
    assert "| 180 steps in 2 trials, for a record that trains: not a guarantee |" in page


def test_a_user_is_protected_on_either_side_too(ledger: Ledger) -> None:
    open_first(ledger, unit="user", **KINDS["validation"])
    ledger.reserve_together("first", "a", {"training": 120, "validation": 4}, mechanism=MECHANISM)
    lease(ledger, "first", "a", 120)
    card = issue_card(ledger, replace(FACTS, records_per_user=16))
    assert card["claim"]["unit"] == "one user with all of that user's records, whether they train or validate"
    assert check_card(card_text(card), ledger, page=render_markdown(card)).ok


def test_without_protected_scores_the_unit_is_what_trains(ledger: Ledger) -> None:
    assert issue_card(ledger, charged(ledger, "total_steps"))["claim"]["unit"] == "one training record"
