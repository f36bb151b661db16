"""The privacy card of one export: what is claimed, for what, on which assumptions, and what is not claimed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import InputError, VerificationError
from tuner.privacy.card.own_words import CardFacts, require_own_words
from tuner.privacy.card.sections import SECTIONS
from tuner.privacy.card.sections.section import Subject
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetState

__all__ = ["build_card", "card_hash", "card_text", "file_hash", "issue_card", "parse_card"]


def build_card(facts: CardFacts, *, state: DatasetState) -> dict[str, Any]:
    """Return the card as plain JSON values. `verify` builds it again from the ledger and compares.

    Args:
        facts: the operator's own words.
        state: the data set at one moment (`ledger.dataset_state(name)`).

    Raises:
        InputError: the run was not private, or a value is not plain, finite JSON.
        VerificationError: the search or the winner is not in the ledger, or the operator's words contradict it.
    """
    if not facts.private:
        raise InputError(
            "card-not-private",
            "A run with `privacy.private: false` gets no privacy card. Run it again with `private: true`.",
        )
    require_own_words(facts)
    found = state.by_name.get(facts.search)
    if found is None:
        raise VerificationError(
            "card-search-unknown", f"The ledger has no search {facts.search!r} on {state.dataset!r}. Name its ledger."
        )
    if (found.unit == "user") != (facts.records_per_user is not None):
        raise InputError(
            "card-contribution-bound",
            f"`records_per_user` is {facts.records_per_user!r}, but the search protects one {found.unit}. Give the "
            "bound for users, and none for records.",
        )
    subject = Subject(state=state, search=found, facts=facts)
    card = {section.name: section.value(subject) for section in SECTIONS}
    canonical(card)
    return card


def issue_card(ledger: Ledger, facts: CardFacts) -> dict[str, Any]:
    """Build the card on the current ledger and record its hash there, which `verify` asks for.

    Returns:
        The card. Write it with `card_text`.
    """
    dataset = ledger.search_state(facts.search).dataset
    card = build_card(facts, state=ledger.dataset_state(dataset))
    ledger.record_card(facts.search, card_hash(card), "export")
    return card


def card_hash(card: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the card's canonical JSON."""
    return hashlib.sha256(canonical(dict(card)).encode("ascii")).hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def card_text(card: Mapping[str, Any]) -> str:
    """Return the text of a card file."""
    return json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def parse_card(text: str) -> dict[str, Any]:
    """Read a card file. It must be exactly what `card_text` writes, so that no digit changes unnoticed.

    Raises:
        VerificationError: it is not JSON, or not the text that was written.
    """
    code = "card-text-changed"
    try:
        card = json.loads(text)
        same = isinstance(card, dict) and card_text(card) == text
    except (ValueError, RecursionError) as error:
        raise VerificationError(
            code, f"The card is not the JSON that `tune export` wrote: {error}. Use the exported file."
        ) from error
    if not same:
        raise VerificationError(code, "The card was edited or reformatted. Use the exported file, byte for byte.")
    result: dict[str, Any] = card
    return result
