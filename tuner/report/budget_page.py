"""The budget of a data set as one HTML page for a data protection officer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tuner.figures import PURPLE, RED, WIDE, new_figure, styled
from tuner.report.budget_text import amounts_text, share_in_force
from tuner.report.pages import page_from, page_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tuner.privacy.ledger.history import Point

__all__ = ["budget_chart", "budget_page", "sureness"]

Values = Mapping[str, Any]
Amounts = Mapping[str, float]

_LARGE = 4.6  # above this ε, an observer can become more than 99 % sure
_HIDDEN = "not shown, because its growth could reveal when a sealed search ended"


def budget_page(values: Values, points: Sequence[Point]) -> str:
    """Return the page. `values` are those of `tune budget report --json`. `points` are those of its chart."""
    holds = values["guarantee"]
    figure = budget_chart(points, until=values["made"])
    return page_from(
        "budget.html",
        title=f"Privacy budget of {values['dataset']}",
        values=values,
        boxes=_boxes(values),
        person="person (with all records of that person)" if values["unit"] == "user" else "record",
        sure="" if holds is None else sureness(holds["epsilon"]),
        large=holds is not None and holds["epsilon"] > _LARGE,
        picture=figure and page_picture(figure, "Committed ε over time, and the cap. The history lists the numbers."),
        shares=[_share_cells(share) for share in values["shares"]],
        all_revoked=not any(share_in_force(share["granted"]) for share in values["shares"]),
        searches=[_search_cells(search) for search in values["searches"]],
        any_sealed=any(search["trials"] is None for search in values["searches"]),
        history=[_history_cells(line) for line in values["history"]],
        ledger=_ledger_facts(values),
    )


@styled()
def budget_chart(points: Sequence[Point], *, until: str) -> Figure | None:
    """Draw the committed ε and the cap over time, up to the time of the report. Return None if there is no point."""
    if not points:
        return None
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    made = datetime.strptime(until, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    # The end of that day, because entries have no finer time.
    end = max(made.replace(hour=0, minute=0, second=0) + timedelta(days=1), points[-1].moment)
    figure = new_figure(*WIDE)
    axes = figure.add_subplot(xlabel="time (UTC)", ylabel="ε")
    times = date2num([*(point.moment for point in points), end])
    committed = [*(point.committed for point in points), points[-1].committed]
    caps = [math.nan if point.cap is None else point.cap for point in (*points, points[-1])]
    label = "committed: sum of ε of all searches that count"
    axes.step(times, committed, where="post", color=PURPLE, linewidth=2.4, label=label)
    axes.fill_between(times, committed, step="post", color=PURPLE, alpha=0.15, linewidth=0)
    if any(point.cap is not None for point in points):
        axes.step(times, caps, where="post", color=RED, linestyle="--", linewidth=2, label="cap")
    axes.set_ylim(bottom=0.0)
    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


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
        guarantee = "cap (NO guarantee: the total is void)"
    remark = f"{counted} {'counts' if counted == 1 else 'count'} {'against the cap' if cap else 'in the committed sum'}"
    return [
        (guarantee, *_headline(cap)) if cap else ("cap", "none", ["each search has its own cap"]),
        ("committed", *_headline(values["committed"])),
        ("left, by the sum of claims" if values["order"] else "left", *_headline(left)),
        ("searches", str(number), [remark]),
    ]


def _headline(amounts: Amounts | None) -> tuple[str, list[str]]:
    if amounts is None:
        return "–", ["without a cap"]
    return f"ε = {amounts['epsilon']:g}", [f"at δ = {amounts['delta']:g}"]


def _share_cells(share: Values) -> list[str]:
    granted = share["granted"]
    revoked = granted is not None and not share_in_force(granted)
    cells = ["share revoked", "–"] if revoked else _amount_cells(granted)
    return [share["user"], *cells, *_amount_cells(share["committed"]), *_amount_cells(share["left"])]


def _amount_cells(amounts: Amounts | None) -> list[str]:
    return ["–", "–"] if amounts is None else [f"{amounts['epsilon']:g}", f"{amounts['delta']:g}"]


def _search_cells(search: Values) -> list[str]:
    hidden = search["trials"] is None
    how = "sealed selection, so nothing else is shown" if hidden else f"{search['mode']}: {search['cap_text']}"
    if search["validation"] is not None:
        how += f"; validation {amounts_text(search['validation'])}"
    if not search["counts"]:
        how += "; took no step, so it counts as 0"
    return [
        search["search"],
        search["user"] or "not recorded",
        search["unit"],
        f"{search['epsilon']:g}",
        f"{search['delta']:g}",
        search["opened"],
        search["status"],
        "–" if hidden else str(search["trials"]),
        how,
    ]


def _history_cells(line: Values) -> list[str]:
    epsilon, delta = line["committed"]
    return [line["time"], line["search"] or "–", line["user"] or "–", line["text"], f"{epsilon:g}", f"{delta:g}"]


def _ledger_facts(values: Values) -> list[tuple[str, str]]:
    odometer, entries = values["odometer"], values["entries"]
    spent = f"ε = {odometer['epsilon_spent']:.4g} at δ = {odometer['delta']:g}"
    return [
        ("chain of the ledger", f"checked from the first entry and found unbroken, on {values['made']} UTC"),
        ("entries", _HIDDEN if entries is None else str(entries)),
        ("head (SHA-256)", values["head"]),
        ("id of the ledger", values["ledger_id"]),
        ("spent so far", f"{spent}, {odometer['delta_is']} ({odometer['label']})"),
    ]
