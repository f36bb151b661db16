"""Phrases of a privacy card for each unit of protection and for each kind of cap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.privacy.card.text import counted, plain

__all__ = ["OPERATOR_TRUST", "UNITS", "UnitWords", "allowed_text"]

OPERATOR_TRUST = "the operator, who can write the ledger and see the noise, is trusted"


def allowed_text(filter: Mapping[str, Any]) -> str:
    """Return a phrase that says what a cap allows. `filter` is the cap's privacy filter in JSON."""
    match filter["kind"]:
        case "total_steps":
            return f"at most {counted(filter['step_cap'], 'training step')}"
        case "coupon_book":
            quotas = [counted(coupon["steps"], "step") for coupon in filter["coupons"]]
            return f"at most {' and '.join(quotas)} (one quota for each kind of step)"
        case "fixed_order":
            return f"steps of any kind, up to a fixed total Rényi divergence of order {plain(filter['order'])}"
        case "sealed":
            return "the best of a hidden number of runs"
        case "one_release":
            return f"one release of {counted(filter['rows'], 'row')}"
        case "voted_labels":
            return f"one draw of at most {counted(filter['answers'], 'voted label')}"
        case kind:
            raise ValueError(f"a filter must be of a known kind (got {kind!r})")


@dataclass(frozen=True, kw_only=True)
class UnitWords:
    """Phrases of a card for one unit of protection.

    Attributes:
        training: phrase for one unit that has training records.
        validating: phrase for one unit that has validation records.
        either: phrase for one unit of a search that protects training and validation records.
        adjacency: value of `claim.adjacency`.
        adjacency_label: description of the adjacency, in words.
        protected: who is protected, for the sentence of the claim.
        protected_too: who else is protected if the scores are protected.
        score: definition of a protected score before noise is added.
        split: rule that chose the validation records, for data sets with (True) and without (False) a published index.
    """

    training: str
    validating: str
    either: str
    adjacency: str
    adjacency_label: str
    protected: str
    protected_too: str
    score: str
    split: Mapping[bool, str]


_BY_USER = (
    "a public keyed hash of each user decides between training and validation, so adding a user moves no other user"
)
UNITS: Mapping[str, UnitWords] = {
    "record": UnitWords(
        training="one training record",
        validating="one validation record",
        either="one record, whether it is used for training or for validation",
        adjacency="add_or_remove_one",
        adjacency_label="two data sets that differ in one record: one set has it, the other does not "
        "(add_or_remove_one)",
        protected="training records",
        protected_too="and validation records",
        score="the number of correct answers",
        split={
            True: "a public keyed hash of each record's published index decides between training and validation, so "
            "adding a record moves no other record",
            False: "a public keyed hash of each record's content decides between training and validation, so adding a "
            "record moves no other record",
        },
    ),
    "user": UnitWords(
        training="one user with all of that user's records",
        validating="one user with validation records",
        either="one user with all of that user's records, whether they are used for training or for validation",
        adjacency="add_or_remove_one_user",
        adjacency_label="two data sets that differ in all records of one user: one set has them, the other does not "
        "(add_or_remove_one_user)",
        protected="users with training records",
        protected_too="and users with validation records",
        score="a sum with one number for each user: the share of the user's records with a correct answer",
        split={True: _BY_USER, False: _BY_USER},
    ),
}
"""Phrases of the card by unit of protection."""
