"""The estimated curve of a unimodal search, as a static picture and as an interactive chart."""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import TYPE_CHECKING, Any

from tuner.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, WIDE, new_figure, styled, svg_text
from tuner.report.charts import Chart, line, make_chart
from tuner.report.wording import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["OFF_AXIS", "axis_ticks", "curve_chart", "curve_plot", "curve_svg"]

OFF_AXIS = "score outside the axis: see the table"
_NEVER = "never started"
_HOLLOW = {"markerfacecolor": "white", "markeredgewidth": 1.5}
_MARKS: dict[str, dict[str, Any]] = {
    "complete": {"color": BLUE, "marker": "o"},
    "pruned": {"color": ORANGE, "marker": "o", **_HOLLOW},
    "running": {"color": GREY, "marker": "D", **_HOLLOW},
    _NEVER: {"color": GREY, "marker": "x", "markeredgewidth": 1.8},
    "best": {"color": GREEN, "marker": "*", "markersize": 14},
}
"""Marker of each state of a trial. The states differ in shape as well as in colour."""
_SYMBOLS = {
    "complete": "circle",
    "pruned": "circle-open",
    "running": "diamond-open",
    _NEVER: "x-thin-open",
    "best": "star",
}
"""The same for the interactive chart."""
_APART = 0.055  # least distance between two labels, as a share of the axis
_BEYOND = 0.35  # how far the band and stopped trials may extend the axis, as a share of the range of whole trials
_LEAST = 6.0  # least range of the axis, in tolerances; a smaller one would show only noise
_COLLAPSED = 25.0  # scores this many tolerances below the best may be off the axis
_LETTERS = 110  # characters in a line under a chart


@styled()
def curve_chart(picture: CurvePicture, metric: str, *, title: str = "") -> Figure | None:
    """Draw the trials, the curve with its band, and the excluded parameter values. Return None if there is no trial.

    With a title, the findings are printed below the chart.
    """
    if not picture.points:
        return None
    figure = new_figure(WIDE[0], 4.0)
    axes = figure.add_subplot(xlabel=picture.parameter, ylabel=metric)
    axes.set_xlim(-0.03, 1.03)  # places on the axis on which the curve is modelled
    axes.set_ylim(*_score_range(picture))
    ticks = axis_ticks(picture)
    axes.set_xticks([picture.axis.place(value) for value in ticks], [f"{value:.6g}" for value in ticks])
    if picture.values:
        places = [picture.axis.place(value) for value in picture.values]
        band = axes.fill_between(places, picture.band_low, picture.band_high, color=PURPLE, alpha=0.25, linewidth=0)
        band.set_label("10 to 90 % of possible curves")
        axes.plot(places, picture.mean, color=PURPLE, linewidth=2, label="curve")
    _draw_excluded(axes, picture)
    _draw_points(axes, picture)
    figure.legend(loc="outside upper left", ncols=4, markerscale=0.8)
    if title:
        lines = [line for text in picture.sentences for line in textwrap.wrap(text, _LETTERS)]
        axes.set_title(title)
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize="small")
    return figure


def curve_svg(picture: CurvePicture, metric: str, title: str) -> str:
    """Return the chart and its findings as the text of an SVG file, or an empty text if there is no trial."""
    figure = curve_chart(picture, metric, title=title)
    return "" if figure is None else svg_text(figure, title, " ".join(picture.sentences))


def curve_plot(picture: CurvePicture, metric: str) -> Chart | None:
    """Return the interactive chart with the same trials, curve, band and exclusions; None if there is no trial."""
    if not picture.points:
        return None
    place = picture.axis.place
    traces: list[dict[str, Any]] = []
    if picture.values:
        x = [place(value) for value in picture.values]
        low, high = list(picture.band_low), list(picture.band_high)
        said = [
            f"{escape(picture.parameter)} {format_value(value)}: {format_value(mean)}<br>80 % of possible curves: "
            f"{format_value(bottom)} to {format_value(top)}"
            for value, mean, bottom, top in zip(picture.values, picture.mean, low, high, strict=True)
        ]
        edge = line(x, low, "", PURPLE) | {"showlegend": False, "line": {"width": 0}}
        band = line(x, high, "10 to 90 % of possible curves", PURPLE) | {"line": {"width": 0}, "fill": "tonexty"}
        curve = line(x, list(picture.mean), "curve", PURPLE) | {"hovertext": said, "hoverinfo": "text"}
        traces += [edge, band | {"fillcolor": f"{PURPLE}40"}, curve]
    bottom, top = _score_range(picture)
    states = dict.fromkeys("best" if point.trial == picture.best else point.state for point in picture.points)
    for state in states:
        group = [p for p in picture.points if ("best" if p.trial == picture.best else p.state) == state]
        heights = [bottom if p.score is None else min(max(p.score, bottom), top) for p in group]
        traces.append(
            {
                "mode": "markers",
                "name": state,
                "cliponaxis": False,
                "x": [place(p.value) for p in group],
                "y": heights,
                "hoverinfo": "text",
                "hovertext": [
                    f"trial {p.trial}, {p.state}<br>{escape(picture.parameter)} {format_value(p.value)}<br>"
                    f"{escape(metric)} {format_value(p.score)} after {p.fraction:.0%} of its steps"
                    for p in group
                ],
                "marker": {
                    "symbol": [
                        _SYMBOLS.get(state, "square-open")
                        if p.score in (None, height)
                        else "triangle-down"
                        if height == bottom
                        else "triangle-up"
                        for p, height in zip(group, heights, strict=True)
                    ],
                    "color": _MARKS.get(state, _MARKS["running"])["color"],
                    "line": {"width": 2},
                    "size": [15 if state == "best" else 6 + 6 * math.sqrt(p.fraction) for p in group],
                },
            }
        )
    chart = make_chart("trials and the estimated curve", traces, x=picture.parameter, y=metric)
    ticks = axis_ticks(picture)
    chart["layout"]["xaxis"] |= {
        "range": [-0.03, 1.03],
        "tickvals": [place(value) for value in ticks],
        "ticktext": [f"{value:.6g}" for value in ticks],
    }
    chart["layout"]["yaxis"]["range"] = [bottom, top]
    chart["layout"]["shapes"] = [
        {
            "type": "rect",
            "x0": left,
            "x1": right,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "fillcolor": f"{GREY}26",
            "line": {"width": 0},
            "layer": "below",
        }
        for left, right in _excluded(picture)
    ]
    chart["note"] = (
        "The more steps a trial took, the larger its mark. A triangle at the edge is a score outside the axis."
    )
    if chart["layout"]["shapes"]:
        chart["note"] += f" The shaded values are excluded: the best value is {picture.where}."
    return chart


def axis_ticks(picture: CurvePicture) -> list[float]:
    """Return round values that are not too close to each other. 0 and powers of ten are preferred."""
    from matplotlib.ticker import MaxNLocator

    axis, low, high = picture.axis, picture.low, picture.high
    wanted = [0.0] if low <= 0 <= high else []
    if axis.warp != "linear":
        top = math.floor(math.log10(high))
        decades = range(max(math.floor(math.log10(low)), top - 8) if low > 0 else top - 3, top + 1)
        wanted += [factor * 10.0**decade for factor in (1, 3, 2, 5) for decade in reversed(decades)]
    taken: list[float] = []
    for value in wanted:
        if low <= value <= high and all(abs(axis.place(value) - axis.place(other)) >= _APART for other in taken):
            taken.append(value)
    if len(taken) < 3:  # a range within one decade, or a linear axis
        taken = [float(tick) for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high]
    return sorted(taken)


def _score_range(picture: CurvePicture) -> tuple[float, float]:
    """Return the range of the score axis. Scores of incomplete trials and very bad scores may lie outside it."""
    sign = 1.0 if picture.maximize else -1.0
    every = [sign * point.score for point in picture.points if point.score is not None]
    whole = [sign * point.score for point in picture.points if point.score is not None and point.state == "complete"]
    known = [*(whole or every), *(sign * score for score in picture.mean)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if whole:
        middle = sorted(whole)[len(whole) // 2]
        low = max(low, min(high - _COLLAPSED * picture.tolerance, middle - (high - middle)))
    more = max(_LEAST * picture.tolerance - (high - low), 0.0) / 2
    low, high = low - more, high + more
    stretch = _BEYOND * (high - low)
    others = [*every, *(sign * score for score in (*picture.band_low, *picture.band_high))]
    worst, best = min(others, default=low), max(others, default=high)
    low, high = min(low, max(worst, low - stretch)), max(high, min(best, high + stretch))
    pad = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    low, high = low - pad, high + 2 * pad  # room for the name of the best trial
    return (low, high) if picture.maximize else (-high, -low)


def _draw_excluded(axes: Axes, picture: CurvePicture) -> None:
    """Shade the parameter values that the pruner has excluded."""
    label = f"excluded: the best value is {picture.where} (significance level {100 * picture.level:.3g} %)"
    for left, right in _excluded(picture):
        axes.axvspan(left, right, facecolor=GREY, alpha=0.15, linewidth=0, label=label)
        label = ""


def _excluded(picture: CurvePicture) -> list[tuple[float, float]]:
    """Return the parts of the axis that the pruner has excluded, from and to; none if the curve is not unimodal."""
    if not picture.where:
        return []
    below = [] if picture.above is None else [(-0.03, picture.axis.place(picture.above))]
    return below + ([] if picture.below is None else [(picture.axis.place(picture.below), 1.03)])


def _draw_points(axes: Axes, picture: CurvePicture) -> None:
    """Draw one mark per trial, larger for more steps. A missing or off-axis score is marked at the edge."""
    low, high = axes.get_ylim()
    labels: set[str] = set()
    for point in sorted(picture.points, key=lambda point: point.trial == picture.best):  # the best last, so on top
        height = low if point.score is None else min(max(point.score, low), high)
        place = picture.axis.place(point.value)
        label = point.state
        style = {"markersize": 5.0 + 4.0 * math.sqrt(point.fraction), **_MARKS.get(point.state, _MARKS["running"])}
        if point.score is not None and height != point.score:
            label = OFF_AXIS
            style["marker"] = "v" if height == low else "^"
        elif point.trial == picture.best:
            label = "best"
            style = _MARKS["best"]
            name = f"trial {point.trial}"
            axes.annotate(name, (place, height), xytext=(0, 9), textcoords="offset points", ha="center")
        axes.plot([place], [height], linestyle="none", clip_on=False, label="" if label in labels else label, **style)
        labels.add(label)
