"""Card sections: the budget of the data set, and the last ledger entry before the card was made."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject
from tuner.privacy.card.text import blocks_text, cap_text, other_searches_text, splits_text, voids_text
from tuner.privacy.ledger.blocks import table_of
from tuner.privacy.ledger.history import within_cap
from tuner.privacy.ledger.odometer import read_dataset
from tuner.privacy.ledger.state import DatasetState, SearchState

__all__ = ["DATASET_BUDGET", "LEDGER"]


def _budget(subject: Subject) -> dict[str, Any]:
    state, search = subject.state, subject.search
    share, by_user = state.grants.get(search.user), state.committed_by(search.user)
    spent, by_blocks = read_dataset(state), table_of(state.dataset) != state.dataset
    return {
        "dataset": state.dataset,
        "blocks": [_block(each) for each in (state, *subject.others)] if by_blocks else None,
        "rule": _rule(state),
        **_total(state),
        "naming": _naming(search),
        "user": search.user,
        "share": {"epsilon": share.epsilon, "delta": share.delta} if share else None,
        "committed_by_user": {"epsilon": by_user[0], "delta": by_user[1]},
        "label": f"committed is the sum of the searches' caps. {_sum_of(state)}. Spent is an ESTIMATE, not a guarantee",
        "epsilon_spent": spent.epsilon,
        "odometer_delta": spent.delta,
        "other_searches": [
            {
                "search": other.search,
                "epsilon": other.epsilon,
                "delta": other.delta,
                "counts": other.counts,
                "leased_steps": None if other.charged_whole else other.leased_steps,
                "opened": "earlier" if other.opened_seq < search.opened_seq else "later",
            }
            for other in state.searches
            if other.search != search.search
        ],
    }


def _block(state: DatasetState) -> dict[str, Any]:
    """Return the row of one block: what holds for all its searches, and its last ledger entry."""
    return {"dataset": state.dataset, **_total(state), "head_seq": state.seq, "head_hash": state.head}


def _total(state: DatasetState) -> dict[str, Any]:
    """Return what all searches on a data set or on a block claim together, and what the owner allowed and gave up."""
    cap = state.cap
    return {
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "order": cap.order} if cap else None,
        "searches": state.committed.searches,
        "committed_epsilon": state.committed_epsilon,
        "committed_delta": state.committed_delta,
        "within_cap": within_cap(state),
        "void": [{"day": void.day, "use": void.use, "why": void.why} for void in state.voids],
        "validation_splits": list(state.validation_splits),
    }


def _naming(search: SearchState) -> str:
    if "own" not in search.details:
        return "the ledger recognises the records as a data set that comes with dp-tuner, in any order and any file"
    near = ", ".join(search.details.get("near", ()))
    return (
        "ASSUMED: the total depends on the names that the owner gives to data sets. The ledger recognises the same "
        "records in any order and any number type. A file with a changed label or a missing record counts as other "
        "records: under another name, it gets a total of its own"
        + (
            f". When the search was opened, these data sets had the same shape and the same user of dp-tuner: {near}"
            if near
            else ""
        )
    )


def _sum_of(state: DatasetState) -> str:
    """Return what the sum of the searches' caps guarantees."""
    if state.voids:
        return "This sum is NO guarantee for all uses together, because records were used without protection"
    more = "Every new search adds to this sum. " if state.cap is None else ""
    more = "This sum is above the owner's cap. " if within_cap(state) is False else more
    return (
        f"{more}It is a guarantee for all these searches together, but only for records that no search used, "
        "in any version, for validation without protection, because no guarantee covers scores without noise"
    )


def _rule(state: DatasetState) -> str:
    if state.cap is None:
        return "there is no cap, so the (ε, δ) of all searches add up"
    if state.cap.order is None:
        return "a search starts only if the sum of the searches' (ε, δ), its own included, is within the cap"
    return (
        "a search starts only if the sum of the searches' (ε, δ), or their Rényi divergence of order "
        f"{state.cap.order:g}, is within the cap, its own included; each of these two rules may use half of the cap's δ"
    )


DATASET_BUDGET = CardSection(
    name="dataset_budget",
    title="The budget of the data set",
    value=_budget,
    fields={
        "dataset": Field("data set"),
        "blocks": Field("blocks of a growing table", blocks_text),
        "rule": Field("how the costs of the searches are added up"),
        "cap": Field("cap set by the owner", cap_text),
        "searches": Field("number of searches in the total"),
        "committed_epsilon": Field("ε committed (sum of the caps of these searches)"),
        "committed_delta": Field("δ committed"),
        "within_cap": Field("within the cap"),
        "void": Field(
            "whether the TOTAL is VOID, because the owner let records be used without protection", voids_text
        ),
        "naming": Field("what the total depends on"),
        "user": Field("user of dp-tuner who ran this search"),
        "share": Field("that user's share (a cap on the searches of one person)"),
        "committed_by_user": Field("sum of the caps of that user's searches"),
        "label": Field("what committed and spent mean"),
        "validation_splits": Field("validation splits used", splits_text),
        "epsilon_spent": Field("ε spent by all searches"),
        "odometer_delta": Field("at δ"),
        "other_searches": Field("other searches", other_searches_text),
    },
)


def _ledger(subject: Subject) -> dict[str, Any]:
    return {
        "head_seq": subject.state.seq,
        "head_hash": subject.state.head,
        "label": "the entries of a sealed search do not depend on its number of runs; the first entry contains a "
        "random number, so that the hash does not reveal when the entries were written"
        if subject.search.hides_runs
        else "this entry and the entries before it contain every charge of the search",
    }


LEDGER = CardSection(
    name="ledger",
    title="Place in the ledger",
    value=_ledger,
    fields={
        "head_seq": Field("number of the data set's last ledger entry when the card was made"),
        "head_hash": Field("hash of that entry"),
        "label": Field("what the number and the hash show"),
    },
)
