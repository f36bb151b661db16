"""Interactive charts of the searched parameters: importance, slices, pairs and parallel coordinates; see `charts`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from search_spaces.domains import Categorical, Integer, LogUniform
from tuner.figures import BLUE, GREY
from tuner.report.charts import Chart, Place, Reports, hover, keys, look, make_chart, marks, metric_of, series_of
from tuner.report.wording import format_value

if TYPE_CHECKING:
    from tuner.report.sweep_report import SweepReport

__all__ = ["importance_chart", "pair_chart", "parallel_chart", "parameter_chart"]

_DECADES = 120.0
_LEAST = 6  # complete trials; with fewer, a surface says nothing
_GRID = 30  # points along each axis of a surface


def parameter_chart(reports: Reports, name: str) -> Chart | None:
    """Return the scores against one parameter, on its sampling scale; None if there are fewer than two scores."""
    shown = [
        trial for report in reports for trial in report.trials if trial.score is not None and name in trial.parameters
    ]
    if len(shown) < 2:
        return None
    place = _placing(reports, name)
    chart = marks(name, reports, name, lambda trial: place(trial.parameters.get(name)), labelled=len(reports) == 1)
    if chart is not None:
        chart["layout"]["xaxis"] |= _axis_of(reports, name, [trial.parameters[name] for trial in shown])
    return chart


def pair_chart(reports: Reports, first: str, second: str) -> Chart | None:
    """Return the complete trials over two parameters, coloured by score, and the others hollow.

    For one sweep there is a surface too: linear interpolation between complete trials, and none outside them.
    """
    placed = [
        (report, trial, x, y)
        for report in reports
        for trial in report.trials
        if (x := _placing(reports, first)(trial.parameters.get(first))) is not None
        and (y := _placing(reports, second)(trial.parameters.get(second))) is not None
    ]
    complete = [
        each for each in placed if each[1].state == "complete" and each[1].score is not None and not each[1].committed
    ]
    if len(complete) < 3:
        return None
    axes = [_axis_of(reports, name, [trial.parameters[name] for _, trial, _, _ in placed]) for name in (first, second)]
    logs = [axis.get("type") == "log" for axis in axes]
    heights = [trial.score for _, trial, _, _ in complete if trial.score is not None]
    colours = {"colorscale": "Viridis", "cmin": min(heights), "cmax": max(heights)}
    traces: list[dict[str, Any]] = []
    if len(reports) == 1 and len(complete) >= _LEAST and all(axis.get("type") != "category" for axis in axes):
        traces += _surface([(x, y, trial.score) for _, trial, x, y in complete], logs)
    others = [each for each in placed if each not in complete]
    for name, group, coloured in (("not complete", others, False), ("complete", complete, True)):
        traces.append(
            {
                "mode": "markers",
                "name": name,
                "x": [x for *_, x, _ in group],
                "y": [y for *_, y in group],
                "text": [hover(trial, report) for report, trial, _, _ in group],
                "hoverinfo": "text",
                "showlegend": False,
                "marker": {
                    "symbol": [
                        "star" if trial is report.winner else look(reports, report, trial)[0]
                        for report, trial, _, _ in group
                    ],
                    "size": [17 if trial is report.winner else 10 for report, trial, _, _ in group],
                    **(
                        {
                            "color": heights,
                            **colours,
                            "showscale": True,
                            "line": {"width": 1.2, "color": "#ffffff"},
                            "colorbar": {
                                "title": {"text": escape(metric_of(reports)), "side": "right"},
                                "thickness": 14,
                            },
                        }
                        if coloured
                        else {"color": GREY}
                    ),
                },
            }
        )
    if len(reports) > 1:
        groups = [{"legendgroup": report.sweep} for report in reports if any(each is report for each, *_ in placed)]
        traces += [
            {**each, "marker": {**each["marker"], "color": GREY}} for each in keys(reports, groups, mode="markers")
        ]
    chart = make_chart(f"{first} and {second}", traces, x=first, y=second)
    chart["layout"]["xaxis"] |= axes[0]
    chart["layout"]["yaxis"] |= axes[1]
    chart["note"] = (
        "Only complete trials of the search have a colour, because the scores of stopped trials are from earlier steps"
        + ", and the committed run has other noise" * any(trial.committed for _, trial, _, _ in placed)
        + ". "
        + "The surface is interpolated between complete trials, so it shows the noise of single scores."
        * any("z" in trace for trace in traces)
    )
    return chart


def _surface(points: Sequence[tuple[Any, Any, float | None]], logs: Sequence[bool]) -> list[dict[str, Any]]:
    """Return a contour trace of the linear interpolation, on the sampling scale; none if all points are on a line."""
    import numpy as np
    from scipy.interpolate import LinearNDInterpolator
    from scipy.spatial import QhullError

    places = np.array([[math.log10(v) if log else v for v, log in zip(each[:2], logs, strict=True)] for each in points])
    low, wide = places.min(axis=0), np.ptp(places, axis=0)
    if not (wide > 0).all():
        return []
    try:
        between = LinearNDInterpolator((places - low) / wide, [score for *_, score in points])
    except QhullError:
        return []
    scores = [score for *_, score in points if score is not None]
    axis = np.linspace(0.0, 1.0, _GRID)
    heights = between(*np.meshgrid(axis, axis))
    x, y = ((low[i] + wide[i] * axis).tolist() for i in (0, 1))
    return [
        {
            "type": "contour",
            "x": [10.0**v for v in x] if logs[0] else x,
            "y": [10.0**v for v in y] if logs[1] else y,
            "z": [[float(f"{v:.4g}") if math.isfinite(v) else None for v in row] for row in heights.tolist()],
            "colorscale": "Viridis",
            "zmin": min(scores),
            "zmax": max(scores),
            "showscale": False,
            "contours": {"coloring": "fill", "showlabels": True},
            "line": {"width": 0.6},
            "hoverinfo": "skip",
            "opacity": 0.75,
        }
    ]


def parallel_chart(reports: Reports, names: Sequence[str]) -> Chart | None:
    """Return a line for each trial through its parameters and its score, each from the lowest to the highest value."""
    rows = [(report, trial) for report in reports for trial in report.trials if trial.score is not None]
    if len(names) < 2 or len(rows) < 2:
        return None
    rows.sort(key=lambda row: row[1] is row[0].winner)
    columns, axes = [], []
    for name in names:
        values = [trial.parameters.get(name) for _, trial in rows]
        axis = _axis_of(reports, name, values)
        places = list(map(_placing(reports, name), values))
        column, low, high = _to_unit(places, axis.get("categoryarray", []), log=axis["type"] == "log")
        columns.append(column)
        axes.append(f"{escape(name)}<br>{low} – {high}")
    column, low, high = _to_unit([trial.score for _, trial in rows], [], log=False)
    columns.append(column)
    axes.append(f"{escape(metric_of(reports))}<br>{low} – {high}")
    traces: list[dict[str, Any]] = []
    for at, (report, trial) in enumerate(rows):
        symbol, colour, dash = look(reports, report, trial)
        traces.append(
            {
                "mode": "lines+markers",
                "x": list(range(len(axes))),
                "y": [column[at] for column in columns],
                "text": hover(trial, report),
                "hoverinfo": "text",
                "showlegend": False,
                "line": {"color": colour, "dash": dash, "width": 3.5 if trial is report.winner else 1.2},
                "marker": {"symbol": symbol, "color": colour, "size": 5},
                "legendgroup": series_of(reports, report, trial),
            }
        )
    traces += keys(reports, traces)
    chart = make_chart("parallel coordinates", traces, x="", y="")
    chart["layout"]["xaxis"] |= {
        "tickvals": list(range(len(axes))),
        "ticktext": axes,
        "range": [-0.15, len(axes) - 0.85],
        "ticklabeloverflow": "allow",
    }
    chart["layout"]["margin"]["r"] = 60
    chart["layout"]["yaxis"] |= {"tickvals": [0, 1], "ticktext": ["low", "high"]}
    chart["note"] = "Below each axis are its lowest and its highest tried value."
    return chart


def importance_chart(report: SweepReport) -> Chart | None:
    """Return the importance of each parameter, or None if it is not known."""
    if not report.importances:
        return None
    names = sorted(report.importances, key=lambda name: report.importances[name])
    shares = [report.importances[name] for name in names]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": shares,
        "y": list(map(escape, names)),
        "marker": {"color": BLUE},
        "text": [f"{share:.0%}" for share in shares],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "x+y",
    }
    chart = make_chart("importance of the parameters", [trace], x="share of the variance", y="")
    chart["layout"]["xaxis"] |= {"range": [0, min(1.0, max(shares) * 1.15)], "tickformat": ".0%"}
    chart["layout"]["yaxis"] |= {"type": "category"}
    chart["note"] = (
        "Computed by fANOVA (Hutter et al. 2014) from complete trials. With few trials, the order is uncertain."
    )
    return chart


def _placing(reports: Reports, name: str) -> Callable[[object], Place]:
    """Return the function from a value of a parameter to its place: a number, a word, or None if there is none."""
    words = any(isinstance(report.domains.get(name), Categorical) for report in reports)

    def place(value: object) -> Place:
        if words or isinstance(value, bool) or not isinstance(value, (int, float)):
            return None if value is None else escape(format_value(value, 8))
        return float(value) if math.isfinite(value) else None

    return place


def _axis_of(reports: Reports, name: str, values: Sequence[object]) -> dict[str, Any]:
    places = [_placing(reports, name)(value) for value in values]
    if any(isinstance(place, str) for place in places):
        domains = [report.domains.get(name) for report in reports]
        options = [option for domain in domains if isinstance(domain, Categorical) for option in domain.options]
        ordered = dict.fromkeys([*(escape(format_value(option, 8)) for option in options), *sorted(map(str, places))])
        return {"type": "category", "categoryarray": list(ordered)}
    if not _is_log(reports, name, values):
        return {"type": "linear"}
    known = [value for value in values if isinstance(value, (int, float))]
    # Then 2 and 5 between the powers of ten are labelled too. Within one power, plotly's own labels are closer.
    few = 10 <= max(known) / min(known) < _DECADES
    return {"type": "log", "tickformat": "~g", **({"dtick": "D2"} if few else {})}


def _is_log(reports: Reports, name: str, values: Sequence[object]) -> bool:
    """Return whether a parameter was drawn on a logarithmic scale, and has no value that such an axis cannot show."""
    domains = [report.domains[name] for report in reports if name in report.domains]
    drawn = bool(domains) and all(isinstance(d, LogUniform) or (isinstance(d, Integer) and d.log) for d in domains)
    return drawn and all(value > 0 for value in values if isinstance(value, (int, float)))


def _to_unit(column: Sequence[Place], options: Sequence[str], *, log: bool) -> tuple[list[float | None], str, str]:
    """Return values between 0 and 1, the lowest and the highest as text: of numbers by size, of words by order."""
    words = [option for option in options if option in column]
    numbers = [float(words.index(value)) if isinstance(value, str) else value for value in column]
    known = sorted(value for value in numbers if value is not None)
    if not known:
        return numbers, "–", "–"
    ends = (words[0], words[-1]) if words else (format_value(known[0], 3), format_value(known[-1], 3))
    scaled = [None if value is None else math.log(value) if log else value for value in numbers]
    scale = [value for value in scaled if value is not None]
    low, wide = min(scale), max(scale) - min(scale)
    return [None if value is None else (value - low) / wide if wide else 0.5 for value in scaled], *ends
