"""Readable history of a data set: its ledger entries in words, its searches and its shares.

Of a sealed search, only the claim and the day of opening are shown. The time at which the search ended would reveal
the secret number of its runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.errors import BudgetRefusedError
from tuner.privacy.ledger.admission import admit
from tuner.privacy.ledger.amounts import amounts
from tuner.privacy.ledger.entries import Entry
from tuner.privacy.ledger.state import DatasetCap, DatasetState, SearchState, Void, exact_sum

__all__ = [
    "Line",
    "Point",
    "SearchLine",
    "ShareLine",
    "lines",
    "points",
    "room",
    "rule",
    "search_lines",
    "share_lines",
    "void_text",
    "within_cap",
]

History = Sequence[tuple[Entry, DatasetState]]
"""All entries of a data set, each with the state of the data set after the entry."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One event of the history.

    Attributes:
        time: UTC day by the writer's clock, such as `2026-11-21`.
        what: `cap`, `share`, `public`, `void`, `opened`, `closed`, `reopened` or `card`.
        text: the event in words.
        search: name of the search; None if the event is not about a search.
        user: user of the search or of the share; None if the event is about neither.
        committed: sums of ε and δ of all searches that count against the cap, after the event.
    """

    time: str
    what: str
    text: str
    search: str | None
    user: str | None
    committed: tuple[float, float]


@dataclass(frozen=True)
class Point:
    """Point of a chart: the committed ε and the cap after one event.

    Attributes:
        moment: time of the event, or the previous point's moment if the event's time is earlier or unreadable.
        committed: sum of ε of all searches that count against the cap.
        cap: ε of the cap; None without a cap.
        name: name of the search that the event is about; empty for another event.
        what: kind of the event; see `Line`.
    """

    moment: datetime
    committed: float
    cap: float | None
    name: str = ""
    what: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchLine:
    """Table row that describes one search. Values that are hidden for a sealed search are None.

    Attributes:
        mode: `composition` or `sealed selection`, and on which blocks of a table the search counts too.
        cap_kind: kind of the training filter.
        cap_text: summary of the training filter.
        step_cap: total number of steps that the filter allows; None if there is no fixed number.
        sample_rate, noise_multiplier: parameters of every step; None if there are several mechanisms.
        validation: (ε, δ) for the validation records; None if the guarantee does not cover the scores.
        status: `open`, `closed` or `sealed`.
        counts: whether the claim counts against the cap.
        opened: day of opening.
        steps_spent: number of charged training steps.
        steps_reserved: number of training steps that are reserved and not yet charged.
        cards: SHA-256 of each issued privacy card; empty for a sealed search.
        purpose: what the search is for, in the analyst's words; empty if it was not stated.
        contact: who answers questions about it; empty if it was not stated.
    """

    search: str
    user: str
    unit: str
    mode: str
    cap_kind: str
    cap_text: str
    step_cap: int | None
    sample_rate: float | None
    noise_multiplier: float | None
    epsilon: float
    delta: float
    validation: tuple[float, float] | None
    status: str
    counts: bool
    opened: str
    trials: int | None
    steps_spent: int | None
    steps_reserved: int | None
    cards: tuple[str, ...]
    purpose: str
    contact: str


@dataclass(frozen=True, kw_only=True)
class ShareLine:
    """Table row that describes one user's share of a data set's cap.

    Attributes:
        granted: (ε, δ) of the share; None for a user who has searches but no share.
        committed: sums of ε and δ of the user's searches that count against the cap.
        left: (ε, δ) of the share minus `committed`, or 0 where more is committed; None without a share. The cap of
            the data set may allow less than this.
    """

    user: str
    granted: tuple[float, float] | None
    committed: tuple[float, float]
    left: tuple[float, float] | None


def lines(history: History) -> list[Line]:
    """Return the events of a data set, oldest first. Reservations and charges of single trials are left out."""
    return [
        Line(
            time=_shown(entry.time),
            what=what,
            text=text,
            search=None if search is None else search.search,
            user=entry.data["user"] if what == "share" else search.user if search else None,
            committed=(state.committed_epsilon, state.committed_delta),
        )
        for entry, state, what, text, search in _events(history)
    ]


def points(history: History) -> list[Point]:
    """Return the committed ε and the cap after each event of `lines`."""
    found: list[Point] = []
    for entry, state, what, _, search in _events(history):
        moment = _moment(entry.time)
        last = found[-1].moment if found else None
        if last is not None and (moment is None or moment < last):
            moment = last
        if moment is not None:
            name = "" if search is None else search.search
            cap = state.cap.epsilon if state.cap else None
            found.append(Point(moment, state.committed_epsilon, cap, name, what))
    return found


def search_lines(state: DatasetState) -> list[SearchLine]:
    """Return the searches of a data set in the order in which they were opened."""
    return [_search_line(search) for search in state.searches]


def share_lines(state: DatasetState) -> list[ShareLine]:
    """Return one line for each user who has a share or a search. The lines are sorted by user name."""
    users = {*state.grants, *(search.user for search in state.searches)}
    found = []
    for user in sorted(users):
        share = state.grants.get(user)
        granted = None if share is None else (share.epsilon, share.delta)
        committed = state.committed_by(user)
        left = None if granted is None else (room(granted[0], committed[0]), room(granted[1], committed[1]))
        found.append(ShareLine(user=user, granted=granted, committed=committed, left=left))
    return found


def room(allowed: float, committed: float) -> float:
    """Return `allowed` minus `committed` in exact decimal arithmetic, or 0 if more is committed."""
    return max(float(exact_sum(allowed, -committed)), 0.0)


def rule(cap: DatasetCap | None) -> str:
    """Return in words which searches a cap admits."""
    if cap is None:
        return "no cap: every search is admitted, and nothing limits the ε of all searches together"
    if cap.order is None:
        return (
            "a search is admitted if the ε of all searches sum to at most the cap's ε and their δ to at most the cap's "
            "δ"
        )
    either = (
        f"a search is admitted if the ε of all searches sum to at most {cap.epsilon:g} and their δ to at most "
        f"{cap.delta / 2:g}"
    )
    if cap.units is None:
        return (
            f"{either}; the other half of δ is kept for a Rényi filter of order {cap.order:g}, but with this cap the "
            "filter admits no search"
        )
    return (
        f"{either}, OR if a Rényi filter admits them: the sum of their Rényi divergences of order {cap.order:g} costs "
        f"at most ε = {cap.epsilon:g} at δ = {cap.delta / 2:g}; each of these two rules uses half of δ"
    )


def within_cap(state: DatasetState) -> bool | None:
    """Return whether the committed total is within the cap; None without a cap.

    The committed total can exceed the cap, because the owner may lower the cap at any time.
    """
    if state.cap is None:
        return None
    try:
        admit(state, 0.0, 0.0, units=0, what="nothing")
    except BudgetRefusedError:
        return False
    return True


def void_text(void: Void) -> str:
    """Return in words since when, and why, a data set's total is void."""
    return f"TOTAL VOID since {void.day}: records were used {_USES[void.use]} (sweep {void.sweep}; reason: {void.why})"


_USES = {"public": "in a public search", "not private": "without privacy"}


def _events(history: History) -> Iterator[tuple[Entry, DatasetState, str, str, SearchState | None]]:
    """For each entry that the history shows, yield the entry, the state after it and the result of `_words`."""
    for entry, state in history:
        shown = _words(entry, state)
        if shown is not None:
            yield entry, state, *shown


def _words(entry: Entry, state: DatasetState) -> tuple[str, str, SearchState | None] | None:
    """Return the event's kind, its description and its search; None if the history does not show the entry."""
    data = entry.data
    if entry.kind == "cap":
        return "cap", f"The cap was set to {amounts(data['epsilon'], data['delta'])}: {rule(state.cap)}.", None
    if entry.kind == "grant":
        if not data["epsilon"]:
            return "share", f"The share of {data['user']} was revoked.", None
        return "share", f"{data['user']} was granted a share of {amounts(data['epsilon'], data['delta'])}.", None
    if entry.kind == "public":
        return "public", "Records were entered under this name as public. Searches may use them without a charge.", None
    if entry.kind == "void":
        return "void", f"{void_text(state.voids[-1])}, entered by {data['user']}.", None
    search = state.by_name[data["search"]]
    if entry.kind == "open_search":
        return "opened", _opened(search), search
    if search.hides_runs:
        return None
    match entry.kind:
        case "release":
            return "charged", "One release of the records was charged before it was drawn.", search
        case "stored":
            return "stored", f"The release was drawn and stored, SHA-256 {data['sha256'][:16]}…", search
        case "close_search":
            text = (
                "Closed." if search.counts else "Closed before any charge, so its claim does not count against the cap."
            )
            return "closed", text, search
        case "reopen_search":
            return "reopened", "Reopened with its old claim.", search
        case "card":
            kind, digest = data["card_kind"], data["card_sha256"]
            return "card", f"A privacy card was issued ({kind}), SHA-256 {digest[:16]}…", search
        case _:
            return None


def _opened(search: SearchState) -> str:
    text = f"Opened with the claim {amounts(search.epsilon, search.delta)} for each {search.unit}"
    if search.mirror_of is not None:
        text += (
            f"; search {search.mirror_of} uses several blocks, and the whole claim of that search counts on each of "
            "these blocks, also on this one"
        )
    if search.hides_runs:
        return (
            f"{text}. Sealed: only the best of a hidden number of runs is released. Later events of this search are "
            "not shown, because they could reveal that number."
        )
    if search.validation_claim is not None:
        epsilon, delta = search.validation_claim
        text += f"; the claim for each validation {search.unit} is {amounts(epsilon, delta)}"
    return f"{text}. Limit: {search.filter.summary}."


def _search_line(search: SearchState) -> SearchLine:
    hidden = search.hides_runs
    only = None if hidden else search.filter.only_mechanism
    return SearchLine(
        search=search.search,
        user=search.user,
        unit=search.unit,
        mode=("sealed selection" if hidden else search.filter.mode)
        + ("" if search.mirror_of is None else f"; its steps are charged to search {search.mirror_of}")
        + (f"; its claim is also charged to {', '.join(search.blocks)}" if search.blocks else ""),
        cap_kind=search.filter.kind,
        cap_text=search.filter.summary,
        step_cap=search.filter.most_steps,
        sample_rate=None if only is None else only.sample_rate,
        noise_multiplier=None if only is None else only.noise_multiplier,
        epsilon=search.epsilon,
        delta=search.delta,
        validation=search.validation_claim,
        status="sealed" if hidden else search.status,
        counts=search.counts,
        opened=_shown(search.opened_time),
        trials=None if hidden else len(search.trials),
        steps_spent=None if hidden else search.leased_steps,
        steps_reserved=None if hidden else search.reserved_steps,
        cards=() if hidden else tuple(digest for digest, _, _ in search.cards),
        purpose=str(search.details.get("purpose", "")),
        contact=str(search.details.get("contact", "")),
    )


def _shown(time: str) -> str:
    moment = _moment(time)
    return "unknown" if moment is None else moment.strftime("%Y-%m-%d")


def _moment(time: str) -> datetime | None:
    """Return the parsed time of an entry; None if the text is not a time."""
    try:
        found = datetime.fromisoformat(time)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
