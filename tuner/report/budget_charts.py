"""Interactive charts of what a search costs: guarantees, ε by trial, spending, charges and the price of search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tuner.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from tuner.privacy.ledger.amounts import amount
from tuner.report.charts import Chart, Reports, hover, key, line, look, make_chart, marks, widen
from tuner.report.wording import format_value, plural
from tuner.study.best import is_better

if TYPE_CHECKING:
    from tuner.plan.comparison import CandidateRow
    from tuner.report.spending import Spending
    from tuner.report.sweep_report import SweepReport

__all__ = ["charges_chart", "epsilon_chart", "guarantees_chart", "price_chart", "spending_chart"]

_TICKS = 8  # values of ε that are written on the axis; with more, plotly chooses
_APART = 0.012  # distance of two sweeps with the same ε, as a share of the axis


def guarantees_chart(reports: Reports) -> Chart | None:
    """Return the winners' scores against the guaranteed ε, with the line of those that no other sweep beats.

    Sweeps with the same ε are drawn next to each other. The reports must have one data set and one metric.
    """
    points = [
        (report.budget.epsilon_cap, report.winner.score, report.winner, report)
        for report in reports
        if report.budget is not None and report.winner is not None and report.winner.score is not None
    ]
    if len(points) < 2:
        return None
    sign = -1.0 if reports[0].mode == "max" else 1.0
    points.sort(key=lambda each: (each[0], sign * each[1]))  # of one ε, the best first
    front: list[tuple[float, float]] = []
    for epsilon, score, _, _ in points:
        if is_better(score, front[-1][1] if front else None, mode=reports[0].mode):
            front.append((epsilon, score))
    front.append((points[-1][0], front[-1][1]))  # the line ends at the largest ε
    many, beside = Counter(epsilon for epsilon, *_ in points), Counter[float]()
    apart = _APART * ((points[-1][0] - points[0][0]) or 10 * points[0][0])
    traces = [line([x for x, _ in front], [y for _, y in front], "best score up to this ε", GREY, shape="hv")]
    for epsilon, score, winner, report in points:
        symbol, colour, _ = look(reports, report, winner, star=False)
        x = epsilon + apart * (beside[epsilon] - (many[epsilon] - 1) / 2)
        beside[epsilon] += 1
        said = [report.sweep, f"guaranteed ε {amount(epsilon)} of the whole search"]
        traces.append(
            {
                "mode": "markers",
                "x": [x],
                "y": [score],
                "name": escape(report.sweep),
                "hoverinfo": "text",
                "error_y": {"array": [winner.error or 0.0], "thickness": 1.2, "width": 3},
                "hovertext": ["<br>".join([*map(escape, said), hover(winner, report)])],
                "marker": {"size": 11, "color": colour, "symbol": symbol},
            }
        )
    chart = make_chart("score against guaranteed ε", traces, x="guaranteed ε of the whole search", y=reports[0].metric)
    if len(many) <= _TICKS:
        chart["layout"]["xaxis"] |= {"tickvals": list(many), "ticktext": list(map(amount, many))}
    chart["note"] = "Each mark is the winner of a sweep. Vertical lines are standard errors."
    if max(many.values()) > 1:
        chart["note"] += " Sweeps with the same ε are drawn next to each other."
    return chart


def epsilon_chart(reports: Reports) -> Chart | None:
    """Return the scores by the ε that each trial's own steps would cost alone."""
    chart = marks(
        "score by ε of the trial alone", reports, "ε of its own steps (no guarantee)", lambda trial: trial.epsilon
    )
    known = [trial.epsilon for report in reports for trial in report.trials if trial.epsilon is not None]
    if chart is None or len(known) < 2:
        return None
    chart["note"] = (
        "The ε is what a trial would cost if it were the only one. The guarantee is the cap of the whole search."
    )
    apart = _APART * ((max(known) - min(known)) or max(known))
    sweeps = [report.sweep for report in reports]
    for trace in chart["data"] if len(reports) > 1 else ():
        aside = apart * (sweeps.index(trace["legendgroup"]) - (len(sweeps) - 1) / 2)
        trace["x"] = [None if x is None else x + aside for x in trace["x"]]
    if len(reports) > 1:
        chart["note"] += " Sweeps are drawn next to each other, so that trials with the same ε can be told apart."
    return chart


def spending_chart(spending: Spending, metric: str) -> Chart | None:
    """Return the best score against the spent ε (or steps). A second line assumes that no trial was stopped."""
    rows = [row for row in spending.rows if row.best is not None]
    if len(rows) < 2:
        return None
    best = [row.best for row in rows]
    spent = [row.epsilon if spending.with_epsilon else row.steps for row in rows]
    whole = [row.whole_epsilon if spending.with_epsilon else row.whole_steps for row in rows]
    traces = []
    for places, colour, dash, symbol, name in (
        (whole, BLACK, "dash", "square-open", "the same trials, if none had ended early"),
        (spent, GREEN, "solid", "circle", "this search"),
    ):
        said = [
            f"after trial {row.trial}: best {format_value(row.best)}<br>{'ε' if spending.with_epsilon else 'steps'} "
            f"{format_value(place)}"
            for row, place in zip(rows, places, strict=True)
        ]
        traces.append(
            {
                **line(places, best, name, colour, shape="hv", dash=dash),
                "mode": "lines+markers",
                "hovertext": said,
                "hoverinfo": "text",
                "marker": {"symbol": symbol, "size": 7},
            }
        )
    most = max(value for value in (*spent, *whole) if value is not None)
    x = "ε spent (an estimate, no guarantee)" if spending.with_epsilon else "steps"
    chart = make_chart(f"best {metric} by budget spent", traces, x=x, y=f"best {metric}")
    chart["layout"]["xaxis"]["rangemode"] = "tozero"
    widen(chart, [score for score in best if score is not None])
    if spending.with_epsilon and spending.cap is not None and spending.cap <= 1.5 * most:
        traces.append(key("the cap", "line-ns-open", {"color": RED, "dash": "dot", "width": 2}, mode="lines"))
        chart["layout"]["shapes"] = [
            {
                "type": "line",
                "x0": spending.cap,
                "x1": spending.cap,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": RED, "dash": "dot", "width": 2},
            },
        ]
        chart["layout"]["xaxis"] |= {"range": [0, 1.04 * max(most, spending.cap)]}
    return chart


def charges_chart(report: SweepReport) -> Chart | None:
    """Return the share of the search's budget that was leased after each trial and all earlier ones.

    The order of the trials takes the place of time, of which the ledger has the day alone.
    """
    charges, budget = report.charges, report.budget
    if budget is None or len(charges) < 2:
        return None
    numbers, shares = [charge.trial for charge in charges], [charge.share for charge in charges]
    said = [
        f"trial {charge.trial}: {plural(charge.steps, 'step')} charged<br>{plural(charge.total, 'step')} so far, "
        f"{charge.share:.1%} of the budget"
        for charge in charges
    ]
    ends = [numbers[0] - 0.5, numbers[-1] + 0.5]
    traces = [
        {
            "type": "bar",
            "x": numbers,
            "y": shares,
            "name": "charged to this trial and all earlier ones",
            "hovertext": said,
            "hoverinfo": "text",
            "marker": {"color": PURPLE},
            "textposition": "none",
        },
        line(ends, [1.0, 1.0], "the cap", RED, dash="dash"),
    ]
    if budget.reserved > 0:
        top = shares[-1] + budget.reserved
        traces.append(line(ends, [top, top], "charged and reserved", ORANGE, dash="dot"))
    chart = make_chart("budget over the trials", traces, x="trial", y="share of the budget")
    chart["layout"]["yaxis"] |= {"tickformat": ".0%", "range": [0, 1.06]}
    chart["layout"]["xaxis"] |= {"tickformat": "d", **({"dtick": 1} if len(numbers) <= 25 else {})}
    chart["note"] = (
        "The ledger stores days, not times, because durations could reveal something about records. So the axis shows "
        "the order of the trials instead of the time."
    )
    return chart


def price_chart(rows: Sequence[CandidateRow]) -> Chart | None:
    """Return the expected price of each way to search in points of accuracy; None if none is known."""
    known = [row for row in rows if row.price is not None][::-1]
    if not known:
        return None
    traces: list[dict[str, Any]] = []
    for taken, name, colour, pattern in ((True, "this search", GREEN, ""), (False, "other ways", BLUE, "/")):
        group = [row for row in known if row.taken is taken]
        if group:
            prices = [row.price for row in group if row.price is not None]
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "y": [escape(row.title) for row in group],
                    "x": [price.value for price in prices],
                    "error_x": {
                        "array": [price.error for price in prices],
                        "color": GREY,
                        "thickness": 1.2,
                        "width": 3,
                    },
                    "marker": {"color": colour, "pattern": {"shape": pattern, "bgcolor": "#ffffff", "fgcolor": colour}},
                    "hovertext": [f"{price.value:.2f} ± {price.error:.2f} points" for price in prices],
                    "hoverinfo": "text",
                    "textposition": "none",
                }
            )
    chart = make_chart("expected price of search", traces, x="points of accuracy", y="")
    chart["layout"]["yaxis"] |= {"type": "category", "categoryarray": [escape(row.title) for row in known]}
    chart["note"] = "The thin line at the end of a bar is one standard error to each side."
    chart["layout"]["height"] = 150 + 42 * len(known)
    return chart
