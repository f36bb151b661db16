"""Card sections: training and validation records, the randomness that protects them, and the scores."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject

__all__ = ["GENERATOR", "RANDOMNESS", "RECORDS", "SCORES", "VALIDATION"]

GENERATOR = "AES-256-CTR with fast key erasure, keyed by the operating system, Box-Muller in double precision"
"""Random generator of noise, batches and augmented views in private runs, in words."""


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


def _validation(subject: Subject) -> dict[str, Any]:
    protected, split = subject.search.validation is not None, subject.search.details.get("split")
    return {
        "source": f"{split['fraction']:g} of the training file of {split['set']}" if split else "not recorded",
        "split": subject.unit.split[subject.facts.public_size_is_public],
        "key": dict(split) if split else None,
        "protected": protected,
        "guarantee": f"covered: a score is {subject.unit.score}, plus noise, and charged before it was drawn"
        if protected
        else "not covered: the guarantee is for training records; validation records are outside it",
    }


VALIDATION = CardSection(
    name="validation",
    title="Validation records",
    value=_validation,
    fields={
        "source": Field("where they come from"),
        "split": Field("how they were set apart"),
        "key": Field("the split"),
        "protected": Field("protected by noise"),
        "guarantee": Field("guarantee"),
    },
)


def _scores(subject: Subject) -> dict[str, Any]:
    return {
        **subject.facts.scores,
        "guarantee": "the validation score is noised and inside the guarantee; the test score is computed without "
        "noise on held-out records, and protects none of them"
        if subject.search.validation is not None
        else "none: scores of validation and test are outside the guarantee. They are computed on held-out records "
        "without noise, and protect none of those records",
        "label": "a test score is of this sweep's one use of the test set; other sweeps score it too",
    }


SCORES = CardSection(
    name="scores",
    title="Scores of the exported model",
    value=_scores,
    fields={"guarantee": Field("guarantee"), "label": Field("note")},
)
