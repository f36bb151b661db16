"""Card sections: training and validation records, the randomness that protects them, and the exported scores."""

from __future__ import annotations

from typing import Any

from trainables.score_error import ScoreError
from tuner.privacy.card.sections.section import CardSection, Field, Subject
from tuner.privacy.ledger.division import basis

__all__ = ["GENERATOR", "RANDOMNESS", "RECORDS", "SCORES", "VALIDATION"]

GENERATOR = (
    "ChaCha20 with fast key erasure, with a key from the operating system; Gaussian noise by Box-Muller in double "
    "precision"
)
"""Description of the random generator that private runs use for noise, batches and augmented views."""


def _records(subject: Subject) -> dict[str, Any]:
    facts = subject.facts
    return {
        "public_size": facts.public_size,
        "public_size_is_public": facts.public_size_is_public,
        "records_per_user": facts.records_per_user,
        "division": basis(subject.state) if subject.search.unit == "user" else None,
        "preprocessing": facts.preprocessing,
    }


RECORDS = CardSection(
    name="records",
    title="Training records",
    value=_records,
    fields={
        "public_size": Field("number of units (records or users) that training and accounting use"),
        "public_size_is_public": Field(
            "whether this number is a published one (no: the operator vouches that it is public)"
        ),
        "records_per_user": Field("largest number of records of one user in a step (contribution bound)"),
        "division": Field("what the total for one user, over all searches, depends on"),
        "preprocessing": Field("preprocessing"),
    },
)


def _randomness(subject: Subject) -> dict[str, Any]:
    hours = "; anyone who knows how long a sealed search took can guess its number of runs"
    return {
        "generator": GENERATOR,
        "seeded": False,
        "floating_point_attack": "not covered: this version does not prevent such attacks (Mironov 2012)",
        "timing_side_channel": "not covered: step times vary; analysts do not see them, but the operator does"
        + (hours if subject.search.hides_runs else ""),
    }


RANDOMNESS = CardSection(
    name="randomness",
    title="Randomness",
    value=_randomness,
    fields={
        "generator": Field("generator of noise and batches"),
        "seeded": Field("whether the seed of this generator is known"),
        "floating_point_attack": Field("attacks on floating-point noise"),
        "timing_side_channel": Field("attacks on timing"),
    },
)


def _validation(subject: Subject) -> dict[str, Any]:
    protected, split = subject.search.validation is not None, subject.search.details.get("split")
    return {
        "source": f"a fraction of {split['fraction']:g} of the training file of {split['set']}"
        if split
        else "not recorded",
        "split": subject.unit.split[subject.facts.public_size_is_public],
        "key": dict(split) if split else None,
        "protected": protected,
        "guarantee": f"covered: a score is {subject.unit.score}, plus noise; it is charged before its noise is drawn"
        if protected
        else "not covered: the guarantee covers training records only",
    }


VALIDATION = CardSection(
    name="validation",
    title="Validation records",
    value=_validation,
    fields={
        "source": Field("source"),
        "split": Field("rule of the split"),
        "key": Field("settings of the split"),
        "protected": Field("protected by noise"),
        "guarantee": Field("guarantee"),
    },
)


def _scores(subject: Subject) -> dict[str, Any]:
    return {
        **subject.facts.scores,
        **_standard_error(subject),
        "guarantee": "the guarantee covers the validation score, which has noise. The guarantee does not cover the "
        "test score, which has no noise, so test records are not protected"
        if subject.search.validation is not None
        else "none: validation and test scores are computed without noise, so validation and test records are not "
        "protected",
        "label": "this search used the test set once; other searches may also have used the test set",
    }


def _standard_error(subject: Subject) -> dict[str, float]:
    """Return the standard error of the validation accuracy, from the split and the noise in the ledger.

    Formal guarantee: it is a function of the released score and public numbers, so it reveals nothing more.
    """
    score, split = subject.facts.scores.get("validation_accuracy"), subject.search.details.get("split")
    if score is None or not split:
        return {}
    pool = subject.search.validation
    noise = 0.0 if pool is None else max(mechanism.noise_multiplier for mechanism in pool.filter.mechanisms)
    error = ScoreError.of_split(subject.facts.public_size, split["fraction"], noise=noise)
    return {} if error is None else {"validation_accuracy_standard_error": error.of(score)}


SCORES = CardSection(
    name="scores",
    title="Scores of the exported model",
    value=_scores,
    fields={"guarantee": Field("guarantee"), "label": Field("note")},
)
