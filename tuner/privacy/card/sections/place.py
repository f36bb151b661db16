"""The card's place in the ledger, and its format."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject

__all__ = ["LEDGER", "SCHEMA", "SCHEMA_VERSION"]

SCHEMA_VERSION = 1


def _ledger(subject: Subject) -> dict[str, Any]:
    return {
        "head_seq": subject.state.seq,
        "head_hash": subject.state.head,
        "label": "a sealed search leaves the same entries however many runs it makes (opened and begun; reopened where "
        "it was closed before it began), and the random number in the first of them keeps the hash from telling when "
        "they were written"
        if subject.search.charged_whole
        else "every charge of the search stands before this entry",
    }


LEDGER = CardSection(
    name="ledger",
    title="Where it stands in the ledger",
    value=_ledger,
    fields={
        "head_seq": Field("number of the ledger's last entry for the data set when the card was made"),
        "head_hash": Field("hash of that entry"),
        "label": Field("what it tells"),
    },
)
SCHEMA = CardSection(name="schema", title="Format of the card", value=lambda _: SCHEMA_VERSION)
