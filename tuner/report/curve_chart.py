"""Charts of a unimodal search: the estimated curve, and the best score as a function of the spent budget."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from tuner.figures import BLACK, GREEN, GREY, PURPLE, RED, new_figure, styled, svg_text
from tuner.report.charts import STATE_MARKS, WIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tuner.report.spending import Spending
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["OFF_AXIS", "axis_ticks", "curve_chart", "curve_svg", "spending_chart"]

OFF_AXIS = "score off the axis: see the table"
_MARKS = {**STATE_MARKS, "never started": {"color": GREY, "marker": "x", "markeredgewidth": 1.8}}
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


@styled()
def spending_chart(spending: Spending, metric: str) -> Figure | None:
    """Draw the best score against the spent ε (or steps). A second line assumes that no trial was stopped."""
    rows = [row for row in spending.rows if row.best is not None]
    if not rows:
        return None
    figure = new_figure(*WIDE)
    axes = figure.add_subplot(ylabel=f"best {metric}")
    axes.set_xlabel("ε spent so far (an estimate, not a guarantee)" if spending.with_epsilon else "steps")
    scores = [row.best or 0.0 for row in rows]
    spent = [row.epsilon or 0.0 if spending.with_epsilon else row.steps for row in rows]
    whole = [row.whole_epsilon or 0.0 if spending.with_epsilon else row.whole_steps for row in rows]
    for places, colour, dash, label in (
        (whole, BLACK, "--", "the same trials, if none had ended early"),
        (spent, GREEN, "-", "this search"),
    ):
        axes.step(places, scores, where="post", marker="o", markersize=4, color=colour, linestyle=dash, label=label)
    most = max(*spent, *whole)
    if spending.with_epsilon and spending.cap is not None and spending.cap <= 1.5 * most:
        axes.axvline(spending.cap, color=RED, linestyle=":", linewidth=2, label="the cap")
    axes.set_xlim(left=0.0)
    figure.legend(loc="outside upper left", ncols=3)
    return figure


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
    if not picture.where:
        return
    label = f"excluded: the best value is {picture.where} (level {100 * picture.level:.3g} %)"
    for begin, end in ((None, picture.above), (picture.below, None)):
        if begin is None and end is None:
            continue
        left = -0.03 if begin is None else picture.axis.place(begin)
        right = 1.03 if end is None else picture.axis.place(end)
        axes.axvspan(left, right, facecolor=GREY, alpha=0.15, linewidth=0, label=label)
        label = ""


def _draw_points(axes: Axes, picture: CurvePicture) -> None:
    """Draw one mark per trial, larger for more steps. A missing or off-axis score is marked at the edge."""
    low, high = axes.get_ylim()
    labels: set[str] = set()
    for point in sorted(picture.points, key=lambda point: point.trial == picture.best):  # the best last, so on top
        height = low if point.score is None else min(max(point.score, low), high)
        place = picture.axis.place(point.value)
        label = point.state
        style = {"markersize": 5.0 + 4.0 * math.sqrt(point.fraction), **_MARKS[point.state]}
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
