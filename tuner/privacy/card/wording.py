"""What a privacy card says of each mode and each unit of protection, and how it states a cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.privacy.card.text import counted, plain
from tuner.privacy.ledger.state import SearchState

__all__ = ["ALLOWED", "MODES", "OPERATOR_TRUST", "UNITS", "ModeWords", "UnitWords", "mode_words"]

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
"""What may be done under a cap, from the body of its filter, by the filter's kind."""


@dataclass(frozen=True, kw_only=True)
class ModeWords:
    """What a card says of one mode of charging.

    Attributes:
        name: value of `claim.mode`.
        label: the same in words.
        covers: what the statement of the claim is for.
        access: how the search used the records.
        released: what may be shown.
        kept: what is kept from analysts.
        winner: what the exported run's own ε is.
        winner_row: the same in the table of the page.
        extent: for what the numbers hold; `{most}` is what the cap allows, `{so_far}` what was charged.
        tuned_elsewhere: whether the records saw one run, searched for on public records.
        hidden: whether the steps charged would tell the number of runs, and are not shown.
    """

    name: str
    label: str
    covers: str
    access: str
    released: str
    kept: str
    winner: str
    winner_row: str
    extent: str
    tuned_elsewhere: bool = False
    hidden: bool = False


_KEY = "A checkpoint holds the key of noise still to be drawn: a model in it may be shown, the file may not"
_KEPT = f"checkpoint files, raw logs, noise and records are for the operator only. {_KEY}"
_AMONG_OTHERS = "ε of this run as if it were the only one: NOT a guarantee for a tuned model"
_AMONG_OTHERS_ROW = "as if it were the only one: not a guarantee"

_COMPOSITION = ModeWords(
    name="composition",
    label="every step of every trial is charged (composition)",
    covers="everything that this search shows: the models of all trials, their settings, scores and curves, the choice "
    "among them and the exported model",
    access="every step of every trial, charged before its batch was drawn",
    released="the exported configuration, model and scores; and to analysts all trials with their settings, scores and "
    "curves",
    kept=_KEPT,
    winner=_AMONG_OTHERS,
    winner_row=_AMONG_OTHERS_ROW,
    extent="The numbers are the cap of the whole search, set before it began: for all trials together, {most}, and not "
    "for one trial. {so_far}",
)
_SELECTION = ModeWords(
    name="selection",
    label="the best of a hidden number of runs is charged as a whole (selection)",
    covers="all that leaves this search: the exported configuration, its model and its score, chosen among a hidden "
    "number of runs of which nothing else is shown",
    access="every step of every run, charged all together before the first",
    released="the exported configuration, its model and its score, and nothing else of the search",
    kept="every other run, its settings, scores and curves; how many runs there were; when they ran; checkpoint files, "
    f"raw logs, noise and records. They are for the operator only. {_KEY}",
    winner=_AMONG_OTHERS,
    winner_row=_AMONG_OTHERS_ROW,
    extent="The numbers hold for the one run that leaves, and for its having been chosen: how many runs to make was "
    "drawn at random and in secret, they were independent, and only the best is shown. How many there were is shown "
    "nowhere: with the winner it would tell more of the records than is charged here.",
    hidden=True,
)
_PUBLIC = ModeWords(
    name="public",
    label="the one run on these records is charged; it was searched on public ones (public)",
    covers="the one run that was trained on them: its settings, scores and curve and the exported model; what it was "
    "trained with was searched on other records, which are declared public",
    access="every step of the one run, charged before its batch was drawn",
    released="the exported configuration, model and scores; and to analysts its settings, scores and curve",
    kept=_KEPT,
    winner="the one run that was trained on the records of the data set",
    winner_row="the steps that were charged to it",
    extent="The numbers are the cap of the one run on these records. What it was trained with was searched on other "
    "records, which are declared public; that is taken on trust, and costs nothing if it is true. {so_far}",
    tuned_elsewhere=True,
)
MODES: Mapping[str, ModeWords] = {mode.name: mode for mode in (_COMPOSITION, _SELECTION, _PUBLIC)}
"""By name."""


def mode_words(search: SearchState) -> ModeWords:
    """Return the words of a search's mode."""
    if search.charged_whole:
        return _SELECTION
    return _PUBLIC if search.details.get("public_search") else _COMPOSITION


@dataclass(frozen=True, kw_only=True)
class UnitWords:
    """What a card says of one unit of protection.

    Attributes:
        training: a unit whose records train.
        validating: a unit whose records validate.
        either: a unit, where both sides are protected.
        adjacency: value of `claim.adjacency`.
        adjacency_label: the same in words.
        protected: who is protected, in the statement of the claim.
        protected_too: who else is where scores are protected.
        score: what a protected score is before its noise.
        split: how validation records were set apart, where their index is published and where it is not.
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
"""By the unit of a search."""
