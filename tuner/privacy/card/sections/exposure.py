"""Card sections: the holder of the records, what may be shown, what is kept secret, and all uses of the records."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject

__all__ = ["DATA_ACCESSES", "KEPT", "PUBLIC_SEARCH", "RELEASED", "SETTING"]

SETTING = CardSection(
    name="setting",
    title="Who holds the records",
    value=lambda _: (
        "central: a trusted operator holds the records; analysts and readers of the exported files see only results"
    ),
)
RELEASED = CardSection(name="released", title="What is shown", value=lambda subject: subject.mode.released)
KEPT = CardSection(
    name="kept_from_analysts", title="What is kept from analysts", value=lambda subject: subject.mode.kept
)


def _data_accesses(subject: Subject) -> dict[str, Any]:
    found = subject.search
    earlier: list[str] = []
    later: list[str] = []
    for state in (subject.state, *subject.others):
        own = next(each for each in state.searches if found.search in {each.search, each.mirror_of})
        for other in state.searches:
            if other.counts and other is not own:
                # On a further block of its own, a search is entered under another name.
                (earlier if other.opened_seq < own.opened_seq else later).append(other.mirror_of or other.search)
    return {
        "this_search": subject.mode.access,
        "scores": "validation records: each released score was charged before its noise was drawn"
        if found.validation is not None
        else "validation records: the number of scores on them is not limited; the guarantee does not cover these "
        "scores",
        "earlier_searches": list(dict.fromkeys(earlier)),
        "later_searches": list(dict.fromkeys(later)),
        "label": "every other search on these records has its own claim, and the budget of the data set adds up all "
        "claims; the ledger cannot know about uses of the records outside it",
    }


DATA_ACCESSES = CardSection(
    name="data_accesses",
    title="Every access to the records",
    value=_data_accesses,
    fields={
        "this_search": Field("this search"),
        "scores": Field("scores"),
        "earlier_searches": Field("earlier searches"),
        "later_searches": Field("later searches"),
        "label": Field("note"),
    },
)


def _public_search(subject: Subject) -> dict[str, Any] | None:
    details = subject.search.details
    declared = details.get("public_search") or details.get("proxy_search")
    if not declared:
        return None
    label = (
        "ASSUMED, not proved: the author of the experiment file declares these records public, so a search on them "
        "costs nothing"
    )
    if "proxy_search" in details:
        label += (
            ". The scores of this search guided the search on the private records, and did not change what that search "
            "is charged"
        )
    return {**dict(declared), "epsilon": 0.0, "label": label}


PUBLIC_SEARCH = CardSection(
    name="public_search",
    title="The search on public records",
    value=_public_search,
    fields={
        "label": Field("assumption"),
        "dataset": Field("data set, declared public"),
        "path": Field("file"),
        "sweep": Field("search"),
        "trials": Field("trials"),
        "sampler": Field("sampler"),
        "pruner": Field("pruner"),
        "declared_by": Field("declared public by"),
        "epsilon": Field("ε of this search"),
    },
)
