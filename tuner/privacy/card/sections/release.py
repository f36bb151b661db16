"""Card section: the release on which a model was trained."""

from __future__ import annotations

from typing import Any

from tuner.privacy.accountant.filters import OneRelease, VotedLabels
from tuner.privacy.card.sections.section import CardSection, Field, Subject

__all__ = ["RELEASED_RECORDS"]


def _value(subject: Subject) -> dict[str, Any] | None:
    found = subject.search.filter
    if isinstance(found, VotedLabels):
        return {
            "sha256": subject.search.stored,
            "queries": found.noise.queries,
            "answers_at_most": found.noise.answers,
            "threshold": found.threshold,
            "threshold_noise": found.noise.threshold_noise,
            "answer_noise": found.noise.answer_noise,
            "given_the_votes": "not shown: an ε that is computed from the votes can be smaller, but it depends on the "
            "private records, so showing it would not be private. The claim holds whatever the votes are",
        }
    if not isinstance(found, OneRelease):
        return None
    each = found.randomiser
    return {
        "sha256": subject.search.stored,
        "rows": found.rows,
        "noise_on_features": each.noise,
        "label_kept": each.kept,
        "local": {"epsilon": each.epsilon(subject.search.delta), "delta": subject.search.delta},
        "order": "the rows are in a secret, uniformly random order; the claim "
        + (
            "does not rely on it"
            if found.clone_epsilon is None
            else "relies on it: each record is hidden among similar rows"
        ),
    }


RELEASED_RECORDS = CardSection(
    name="release",
    title="The release",
    value=_value,
    fields={
        "sha256": Field("SHA-256 of the stored release, as recorded in the ledger"),
        "rows": Field("number of rows (public; the number of records is not shown)"),
        "noise_on_features": Field("standard deviation of the noise on each feature"),
        "label_kept": Field("probability that a row has the true label of its record"),
        "local": Field(
            "(ε, δ) of one row: a limit on how well a reader of the row can tell any two values of its record apart"
        ),
        "order": Field("order of the rows"),
        "queries": Field("number of inputs that were tested (public)"),
        "answers_at_most": Field("largest number of labels (public)"),
        "threshold": Field("number of votes that the largest count plus noise must reach for a label"),
        "threshold_noise": Field("standard deviation of the noise on the largest count, in votes"),
        "answer_noise": Field("standard deviation of the noise on each count when a label is drawn, in votes"),
        "given_the_votes": Field("ε given the votes"),
    },
)
