"""Privacy card of an exported model, as JSON: functions that build, write and read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
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


def build_card(facts: CardFacts, *, state: DatasetState, others: Sequence[DatasetState] = ()) -> dict[str, Any]:
    """Return the card as plain JSON values. `tune verify` builds the card again and compares the two.

    Args:
        facts: facts that the ledger does not contain.
        state: state of the search's data set, or of its first block.
        others: states of the other blocks of the search, in the search's order.

    Raises:
        InputError: the run was not private, or a value is not plain, finite JSON.
        VerificationError: the search or the winner is not in the ledger, or the facts contradict the ledger.
    """
    if not facts.private:
        raise InputError(
            "card-not-private",
            "A run with `privacy.private: false` gets no privacy card. Run it again with `private: true`.",
        )
    require_own_words(facts)
    found = state.by_name.get(facts.search)
    if found is None:
        message = f"The ledger has no search {facts.search!r} on {state.dataset!r}. Use the search's own ledger."
        raise VerificationError("card-search-unknown", message)
    if (found.unit == "user") != (facts.records_per_user is not None):
        raise InputError(
            "card-contribution-bound",
            f"`records_per_user` must be a number for a search that protects users, and None for other searches (got "
            f"{facts.records_per_user!r} for a search that protects one {found.unit}).",
        )
    given = (state.dataset, *(other.dataset for other in others))
    whole = all(any(each.mirror_of == found.search and each.begun for each in other.searches) for other in others)
    if given != found.datasets or not whole:
        raise VerificationError(
            "card-block-missing",
            f"A card of {facts.search!r} must state the total of each block of the search: {', '.join(found.datasets)} "
            f"(got {', '.join(given)}). Give the states of all these blocks after the search's first charge.",
        )
    subject = Subject(state=state, search=found, facts=facts, others=tuple(others))
    card = {section.name: section.value(subject) for section in SECTIONS}
    canonical(card)
    return card


def issue_card(ledger: Ledger, facts: CardFacts) -> dict[str, Any]:
    """Return the card of a search, and record the card's hash in the ledger for `tune verify`."""
    state, *others = ledger.states_of(ledger.search_state(facts.search).datasets)
    card = build_card(facts, state=state, others=others)
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
    """Return the text that is written into the JSON file of a card."""
    return json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def parse_card(text: str) -> dict[str, Any]:
    """Return the values of a card file. Its text must be exactly the text that `card_text` writes.

    Raises:
        VerificationError: the text is not JSON, or was edited or reformatted.
    """
    try:
        card: dict[str, Any] = json.loads(text)
        same = isinstance(card, dict) and card_text(card) == text
    except (ValueError, RecursionError) as error:
        message = f"The card is not the JSON that `tune export` wrote: {error}. Use the exported file."
        raise VerificationError("card-text-changed", message) from error
    if not same:
        message = "The card was edited or reformatted. Use the unchanged file that `tune export` wrote."
        raise VerificationError("card-text-changed", message)
    return card
