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
            "private records, so it is not private itself. The claim holds for all votes alike",
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
        "order": "the rows are in a secret, uniformly random order, which the claim "
        + ("does not use" if found.clone_epsilon is None else "uses: each record hides among the rows like it"),
    }


RELEASED_RECORDS = CardSection(
    name="release",
    title="The release",
    value=_value,
    fields={
        "sha256": Field("SHA-256 of the stored release, which the ledger recorded"),
        "rows": Field("rows, a public number; the number of records is not shown"),
        "noise_on_features": Field("standard deviation of the noise on each feature"),
        "label_kept": Field("probability that a label is the record's own"),
        "local": Field("protection by a row alone, against everyone who sees it, for any two values of the record"),
        "order": Field("order of the rows"),
        "queries": Field("inputs that were tested, a public number"),
        "answers_at_most": Field("limit of the labels, a public number"),
        "threshold": Field("votes that the largest count plus noise must reach for an answer"),
        "threshold_noise": Field("standard deviation of the noise on the largest count, in votes"),
        "answer_noise": Field("standard deviation of the noise on each count of an answer, in votes"),
        "given_the_votes": Field("ε given the votes"),
    },
)
