"""Cards of schema 1 still verify: one of an earlier version, with its page and its ledger, kept as they were."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tuner.errors import VerificationError
from tuner.privacy.card import card_hash, parse_card
from tuner.privacy.card_sections import ledger_sections, winner_of
from tuner.privacy.ledger import Ledger
from tuner.privacy.markdown import render_markdown
from tuner.privacy.verify import verify

KEPT = Path(__file__).parent / "schema1"
CARD, PAGE = (KEPT / "privacy_card.json").read_text(), (KEPT / "privacy_card.md").read_text()


@pytest.fixture
def kept(tmp_path: Path) -> Ledger:
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as raw:
        raw.executescript((KEPT / "ledger.sql").read_text())
    return Ledger.open(f"sqlite:///{path}", create=False)


def test_it_verifies_with_its_page(kept: Ledger) -> None:
    report = verify(CARD, kept, markdown=PAGE)
    assert report.ok, str(report)
    names = {check.name for check in report.checks}
    assert {"numbers from the ledger", "independent accountant, cap of training", "card page"} <= names


def test_its_page_is_rendered_letter_for_letter() -> None:
    card = parse_card(CARD)
    assert card["schema"] == 1
    assert render_markdown(card) == PAGE


def test_it_still_verifies_after_the_ledger_went_on(kept: Ledger) -> None:
    from tuner.privacy.allowances import TotalSteps
    from tuner.privacy.events import SampledGaussian

    kept = Ledger.open(kept.url)
    kept.open_search("digits", "next", allowance=TotalSteps(SampledGaussian(0.02, 3.0), 10), epsilon=1.0, delta=1e-6)
    assert verify(CARD, kept, markdown=PAGE).ok


def test_a_changed_digit_of_it_is_a_no(kept: Ledger) -> None:
    places = [place for place, sign in enumerate(CARD) if sign.isdigit()]
    for place in places[:: len(places) // 12]:
        changed = f"{CARD[:place]}{(int(CARD[place]) + 1) % 10}{CARD[place + 1 :]}"
        assert verify(changed, kept).answer == "no", CARD[place - 20 : place + 5]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("claim", "epsilon_at_step_cap", 3.6),
        ("claim", "step_cap", 900),
        ("winner", "single_run_epsilon", 0.5),
        ("spent", "epsilon_spent", 0.1),
        ("dataset_budget", "committed_epsilon", 4.0),
    ],
)
def test_a_number_that_does_not_follow_is_named(kept: Ledger, section: str, key: str, value: float) -> None:
    card = parse_card(CARD)
    card[section][key] = value
    kept.record_card("first", card_hash(card), "forged")
    report = verify(card, kept)
    assert report.answer == "no"
    assert f"{section}.{key} is {value:g} and should be" in str(report)


def test_a_later_schema_is_refused(kept: Ledger) -> None:
    card = parse_card(CARD)
    with pytest.raises(VerificationError, match="schema 1 or 2"):
        ledger_sections(kept.dataset_state("digits"), "first", winner_of(card), schema=3)
    assert verify({**card, "schema": 3}, kept).answer == "no"
