"""The training records, and the randomness that protects them."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject

__all__ = ["GENERATOR", "RANDOMNESS", "RECORDS"]

GENERATOR = "AES-256-CTR with fast key erasure, keyed by the operating system, Box-Muller in double precision"
"""What draws noise, batches and augmented views: the engine has no other generator for private runs."""


def _records(subject: Subject) -> dict[str, Any]:
    facts = subject.facts
    return {
        "public_size": facts.public_size,
        "public_size_is_public": facts.public_size_is_public,
        "records_per_user": facts.records_per_user,
        "preprocessing": facts.preprocessing,
    }


RECORDS = CardSection(
    name="records",
    title="Training records",
    value=_records,
    fields={
        "public_size": Field("number of units that the accounting uses"),
        "public_size_is_public": Field("that number is public"),
        "records_per_user": Field("records of one user that a step may use (contribution bound)"),
        "preprocessing": Field("preprocessing"),
    },
)


def _randomness(subject: Subject) -> dict[str, Any]:
    hours = "; who knows when a sealed search began can guess the number of its runs from the hours"
    return {
        "generator": GENERATOR,
        "seeded": False,
        "floating_point_attack": "not covered: not mitigated in this version (Mironov 2012)",
        "timing_side_channel": "not covered: step times are kept from analysts, not made constant"
        + (hours if subject.search.charged_whole else ""),
    }


RANDOMNESS = CardSection(
    name="randomness",
    title="Randomness",
    value=_randomness,
    fields={
        "generator": Field("generator of noise and batches"),
        "seeded": Field("started from a known seed"),
        "floating_point_attack": Field("attack on the rounding of the noise"),
        "timing_side_channel": Field("attack on step times"),
    },
)
