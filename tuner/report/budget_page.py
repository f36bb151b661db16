"""The budget of a data set as one HTML page for a data protection officer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.figures import PURPLE, RED, WIDE, new_figure, styled
from tuner.privacy.ledger.amounts import amount
from tuner.privacy.ledger.history import room
from tuner.report.budget_text import amounts_text, share_in_force
from tuner.report.pages import page_from, page_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tuner.privacy.ledger.history import Point

__all__ = ["budget_chart", "budget_page", "sureness"]

Values = Mapping[str, Any]
Amounts = Mapping[str, float]

_LARGE = 4.6  # above this ε, an observer can become more than 99 % sure
_ROWS = 60  # events at most in the chart
_LETTERS = 30  # of a name in it
_HIDDEN = "not shown, because a growing number could reveal when a sealed search ended"


def budget_page(values: Values, points: Sequence[Point]) -> str:
    """Return the page. `values` are those of `tune budget report --json`. `points` are those of its chart."""
    holds = values["guarantee"]
    figure = budget_chart(points)
    return page_from(
        "budget.html",
        title=f"Privacy budget of {values['dataset']}",
        values=values,
        boxes=_boxes(values),
        person="person (with all records of that person)" if values["unit"] == "user" else "record",
        sure="" if holds is None else sureness(holds["epsilon"]),
        large=holds is not None and holds["epsilon"] > _LARGE,
        picture=figure
        and page_picture(figure, "Committed ε after each event, and the cap. The history lists the numbers."),
        shares=[_share_cells(share) for share in values["shares"]],
        bars=_bars(values),
        all_revoked=not any(share_in_force(share["granted"]) for share in values["shares"]),
        searches=[_search_cells(search) for search in values["searches"]],
        any_sealed=any(search["trials"] is None for search in values["searches"]),
        history=[_history_cells(line) for line in values["history"]],
        ledger=_ledger_facts(values),
    )


@styled()
def budget_chart(points: Sequence[Point]) -> Figure | None:
    """Draw each event that changed the committed ε or the cap as a row with its day and its name, oldest first.

    The last `_ROWS` events are drawn. Return None if there is none.
    """
    if not points:
        return None
    before = [None, *points[:-1]]
    changes = [
        (point, 0.0 if last is None else last.committed)
        for point, last in zip(points, before, strict=True)
        if last is None or (point.committed, point.cap) != (last.committed, last.cap)
    ][-_ROWS:]
    names = [f"{point.moment:%Y-%m-%d}  {_event_name(point)}" for point, _ in changes]
    width, height = WIDE[0], 1.3 + 0.3 * len(changes)
    figure = new_figure(width, height)
    # The margin follows the number of letters, not their widths: the picture of a sealed search is the same for any id.
    figure.set_layout_engine(None)
    figure.subplots_adjust(
        left=(0.15 + 0.084 * max(map(len, names))) / width, right=0.985, top=1 - 0.4 / height, bottom=0.55 / height
    )
    axes = figure.add_subplot(xlabel="ε")
    rows = range(len(changes))
    for row, (point, base) in zip(rows, changes, strict=True):
        axes.barh(row, base, color=PURPLE, alpha=0.25, height=0.7)
        added = point.committed - base
        style: dict[str, Any] = (
            {"color": PURPLE} if added >= 0 else {"facecolor": "white", "edgecolor": PURPLE, "hatch": "///"}
        )
        axes.barh(row, added, left=base, height=0.7, **style)
        axes.annotate(
            amount(point.committed),
            (max(point.committed, base), row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
        )
    if any(point.cap is not None for point, _ in changes):
        caps = [math.nan if point.cap is None else point.cap for point, _ in changes for _ in range(2)]
        edges = [row + side for row in rows for side in (-0.5, 0.5)]
        axes.plot(caps, edges, color=RED, linestyle="--", linewidth=2, label="cap")
    axes.barh(0, 0, color=PURPLE, label="committed by the event")
    axes.barh(0, 0, color=PURPLE, alpha=0.25, label="committed before")
    if any(point.committed < base for point, base in changes):
        axes.barh(0, 0, facecolor="white", edgecolor=PURPLE, hatch="///", label="given back")
    axes.set_yticks(rows, names)
    axes.set_ylim(len(changes) - 0.5, -0.5)
    axes.set_xlim(left=0.0)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    figure.legend(loc="upper left", ncols=4)
    return figure


def _event_name(point: Point) -> str:
    """Return a short name of an event: what happened, or the search that was opened."""
    name = point.name if len(point.name) <= _LETTERS else f"{point.name[: _LETTERS - 13]}…{point.name[-12:]}"
    if point.what == "opened" or not point.what:
        return name
    return f"{name} {point.what}" if name else f"{point.what} set"


def sureness(epsilon: float) -> str:
    """Return, as text, how sure an observer can become that a record was used.

    If the observer is 50 % sure at first, the limit is e^ε / (1 + e^ε). The limit in the text is rounded upward.
    """
    unsure = 100 / (1 + math.exp(min(epsilon, 700.0)))
    digits = max(1, 1 - math.floor(math.log10(unsure))) if unsure < 10 else 1
    if digits > 6:
        return "practically 100 % sure"
    scale = 10**digits
    return f"at most {math.ceil((100 - unsure) * scale) / scale:.{digits}f} % sure"


def _boxes(values: Values) -> list[tuple[str, str, list[str]]]:
    """Return a name, a value and remarks for each of the four main figures."""
    cap, left, number = values["cap"], values["left"], len(values["searches"])
    counted = sum(search["counts"] for search in values["searches"])
    guarantee = "cap (below what was committed)" if values["over"] else "guarantee (the cap)"
    if values["void"]:
        guarantee = "cap (NO guarantee for all searches together)"
    remark = f"{counted} {'counts' if counted == 1 else 'count'} {'against the cap' if cap else 'in the committed sum'}"
    return [
        (guarantee, *_headline(cap)) if cap else ("cap", "none", ["each search has its own cap"]),
        ("committed", *_headline(values["committed"])),
        ("left for the sums of ε and δ" if values["order"] else "left", *_headline(left)),
        ("searches", str(number), [remark]),
    ]


def _headline(amounts: Amounts | None) -> tuple[str, list[str]]:
    if amounts is None:
        return "–", ["without a cap"]
    return f"ε = {amount(amounts['epsilon'])}", [f"at δ = {amount(amounts['delta'])}"]


def _bars(values: Values) -> list[tuple[str, list[tuple[str, float, str]], str]]:
    """Return a name, parts and a total for a bar of all searches and one of each share of the cap, by ε."""
    cap = values["cap"]
    if cap is None:
        return []
    whole, total = f"the cap, ε = {amount(cap['epsilon'])}", values["committed"]["epsilon"]
    most = max(cap["epsilon"], total)
    bars = [
        (
            "All searches together",
            [
                ("committed", total / most, f"ε = {amount(total)}"),
                ("left", 1 - total / most, f"ε = {amount(room(most, total))}"),
            ],
            whole,
        )
    ]
    for share in values["shares"] if values["divided"] else ():
        used = share["committed"]["epsilon"]
        granted = share["granted"]["epsilon"] if share["granted"] else 0.0
        rest = room(granted, used)
        parts = [
            ("committed", min(used / most, 1.0), f"ε = {amount(used)}"),
            ("granted", min(rest / most, 1.0), f"and not used: ε = {amount(rest)}"),
        ]
        bars.append((share["user"], parts, whole))
    return bars


def _share_cells(share: Values) -> list[str]:
    granted = share["granted"]
    revoked = granted is not None and not share_in_force(granted)
    cells = ["share revoked", "–"] if revoked else _amount_cells(granted)
    return [share["user"], *cells, *_amount_cells(share["committed"]), *_amount_cells(share["left"])]


def _amount_cells(amounts: Amounts | None) -> list[str]:
    return ["–", "–"] if amounts is None else [amount(amounts["epsilon"]), amount(amounts["delta"])]


def _search_cells(search: Values) -> list[str]:
    hidden = search["trials"] is None
    how = "sealed search: nothing else is shown" if hidden else f"{search['mode']}: {search['cap_text']}"
    if search["validation"] is not None:
        how += f"; validation {amounts_text(search['validation'])}"
    if not search["counts"]:
        how += "; charged nothing, so it counts as 0"
    return [
        search["search"],
        search["user"] or "not recorded",
        "; ".join(words for words in (search["purpose"], search["contact"]) if words) or "not stated",
        search["unit"],
        amount(search["epsilon"]),
        amount(search["delta"]),
        search["opened"],
        search["status"],
        "–" if hidden else str(search["trials"]),
        how,
    ]


def _history_cells(line: Values) -> list[str]:
    epsilon, delta = line["committed"]
    return [line["time"], line["search"] or "–", line["user"] or "–", line["text"], amount(epsilon), amount(delta)]


def _ledger_facts(values: Values) -> list[tuple[str, str]]:
    odometer, entries = values["odometer"], values["entries"]
    spent = f"ε = {odometer['epsilon_spent']:.4g} at δ = {amount(odometer['delta'])}"
    return [
        ("chain of entries", f"checked from the first entry and found unbroken, on {values['made']} UTC"),
        ("entries", _HIDDEN if entries is None else str(entries)),
        ("head (SHA-256)", values["head"]),
        ("id of the ledger", values["ledger_id"]),
        ("spent so far", f"{spent}, {odometer['delta_is']} ({odometer['label']})"),
    ]
