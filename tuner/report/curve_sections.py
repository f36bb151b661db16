"""Sections of the page of a unimodal search: its curve, and what was spent for the best score."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tuner.report.charts import state_class
from tuner.report.curve_chart import MARKS, curve_chart, spending_chart
from tuner.report.sweep_report import SweepReport, format_value

if TYPE_CHECKING:
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["curve_sections", "spending_section"]

_EVERY = 4  # of the curve's points stand in its table


def curve_sections(report: SweepReport) -> str:
    """Each curve in words, as a chart and as tables; empty where the search is not unimodal."""
    return "" if report.sealed else "".join(_curve(picture, report) for picture in report.curves)


def _curve(picture: CurvePicture, report: SweepReport) -> str:
    chart = curve_chart(picture, report.metric)
    if not chart:
        return ""
    said = "".join(_said(text, bad=text == picture.rejected) for text in picture.sentences)
    there = [state for state in MARKS if any(point.state == state for point in picture.points)]
    keys = [f'<span class="{state_class(state)}">{MARKS[state]} {state}</span>' for state in there]
    if picture.values:
        keys.append(
            '<span class="band-key">— curve</span><span class="band-key">▒ 10 to 90 % of possible curves</span>'
        )
    if "off the axis" in chart:
        keys.append("<span>▽ off the axis: see the tables</span>")
    key = f'<p class="key soft">{"".join(keys)}<span>larger: more steps taken</span></p>'
    points = _table(
        ("trial", picture.parameter, report.metric, "of its steps", "state"),
        [
            (
                str(point.trial),
                format_value(point.value),
                format_value(point.score),
                f"{point.fraction:.0%}" if point.fraction else "–",
                point.state,
            )
            for point in picture.points
        ],
    )
    curve = _table(
        (picture.parameter, "curve", "10 %", "90 %"),
        [
            tuple(format_value(value) for value in row)
            for row in list(zip(picture.values, picture.mean, picture.band_low, picture.band_high, strict=True))[
                ::_EVERY
            ]
        ],
    )
    tables = f"<details><summary>The same as tables</summary>{points}{curve if picture.values else ''}</details>"
    title = f"Curve of {escape(picture.parameter)}"
    return f"<section><h2>{title}</h2>{said}{key}<div class=wide>{chart}</div>{tables}</section>"


def spending_section(report: SweepReport) -> str:
    """What was spent against the best score, and what the same trials would have cost if none had been stopped."""
    spending = report.spending
    if spending is None or report.sealed:
        return ""
    what = "ε" if spending.with_epsilon else "Steps"
    said = "".join(map(_said, spending.sentences))
    key = (
        '<p class="key soft"><span class=good>— this search</span>'
        "<span>╌╌ the same trials, each run to its end</span></p>"
    )
    epsilon = spending.with_epsilon
    heads = ("after trial", f"best {report.metric}", "steps", "steps, run whole", *(("ε", "ε, run whole") * epsilon))
    rows = [
        (
            str(row.trial),
            format_value(row.best),
            format_value(row.steps),
            format_value(row.whole_steps),
            *((format_value(row.epsilon), format_value(row.whole_epsilon)) if epsilon else ()),
        )
        for row in spending.rows
    ]
    chart = spending_chart(spending, report.metric)
    drawn = f"{key}<div class=wide>{chart}</div>" if chart else ""
    title = f"{what} spent against the best {escape(report.metric)}"
    return f"<section><h2>{title}</h2>{said}{drawn}{_table(heads, rows)}</section>"


def _said(text: str, *, bad: bool = False) -> str:
    return f"<p{' class=bad' if bad else ''}>{escape(text).replace(' %', '&nbsp;%')}</p>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name).replace('_', '_<wbr>')}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class=wide><table class="num plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
