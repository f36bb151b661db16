"""Words of a privacy card for each unit of protection and for each kind of cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.privacy.card.text import counted, plain

__all__ = ["ALLOWED", "OPERATOR_TRUST", "UNITS", "UnitWords"]

OPERATOR_TRUST = "whoever can write the ledger and sees the noise is trusted"


def _most_steps(body: Mapping[str, Any]) -> str:
    return f"at most {counted(body['step_cap'], 'training step')}"


def _most_coupons(body: Mapping[str, Any]) -> str:
    quotas = [counted(coupon["steps"], "step") for coupon in body["coupons"]]
    return f"at most {', '.join(quotas)} of {counted(len(quotas), 'kind')}"


def _most_divergence(body: Mapping[str, Any]) -> str:
    return f"steps of any kind, up to a Rényi divergence of order {plain(body['order'])}"


def _most_runs(_body: Mapping[str, Any]) -> str:
    return "the best of a hidden number of runs"


ALLOWED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "total_steps": _most_steps,
    "coupon_book": _most_coupons,
    "fixed_order": _most_divergence,
    "sealed": _most_runs,
}
"""Functions that say in words what a cap allows, by the kind of its filter. Each takes the filter's JSON."""


@dataclass(frozen=True, kw_only=True)
class UnitWords:
    """Words of a card for one unit of protection.

    Attributes:
        training: name of one unit whose records train.
        validating: name of one unit whose records validate.
        either: name of one unit, for a search that protects training and validation records.
        adjacency: value of `claim.adjacency`.
        adjacency_label: description of the adjacency, in words.
        protected: who is protected, for the sentence of the claim.
        protected_too: who else is protected if the scores are protected.
        score: definition of a protected score before noise is added.
        split: how validation records were set apart, if the records' index is published (True) or not (False).
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


_BY_USER = "by a public keyed hash of each user: adding a user moves no other"
UNITS: Mapping[str, UnitWords] = {
    "record": UnitWords(
        training="one training record",
        validating="one validation record",
        either="one record, whether it trains or validates",
        adjacency="add_or_remove_one",
        adjacency_label="those that differ by one record, added or removed (add_or_remove_one)",
        protected="training records",
        protected_too="and for those that validate",
        score="the number of right answers",
        split={
            True: "by a public keyed hash of each record's published index: adding a record moves no other",
            False: "by a public keyed hash of each record's content: adding a record moves no other",
        },
    ),
    "user": UnitWords(
        training="one user with all of that user's records",
        validating="one user whose records validate",
        either="one user with all of that user's records, whether they train or validate",
        adjacency="add_or_remove_one_user",
        adjacency_label="those that differ by one user with all records, added or removed (add_or_remove_one_user)",
        protected="users whose records train",
        protected_too="and for those whose records validate",
        score="the sum over users of the part of their records that is answered right",
        split={True: _BY_USER, False: _BY_USER},
    ),
}
"""Words of the card by unit of protection."""
