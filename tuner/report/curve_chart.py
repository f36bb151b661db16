"""The curve of a unimodal search and what was spent for it, as SVG: on the page, and as a picture that stands alone."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tuner.report.charts import BOTTOM, CHART_STYLE, LEFT, PALETTE, RIGHT, TOP, Axis, Frame
from tuner.report.sweep_report import format_value

if TYPE_CHECKING:
    from tuner.report.spending import Spending, SpendingRow
    from tuner.study.unimodal.inference.picture import CurvePicture, CurvePoint

__all__ = ["CURVE_STYLE", "MARKS", "curve_chart", "curve_ticks", "spending_chart", "standalone"]

CURVE_STYLE = """
svg .band{fill:var(--violet);fill-opacity:.16}svg .mean{fill:none;stroke:var(--violet);stroke-width:2.2}
svg .outside{fill:var(--ink);fill-opacity:.07}
svg .limit{stroke:var(--ink);stroke-opacity:.55;stroke-width:1.2;stroke-dasharray:4 3}
svg .bar{fill:none;stroke:var(--ink);stroke-opacity:.7;stroke-width:1.2}
svg .mark{font-size:11.5px;fill:var(--ink)}
svg .open,svg .cross{fill:none;stroke:currentColor;stroke-width:1.8}svg .open{fill:var(--box)}
svg .never-started{color:var(--soft)}
svg .whole{fill:none;stroke:var(--ink);stroke-opacity:.7;stroke-width:1.8;stroke-dasharray:7 4}
svg .cap{stroke:var(--red);stroke-width:1.8;stroke-dasharray:2 3}svg .cap-mark{font-size:11px;fill:var(--red)}
.key .band-key{color:var(--violet)}
"""

MARKS = {"complete": "●", "pruned": "○", "running": "◇", "never started": "×"}
"""The mark of each state, larger the more steps were taken; states differ in shape and not only in colour."""

_WIDTH, _HEIGHT = 760.0, 320.0
_STRIP = 24.0  # above the points, for the bracket
_PIXELS = 38.0  # between two ticks
_BEYOND = 0.35  # of the range of whole trials: how far the band and scores of trials that were stopped may stretch it
_LEAST = 6.0  # tolerances that the axis shows at least: else noise fills the picture
_TOP = 25.0  # tolerances below the best from which on scores may fall off the axis: a collapse would flatten the top


def curve_chart(picture: CurvePicture, metric: str) -> str:
    """The trials, the curve with its band, and the bracket; empty where there is nothing to draw."""
    if not picture.points:
        return ""
    bottom = _HEIGHT - BOTTOM
    x = Axis(-0.03, 1.03, LEFT, _WIDTH - RIGHT)
    frame = Frame(_WIDTH, _HEIGHT, x, Axis(*_range(picture), bottom, TOP + _STRIP))
    body = _bracket(picture, frame) + _band(picture, frame)
    best_last = sorted(picture.points, key=lambda point: point.trial == picture.best)  # so that it is on top
    body += "".join(_point(point, picture, frame, metric) for point in best_last)
    ticks = [(picture.axis.place(value), label) for value, label in curve_ticks(picture)]
    about = f"{metric} by {picture.parameter}: {' '.join(picture.sentences)}"
    return frame.draw(body, x_label=picture.parameter, y_label=metric, x_ticks=ticks, about=about)


def curve_ticks(picture: CurvePicture) -> list[tuple[float, str]]:
    """Round values with room between them, 0 and powers of ten first."""
    axis, low, high = picture.axis, picture.low, picture.high
    wanted: list[float] = [0.0] if low <= 0 <= high else []
    if axis.warp != "linear":
        top = math.floor(math.log10(high))
        decades = range(max(math.floor(math.log10(low)), top - 8) if low > 0 else top - 3, top + 1)
        wanted += [factor * 10.0**decade for factor in (1, 3, 2, 5) for decade in reversed(decades)]
    apart = _PIXELS / (_WIDTH - LEFT - RIGHT) * 1.06
    taken: list[float] = []
    for value in wanted:
        place = axis.place(value) if low <= value <= high else math.nan
        if all(abs(place - axis.place(other)) >= apart for other in taken) and not math.isnan(place):
            taken.append(value)
    if len(taken) < 3:  # a range within one decade, or a linear axis
        taken = [tick for tick in Axis(low, high, 0.0, 1.0).ticks() if low <= tick <= high]
    return [(value, f"{value:.6g}") for value in sorted(taken)]


def spending_chart(spending: Spending, metric: str) -> str:
    """The best score over ε, or over steps where ε is not known; as a second line, of the same trials run whole."""
    rows = [row for row in spending.rows if row.best is not None]
    if not rows:
        return ""
    of = _epsilons if spending.with_epsilon else _steps
    places = [place for row in rows for place in of(row)]
    cap = spending.cap if spending.with_epsilon else None
    most = max(places)
    if cap is not None and cap <= 1.5 * most:
        most = max(most, cap)
    else:
        cap = None
    height = 260.0
    scores = [row.best for row in rows if row.best is not None]
    y = Axis.over(scores, height - BOTTOM, TOP + 6)
    frame = Frame(_WIDTH, height, Axis(0.0, most * 1.04 or 1.0, LEFT, _WIDTH - RIGHT), y)
    body = ""
    for number, kind in ((1, "whole"), (0, "best-line")):
        # To the end of the frame it would seem that more was spent: the line ends where the spending does.
        path = "".join(
            f"{'M' if not i else 'H'}{frame.x.at(of(row)[number]):.1f}{' ' if not i else 'V'}{frame.y.at(row.best):.1f}"
            for i, row in enumerate(rows)
            if row.best is not None
        )
        name = ("this search", "the same trials, each run to its end")[number]
        last = of(rows[-1])[number]
        end = f'cx="{frame.x.at(last):.1f}" cy="{frame.y.at(rows[-1].best or 0.0):.1f}"'
        body += f'<path class="{kind}" d="{path}"><title>{name}</title></path>'
        body += f'<circle class="{"open" if number else "point best"}" {end} r="4"><title>{name}</title></circle>'
    if cap is not None:
        at = frame.x.at(cap)
        body += f'<line class="cap" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP:g}" y2="{height - BOTTOM:g}"/>'
        body += f'<text class="cap-mark" x="{at - 5:.1f}" y="{TOP + 10:g}" text-anchor="end">the cap</text>'
    label = "ε (odometer, not a guarantee)" if spending.with_epsilon else "steps"
    about = f"best {metric} by {label}: {' '.join(spending.sentences)}"
    return frame.draw(body, x_label=label, y_label=metric, about=about)


def standalone(picture: CurvePicture, metric: str, title: str) -> str:
    """The chart with what is seen in words, as a file of its own; readable on light and dark screens."""
    chart = curve_chart(picture, metric)
    there = [state for state in MARKS if any(point.state == state for point in picture.points)]
    key = "   ".join(f"{MARKS[state]} {state}" for state in there) + "   (larger: more steps taken)"
    lines = [line for text in picture.sentences for line in textwrap.wrap(text, 112)]
    if "off the axis" in chart:
        key += "   ▽ off the axis"
    if picture.values:
        key += "   — curve   ▒ 10 to 90 % of the curves that are possible"
    top, height = 58.0, 58.0 + _HEIGHT + 18.0 * len(lines) + 16.0
    words = "".join(
        f'<text class="say" x="{LEFT / 2:g}" y="{top + _HEIGHT + 16 + 18 * i:g}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    inner = chart.replace("<svg ", f'<svg y="{top:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" ', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" width="{_WIDTH:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(title)}: {escape(" ".join(picture.sentences))}">'
        f"<style>{PALETTE}{CHART_STYLE}{CURVE_STYLE}text{{font-family:system-ui,sans-serif}}.title{{font-size:15px;"
        "font-weight:600;fill:var(--ink)}.say{font-size:12.5px;fill:var(--ink)}.key{font-size:11.5px;fill:var(--soft)}"
        f'</style><title>{escape(title)}</title><rect width="100%" height="100%" fill="var(--box)"/>'
        f'<text class="title" x="{LEFT / 2:g}" y="24">{escape(title)}</text>'
        f'<text class="key" x="{LEFT / 2:g}" y="44" xml:space="preserve">{escape(key)}</text>{inner}{words}</svg>\n'
    )


def _range(picture: CurvePicture) -> tuple[float, float]:
    """Of the scores: what tells the top from the rest; what is far worse, or from early on, may fall off."""
    sign = 1.0 if picture.maximize else -1.0
    every = [sign * point.score for point in picture.points if point.score is not None]
    whole = [sign * point.score for point in picture.points if point.score is not None and point.state == "complete"]
    known = [*(whole or every), *(sign * score for score in picture.mean)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if whole:
        middle = sorted(whole)[len(whole) // 2]
        low = max(low, min(high - _TOP * picture.tolerance, middle - (high - middle)))
    more = max(_LEAST * picture.tolerance - (high - low), 0.0) / 2
    low, high = low - more, high + more
    stretch = _BEYOND * (high - low)
    others = [*every, *(sign * score for score in (*picture.band_low, *picture.band_high))]
    worst, best = min(others, default=low), max(others, default=high)
    low, high = min(low, max(worst, low - stretch)), max(high, min(best, high + stretch))
    pad = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    low, high = low - pad, high + 2 * pad  # there the name of the best stands
    return (low, high) if picture.maximize else (-high, -low)


def _inside(line: Sequence[tuple[float, float]], y: Axis) -> list[list[tuple[float, float]]]:
    """The pieces of a line between the axis' ends, cut where it crosses them."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for (at, score), (then, next_score) in itertools.pairwise(line):
        low, high = sorted((score, next_score))
        if high < y.low or low > y.high:
            pieces.append([])
            continue
        for place, value in ((at, score), (then, next_score)):
            kept = min(max(value, y.low), y.high)
            if kept != value:
                place = at + (then - at) * (kept - score) / (next_score - score)
            if not pieces[-1] or pieces[-1][-1] != (place, kept):
                pieces[-1].append((place, kept))
    return [piece for piece in pieces if len(piece) > 1]


def _band(picture: CurvePicture, frame: Frame) -> str:
    if not picture.values:
        return ""
    places = [frame.x.at(picture.axis.place(value)) for value in picture.values]

    def line(scores: Sequence[float]) -> list[str]:
        inside = (min(max(score, frame.y.low), frame.y.high) for score in scores)
        return [f"{at:.1f},{frame.y.at(score):.1f}" for at, score in zip(places, inside, strict=True)]

    around = " ".join([*line(picture.band_high), *reversed(line(picture.band_low))])
    mean = [(at, score) for at, score in zip(places, picture.mean, strict=True)]
    drawn = "".join(
        f'<polyline class="mean" points="{" ".join(f"{at:.1f},{frame.y.at(score):.1f}" for at, score in piece)}"/>'
        for piece in _inside(mean, frame.y)
    )
    return f'<polygon class="band" points="{around}"/>{drawn}'


def _bracket(picture: CurvePicture, frame: Frame) -> str:
    """What is excluded in grey, and a bar over what is left, with its words."""
    if not picture.where:
        return ""
    left, right, bottom = LEFT, frame.width - RIGHT, frame.height - BOTTOM
    low = left if picture.above is None else frame.x.at(picture.axis.place(picture.above))
    high = right if picture.below is None else frame.x.at(picture.axis.place(picture.below))
    y = TOP + _STRIP - 7
    parts = []
    for begin, end, edge, known in (
        (left, low, low, picture.above is not None),
        (high, right, high, picture.below is not None),
    ):
        if known:
            size = f'width="{end - begin:.1f}" height="{bottom - TOP:g}"'
            parts.append(f'<rect class="outside" x="{begin:.1f}" y="{TOP:g}" {size}/>')
            parts.append(f'<line class="limit" x1="{edge:.1f}" x2="{edge:.1f}" y1="{TOP:g}" y2="{bottom:g}"/>')
    parts.append(f'<path class="bar" d="M{low:.1f} {y - 4:g}v8M{low:.1f} {y:g}H{high:.1f}M{high:.1f} {y - 4:g}v8"/>')
    words = f"best {picture.where}, level {100 * picture.level:.3g} %"
    half = 3.1 * len(words)
    middle = min(max((low + high) / 2, left + half), right - half)
    parts.append(f'<text class="mark" x="{middle:.1f}" y="{y - 7:g}" text-anchor="middle">{escape(words)}</text>')
    return "".join(parts)


def _point(point: CurvePoint, picture: CurvePicture, frame: Frame, metric: str) -> str:
    x, bottom = frame.x.at(picture.axis.place(point.value)), frame.height - BOTTOM
    hint = [f"trial {point.trial}, {point.state}", f"{picture.parameter} {format_value(point.value)}"]
    if point.score is not None:
        hint.append(f"{metric} {format_value(point.score)} after {point.fraction:.0%} of the steps")
    told = f"<title>{escape(chr(10).join(hint))}</title>"
    size = 2.5 + 3.0 * math.sqrt(point.fraction)
    kind = escape(point.state).replace(" ", "-")
    if point.score is None:
        if point.state == "running":
            return _diamond(x, bottom - 6, size + 1, kind, told)
        return f'<path class="cross {kind}" d="M{x - 4:.1f} {bottom - 10:g}l8 8m0 -8l-8 8">{told}</path>'
    y = frame.y.at(point.score)
    if not frame.y.low <= point.score <= frame.y.high:  # its score is in the hint and in the table
        y, turn = (bottom - 6, 1) if point.score < frame.y.low else (TOP + _STRIP + 6, -1)
        told = told.replace("</title>", ", off the axis</title>")
        filled = "point" if point.state == "complete" else "open"
        return f'<path class="{filled} {kind}" d="M{x - 5:.1f} {y - 4 * turn:.1f}h10l-5 {8 * turn}z">{told}</path>'
    if point.trial == picture.best:
        above = y - 11 if y - 22 > TOP + _STRIP else y + 19
        mark = f'<text class="mark" x="{x:.1f}" y="{above:.1f}" text-anchor="middle">trial {point.trial}</text>'
        return f'<circle class="point best" cx="{x:.1f}" cy="{y:.1f}" r="{size + 1.5:.1f}">{told}</circle>{mark}'
    if point.state == "running":
        return _diamond(x, y, size + 1, kind, told)
    return f'<circle class="point {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}">{told}</circle>'


def _diamond(x: float, y: float, size: float, kind: str, told: str) -> str:
    s = f"{size:.1f}"
    return f'<path class="open {kind}" d="M{x:.1f} {y - size:.1f}l{s} {s}l-{s} {s}l-{s} -{s}z">{told}</path>'


def _epsilons(row: SpendingRow) -> tuple[float, float]:
    return row.epsilon or 0.0, row.whole_epsilon or 0.0


def _steps(row: SpendingRow) -> tuple[float, float]:
    return float(row.steps), float(row.whole_steps)
