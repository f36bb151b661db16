"""Validation records, and the scores of the exported model."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject

__all__ = ["SCORES", "VALIDATION"]


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
