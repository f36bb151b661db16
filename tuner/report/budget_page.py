"""The budget of a data set as one HTML page for a data protection officer: no script, no address, no picture file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.files import write_text
from tuner.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, Frame
from tuner.report.page import STYLE

if TYPE_CHECKING:
    from tuner.privacy.ledger.history import Point

__all__ = ["render", "write"]

Values = Mapping[str, Any]

_OWN_STYLE = """
h1 code{font-size:.9em}.say{max-width:82ch}.say li{margin:4px 0}
svg .committed{fill:none;stroke:var(--violet);stroke-width:2.4;stroke-linejoin:round}
svg .under{fill:var(--violet);fill-opacity:.10}
svg .cap{fill:none;stroke:var(--red);stroke-width:2;stroke-dasharray:7 5}
.words th,.words td{text-align:left;white-space:normal;vertical-align:top;overflow-wrap:break-word}
.words td:last-child,.words th:last-child{min-width:0}
.words .n,.words .t{white-space:nowrap}.words .n{text-align:right}
.words td{max-width:210px}.words .name{min-width:130px}
.words td.long{min-width:240px;max-width:none;overflow-wrap:anywhere}
.purple{color:var(--violet)}
"""
_WIDTH, _HEIGHT = 980.0, 280.0
_LARGE = 4.6  # from here on the sureness is above 99 %


def render(values: Values, points: Sequence[Point]) -> str:
    """The page.

    Args:
        values: as `tune budget report --json` prints them.
        points: of the chart, in the order of time.
    """
    body = "".join(
        (
            _heading(values),
            _heads(values),
            _meaning(values),
            _chart(values, points),
            _shares(values),
            _searches(values),
            _history(values),
            _proof(values),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Privacy budget of {escape(values['dataset'])}</title><style>{STYLE}{_OWN_STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def write(values: Values, points: Sequence[Point], path: Path) -> None:
    """Writes the page; whoever reads the file meanwhile sees the old one or the new one, whole.

    Raises:
        OSError: the file cannot be written.
    """
    write_text(path, render(values, points))


def _heading(values: Values) -> str:
    return (
        f"<h1>Privacy budget of <code>{escape(values['dataset'])}</code></h1>"
        f"<p class=soft>as of {escape(values['made'])} UTC, from the ledger {escape(values['ledger'])}</p>"
    )


def _heads(values: Values) -> str:
    cap, committed, left = values["cap"], values["committed"], values["left"]
    counted = sum(search["counts"] for search in values["searches"])
    guarantee = "cap (below what was committed)" if values["over"] else "guarantee (the cap)"
    against = "against the cap" if cap else "in what is committed"
    boxes = [
        (guarantee, *_two(cap)) if cap else ("cap", "none", "each search has its own"),
        ("committed", *_two(committed)),
        (
            "left, by the sum of claims" if values["order"] else "left",
            *(_two(left) if left else ("–", "without a cap")),
        ),
        ("searches", str(len(values["searches"])), f"{counted} {'counts' if counted == 1 else 'count'} {against}"),
    ]
    return (
        "<div class=heads>"
        + "".join(
            f"<div class=head><span class=soft>{escape(name)}</span><b class=num>{escape(value)}</b>"
            f"<span class=soft>{escape(more)}</span></div>"
            for name, value, more in boxes
        )
        + "</div>"
    )


def _meaning(values: Values) -> str:
    cap, holds = values["cap"], values["guarantee"]
    each = "person (with all records of that person)" if values["unit"] == "user" else "record"
    said = []
    if cap is None:
        said.append(
            "No cap was set for this data set, so nothing limits in advance what searches on it may give away "
            "together. The owner of the data sets one with <code>tune budget set</code>. Each search has a cap of its "
            "own, below."
        )
    else:
        said += [
            _lowered(cap, holds) if values["over"] else _bound(cap, each),
            f"In numbers: who holds it for as likely as not that a given {each} was used, and then sees all results, "
            f"can be {_at_most_sure(holds['epsilon'])} of it, apart from a failure that has a probability of at "
            f"most δ = {holds['delta']:g}. Without any results they are 50 % sure. "
            + ("An ε this large promises little by itself." if holds["epsilon"] > _LARGE else ""),
            f"How it is kept: {escape(values['rule'])}. A search whose claim does not fit is refused before it starts. "
            "Its whole claim stays committed, even if it uses less; one that is closed before it touches a record "
            "counts 0.",
        ]
        if values["order"] is not None and values["order_used"] is not None:
            said.append(f"Of the Rényi filter {100 * values['order_used']:.4g} % is committed.")
    covers = (
        "It covers the records that the searches trained on. Where a search has protected validation its"
        if cap
        else "The cap of a search covers the records that it trained on. Where it has protected validation its"
    )
    said.append(
        f"{covers} validation records are covered too, else their scores are outside it. It does not cover "
        "copies of the data used outside this ledger, nor what the operators of the system can see."
    )
    paragraphs = "".join(f"<p>{paragraph}</p>" for paragraph in said)
    head = "What the cap means" if cap else "What holds without a cap"
    return f"<section><h2>{head}</h2><div class=say>{paragraphs}</div></section>"


def _bound(cap: Mapping[str, float], each: str) -> str:
    return (
        f"The cap is ε = {cap['epsilon']:g} at δ = {cap['delta']:g}. It bounds what all that the searches on this data "
        f"have released, and will release, can give away about any one {each}, whoever looks and whatever else they "
        "know, as long as the owner of the data does not raise it. Every cap that was ever set is in the history below."
    )


def _lowered(cap: Mapping[str, float], holds: Mapping[str, float]) -> str:
    return (
        f"The cap was set to ε = {cap['epsilon']:g}, δ = {cap['delta']:g}, below what the searches had committed "
        "before: nothing more can start, but what was released is not taken back. What holds is what is committed: "
        f"ε = {holds['epsilon']:g} at δ = {holds['delta']:g}."
    )


def _chart(values: Values, points: Sequence[Point]) -> str:
    if not points:
        return ""
    end = max(_clock(values["made"]), points[-1].moment.timestamp())
    start = points[0].moment.timestamp()
    span = max(end - start, 60.0)
    x = Axis(start - span * 0.02, start + span * 1.02, LEFT, _WIDTH - RIGHT)
    top = max(max(point.committed, point.cap or 0.0) for point in points) or 1.0
    frame = Frame(_WIDTH, _HEIGHT, x, Axis(0.0, top * 1.08, _HEIGHT - BOTTOM, TOP))
    until = min(x.high, max(end, start + span))
    committed = _steps(frame, [(p.moment.timestamp(), p.committed) for p in points], until)
    floor = f"V{frame.y.at(0.0):.1f}H{x.at(start):.1f}Z"
    body = f'<path class="under" d="{committed}{floor}"/><path class="committed" d="{committed}"/>'
    capped = [(p.moment.timestamp(), p.cap) for p in points if p.cap is not None]
    if capped:
        body += f'<path class="cap" d="{_steps(frame, capped, until)}"/>'
    chart = frame.draw(body, x_label="time (UTC)", y_label="ε", x_ticks=_ticks(x))
    key = '<span class="purple">▬ committed: the sum of the ε of the searches that count</span>'
    key += '<span class="bad">╍ cap</span>' if capped else ""
    return f"<section><h2>ε over time</h2><p class=key>{key}</p>{chart}</section>"


def _steps(frame: Frame, values: Sequence[tuple[float, float]], until: float) -> str:
    first, *rest = [(frame.x.at(at), frame.y.at(value)) for at, value in values]
    path = f"M{first[0]:.1f} {first[1]:.1f}" + "".join(f"H{at:.1f}V{value:.1f}" for at, value in rest)
    return f"{path}H{frame.x.at(until):.1f}"


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    span = axis.high - axis.low
    form = "%H:%M:%S" if span < 600 else "%d %b %H:%M" if span < 4 * 86400 else "%d %b %Y"
    places = [axis.low + span * part for part in (0.06, 0.28, 0.5, 0.72, 0.94)]
    return [(place, datetime.fromtimestamp(place, UTC).strftime(form)) for place in places]


def _shares(values: Values) -> str:
    shares = values["shares"]
    if not shares:
        return ""
    said = "There is no cap to divide: whoever may write the ledger may start any search."
    if values["divided"]:
        said = "Who has no share can start no search. A share and the cap hold at once."
        if not any(share["granted"] and share["granted"]["epsilon"] for share in shares):
            said += " Every share was revoked and the cap stays divided: nobody can start one until a share is granted."
    elif values["cap"]:
        said = "The cap is not divided: whoever may write the ledger may use all that is left."
    rows = [
        (
            escape(share["user"]),
            *_granted_cells(share["granted"]),
            *(_cell(share["committed"], part) for part in ("epsilon", "delta")),
            *(_cell(share["left"], part) for part in ("epsilon", "delta")),
        )
        for share in shares
    ]
    heads = ("user", "granted ε", "granted δ", "committed ε", "committed δ", "left ε", "left δ")
    return f"<section><h2>Users and their shares</h2><p class=soft>{said}</p>{_table(heads, rows, '-nnnnnn')}</section>"


def _searches(values: Values) -> str:
    if not values["searches"]:
        return ""
    rows = []
    for search in values["searches"]:
        sealed = search["status"] == "sealed"
        claim = f"{search['epsilon']:g}"
        how = "sealed selection; nothing else is shown" if sealed else f"{search['mode']}: {escape(search['cap_text'])}"
        if search["validation"] is not None:
            how += f"; validation ε = {search['validation']['epsilon']:g}, δ = {search['validation']['delta']:g}"
        if not search["counts"]:
            how += "; took no step: counts 0"
        rows.append(
            (
                escape(search["search"]),
                escape(search["user"] or "not recorded"),
                escape(search["unit"]),
                claim,
                f"{search['delta']:g}",
                escape(search["opened"]),
                escape(search["status"]),
                "–" if sealed else str(search["trials"]),
                how,
            )
        )
    heads = ("search", "user", "protects each", "ε", "δ", "opened (UTC)", "state", "trials", "how its claim is kept")
    return f"<section><h2>Searches</h2>{_table(heads, rows, 's--nnttnl')}</section>"


def _history(values: Values) -> str:
    rows = [
        (
            escape(line["time"]),
            escape(line["search"] or "–"),
            escape(line["user"] or "–"),
            escape(line["text"]),
            f"{line['committed'][0]:g}",
            f"{line['committed'][1]:g}",
        )
        for line in values["history"]
    ]
    said = (
        "Every cap and share that was set, every search that was opened or closed, every privacy card that was issued. "
        "Entries are never changed or removed. Times are of the clocks of the machines that wrote them."
    )
    if any(search["status"] == "sealed" for search in values["searches"]):
        said += " Of a sealed search only the opening is shown, with its day: when it ended would tell how long it ran."
    heads = ("time (UTC)", "search", "about user", "what happened", "committed ε", "committed δ")
    return f"<section><h2>History</h2><p class=soft>{said}</p>{_table(heads, rows, 'ts-lnn')}</section>"


def _proof(values: Values) -> str:
    odometer, entries = values["odometer"], values["entries"]
    hidden = "not shown: when a sealed search ended could be told from how it grows"
    facts = (
        ("chain of the ledger", f"read from the first entry and unbroken, on {values['made']} UTC"),
        ("entries", hidden if entries is None else str(entries)),
        ("head (SHA-256)", values["head"]),
        ("id of the ledger", values["ledger_id"]),
        (
            "spent so far",
            f"ε = {odometer['epsilon_spent']:.4g} at δ = {odometer['delta']:g}, {odometer['delta_is']} "
            f"({odometer['label']})",
        ),
    )
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    said = (
        "Keep the head: a later ledger that does not contain it was changed. “Spent so far” is what the steps taken "
        "until now would cost had they been fixed in advance; they were chosen after looking, so it is no guarantee."
    )
    table = f'<table class="facts num">{rows}</table>'
    return f'<section><h2>The ledger</h2>{table}<p class="soft say">{said}</p></section>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kinds: str) -> str:
    """Cells are HTML already; a kind a column: `n` number, `t` time, `s` name, `l` long, `-` words."""
    names = {"n": " class=n", "t": " class=t", "l": " class=long", "s": " class=name", "-": ""}
    head = "".join(f"<th{names[kind]}>{escape(name)}</th>" for name, kind in zip(heads, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{names[kind]}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class=wide><table class="num words"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _two(pair: Mapping[str, float]) -> tuple[str, str]:
    return f"ε = {pair['epsilon']:g}", f"at δ = {pair['delta']:g}"


def _cell(pair: Mapping[str, float] | None, part: str) -> str:
    return "–" if pair is None else f"{pair[part]:g}"


def _granted_cells(granted: Mapping[str, float] | None) -> tuple[str, str]:
    if granted is not None and not granted["epsilon"]:
        return "share revoked", "–"
    return _cell(granted, "epsilon"), _cell(granted, "delta")


def _at_most_sure(epsilon: float) -> str:
    sure = _sure(epsilon)
    return f"at most {sure} sure" if sure[0].isdigit() else f"{sure} sure"


def _sure(epsilon: float) -> str:
    """How sure somebody becomes who started at one half: e^ε / (1 + e^ε), rounded up."""
    unsure = 100 / (1 + math.exp(min(epsilon, 700.0)))
    digits = max(1, 1 - math.floor(math.log10(unsure))) if unsure < 10 else 1
    if digits > 6:
        return "practically 100 %"
    scale = 10**digits
    return f"{math.ceil((100 - unsure) * scale) / scale:.{digits}f} %"


def _clock(made: str) -> float:
    return datetime.strptime(made, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
