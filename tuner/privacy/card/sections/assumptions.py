"""Card sections: the assumptions of the claim with their status, and what is not proved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.privacy.card.sections.records import GENERATOR
from tuner.privacy.card.sections.section import CardSection, Subject
from tuner.privacy.card.text import plain
from tuner.privacy.card.wording import OPERATOR_TRUST

__all__ = ["ASSUMPTIONS", "NOT_PROVED"]

_ENGINE = "holds: enforced by the engine, tested"
_LEDGER = "holds: enforced by the ledger, tested"
_BOTH = "holds: enforced by the engine and the ledger, tested"
_ASSUMED, _NOT_COVERED = "assumed", "not covered"

Assumption = tuple[str, str, str]
"""An assumption in words, its status, and the reason for the status."""


def _value(subject: Subject) -> list[dict[str, str]]:
    rows = [*_of_steps(subject), *_of_charging(subject), *_of_records(subject)]
    return [{"assumption": what, "status": status, "why": why} for what, status, why in rows]


def _of_steps(subject: Subject) -> list[Assumption]:
    facts, unit = subject.facts, subject.search.unit
    public = "holds: set by the experiment file, no count of records enters"
    clipped = (
        "clipped per record, all its augmented views as one; what mixes records is refused"
        if unit == "record"
        else f"clipped per user: at most {facts.records_per_user} records of a user, chosen by a hash of that user "
        "alone, as one vector; what mixes users is refused"
    )
    return [
        ("batches are Poisson samples at sample_rate", _ENGINE, f"{unit}s drawn by index, empty batches included"),
        (f"one {unit} moves the clipped sum by at most C", _ENGINE, clipped),
        ("the normaliser is public", public if facts.public_size_is_public else _ASSUMED, "expected batch size"),
        ("noise is Gaussian and fresh", _ASSUMED, f"{GENERATOR}; doubles are not the real line"),
        (subject.search.filter.assumption[0], _LEDGER, subject.search.filter.assumption[1]),
    ]


def _of_charging(subject: Subject) -> list[Assumption]:
    found = subject.search
    if found.charged_whole:
        rows = [
            (
                "the number of runs follows its law and is independent of all else",
                _ENGINE,
                "drawn from the operating system's generator, never shown",
            ),
            (
                "configurations are drawn from a prior that is fixed",
                _ENGINE,
                "random search from the operating system's generator, bounded where it learns",
            ),
            ("nothing but the winner leaves", _ASSUMED, OPERATOR_TRUST),
        ]
    else:
        rows = [
            ("every step was charged before it was taken", _BOTH, "a durable lease"),
            ("no more than the cap", _LEDGER, "what is leased and reserved is admitted in one transaction"),
        ]
    if found.validation is not None:
        rows += [
            ("the split moves no other record", _ENGINE, "a keyed hash of each record or its published index"),
            ("every score was charged before it was drawn", _BOTH, "a durable lease; the noise is never drawn twice"),
        ]
    return rows


def _of_records(subject: Subject) -> list[Assumption]:
    found, rows = subject.search, []
    if subject.mode.searches_public:
        declared = "declared in the experiment file; no private record is in it"
        rows.append(("what was searched on is public", _ASSUMED, declared))
    if found.unit == "user":
        rows.append(("the user of each record is known and right", _ASSUMED, "taken from the data as they are"))
    scored = "test records" if found.validation is not None else "validation and test records"
    return [
        *rows,
        ("preprocessing touches no private record", _ASSUMED, subject.facts.preprocessing),
        ("the operator keeps checkpoints, logs, records and noise from others", _ASSUMED, OPERATOR_TRUST),
        ("earlier uses of these records outside this ledger", _NOT_COVERED, "the ledger cannot know them"),
        (scored, _NOT_COVERED, "scores on them are outside the guarantee"),
    ]


def _row(row: Mapping[str, Any]) -> str:
    return f"**{plain(row['assumption'])}**: {plain(row['status'])} ({plain(row['why'])})"


ASSUMPTIONS = CardSection(name="assumptions", title="Assumptions, and what each rests on", value=_value, row=_row)
NOT_PROVED = CardSection(
    name="not_proved",
    title="Not proved",
    value=lambda _: [
        "that the code does what this card says: tested against references, not formally verified",
        "the rounding of double precision in the accountant: taken out of delta with a margin from measurement",
        f"that the ledger is complete: {OPERATOR_TRUST}; a hash chain shows changes, not omissions by its keeper",
    ],
)
