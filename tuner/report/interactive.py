"""Interactive charts of one sweep or several, as data for the browser's plotly.

Each chart is a name, a list of plotly traces and a layout: https://plotly.com/javascript/reference. Nothing is drawn
here, and plotly's Python code is not used: its package brings the script that draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any

from search_spaces.domains import Integer, LogUniform
from tuner.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from tuner.report.wording import format_value, trial_name
from tuner.study.best import is_better

if TYPE_CHECKING:
    from tuner.report.sweep_report import SweepReport
    from tuner.report.trial_row import TrialRow

__all__ = ["charts", "plotly_script"]

Chart = dict[str, Any]

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
_SYMBOLS = {"complete": "circle", "pruned": "circle-open", "failed": "x", "lost": "x", "paused": "diamond-open"}
_PAIRED = 4  # parameters of which every pair has a chart


def plotly_script() -> str:
    """Return the script that draws the charts, without a server or a download."""
    return files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")


def charts(reports: Sequence[SweepReport]) -> list[Chart]:
    """Return all charts for which the sweeps have numbers. A sealed sweep has its winner alone."""
    named = list(dict.fromkeys(name for report in reports for name in report.parameters))
    drawn = [
        _guarantees(reports),
        _scores(reports),
        _curves(reports),
        _by_epsilon(reports),
        *(_parameter(reports, name) for name in named),
        *(_pair(reports, *names) for names in combinations(named[:_PAIRED], 2)),
        _parallel(reports, named),
        *(_importance(report) for report in reports),
    ]
    return [chart for chart in drawn if chart is not None]


def _guarantees(reports: Sequence[SweepReport]) -> Chart | None:
    """Return the winner's score against the guaranteed ε, with the line of those that no other sweep beats."""
    known = [(report, report.winner) for report in reports if report.budget is not None and report.winner is not None]
    points = [
        (report.budget.epsilon_cap, winner.score, winner, report)
        for report, winner in known
        if report.budget is not None and winner.score is not None
    ]
    if len(points) < 2 or len({report.metric for report in reports}) > 1:
        return None
    points.sort(key=lambda each: each[0])
    front: list[tuple[float, float]] = []
    for epsilon, score, _, _ in points:
        if is_better(score, front[-1][1] if front else None, mode=reports[0].mode):
            front.append((epsilon, score))
    return _chart(
        "score against guaranteed ε",
        [
            {
                "mode": "lines", "x": [x for x, _ in front], "y": [y for _, y in front], "line": {"shape": "hv"},
                "name": "no other sweep is better at this ε", "marker": {"color": GREY}, "hoverinfo": "skip",
            },
            *(
                {
                    "mode": "markers", "x": [epsilon], "y": [score], "name": report.sweep,
                    "error_y": {"array": [winner.error or 0.0]}, "text": [_hover(winner)],
                    "marker": {"size": 11, "color": _colour(reports, report)}, "hoverinfo": "text+x+y",
                }
                for epsilon, score, winner, report in points
            ),
        ],
        x="guaranteed ε of the whole search", y=reports[0].metric,
    )  # fmt: skip


def _scores(reports: Sequence[SweepReport]) -> Chart | None:
    return _marks("score by trial", reports, "trial", lambda trial: trial.number)


def _by_epsilon(reports: Sequence[SweepReport]) -> Chart | None:
    about = "ε of the trial's own steps (no guarantee)"
    return _marks("score by ε of the trial alone", reports, about, lambda trial: trial.epsilon)


def _parameter(reports: Sequence[SweepReport], name: str) -> Chart | None:
    def place(trial: TrialRow) -> float | str | None:
        return _axis_value(trial.parameters.get(name))

    return _marks(f"score by {name}", reports, name, place, log=_is_log(reports, name))


def _marks(
    title: str,
    reports: Sequence[SweepReport],
    x: str,
    place: Callable[[TrialRow], float | str | None],
    *,
    log: bool = False,
) -> Chart | None:
    """Return the last score of each trial at the given place. Symbols tell states apart, colours sweeps."""
    traces = []
    for report in reports:
        shown = [trial for trial in report.trials if trial.score is not None and place(trial) is not None]
        if shown:
            traces.append(
                {
                    "mode": "markers", "name": report.sweep, "x": [place(trial) for trial in shown],
                    "y": [trial.score for trial in shown],
                    "error_y": {"array": [trial.error or 0.0 for trial in shown]},
                    "text": [_hover(trial) for trial in shown], "hoverinfo": "text",
                    "marker": {
                        "color": _colour(reports, report), "line": {"width": 2},
                        "symbol": ["star" if trial is report.winner else _symbol(trial) for trial in shown],
                        "size": [15 if trial is report.winner else 9 for trial in shown],
                    },
                }
            )  # fmt: skip
    return _chart(title, traces, x=x, y=_metric(reports), log=log) if traces else None


def _curves(reports: Sequence[SweepReport]) -> Chart | None:
    """Return a line for each trial, also of those that stopped at their first report."""
    traces: list[dict[str, Any]] = []
    for report in reports:
        shown = [trial for trial in report.trials if trial.curve]
        traces += [
            {
                "mode": "lines+markers", "name": report.sweep,
                "x": [step for step, _ in trial.curve], "y": [score for _, score in trial.curve],
                "text": [_hover(trial)] * len(trial.curve), "hoverinfo": "text+x+y", "showlegend": False,
                "line": {
                    "color": _colour(reports, report), "width": 3 if trial is report.winner else 1,
                    "dash": "solid" if trial.state == "complete" else "dot",
                },
            }
            for trial in shown
        ]  # fmt: skip
    return _chart("learning curves", traces, x="step", y=_metric(reports)) if traces else None


def _pair(reports: Sequence[SweepReport], first: str, second: str) -> Chart | None:
    """Return the scores over two parameters: a colour for each trial."""
    shown = [
        (trial, x, y)
        for report in reports
        for trial in report.trials
        if trial.score is not None
        and (x := _axis_value(trial.parameters.get(first))) is not None
        and (y := _axis_value(trial.parameters.get(second))) is not None
    ]
    if len(shown) < 3:
        return None
    trace = {
        "mode": "markers", "x": [x for _, x, _ in shown], "y": [y for _, _, y in shown],
        "text": [_hover(trial) for trial, _, _ in shown], "hoverinfo": "text",
        "marker": {
            "size": 13, "color": [trial.score for trial, _, _ in shown], "colorscale": "Viridis", "showscale": True,
            "colorbar": {"title": {"text": _metric(reports)}}, "symbol": [_symbol(trial) for trial, _, _ in shown],
        },
    }  # fmt: skip
    chart = _chart(f"{first} and {second}", [trace], x=first, y=second, log=_is_log(reports, first))
    chart["layout"]["yaxis"]["type"] = "log" if _is_log(reports, second) else "-"
    return chart


def _parallel(reports: Sequence[SweepReport], names: Sequence[str]) -> Chart | None:
    """Return a line for each trial through its parameters and its score, each from 0 to 1 over what was tried."""
    if len(names) < 2:
        return None
    axes = [*names, _metric(reports)]
    rows = [
        (report, trial, [*(_axis_value(trial.parameters.get(name)) for name in names), trial.score])
        for report in reports
        for trial in report.trials
        if trial.score is not None
    ]
    if not rows:
        return None
    logs = [*(_is_log(reports, name) for name in names), False]
    tried = zip(*(values for _, _, values in rows), strict=True)
    columns = [_to_unit(column, log=log) for column, log in zip(tried, logs, strict=True)]
    traces = [
        {
            "mode": "lines", "x": axes, "y": [column[place] for column in columns], "text": [_hover(trial)] * len(axes),
            "hoverinfo": "text", "showlegend": False,
            "line": {"color": _colour(reports, report), "width": 3 if trial is report.winner else 1},
        }
        for place, (report, trial, _) in enumerate(rows)
    ]  # fmt: skip
    return _chart("parallel coordinates", traces, x="", y="lowest to highest of what was tried")


def _importance(report: SweepReport) -> Chart | None:
    if not report.importances:
        return None
    names = sorted(report.importances, key=lambda name: report.importances[name])
    trace = {"type": "bar", "orientation": "h", "x": [report.importances[name] for name in names], "y": names}
    return _chart(
        f"importance of parameters, {report.sweep}", [trace], x="share of the scores' variance (fANOVA)", y=""
    )


def _chart(title: str, traces: list[dict[str, Any]], *, x: str, y: str, log: bool = False) -> Chart:
    layout = {
        "template": "none", "margin": {"t": 20, "r": 20}, "hovermode": "closest",
        "legend": {"orientation": "h", "y": -0.2},
        "xaxis": {"title": {"text": x}, "type": "log" if log else "-", "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": y}, "automargin": True, "zeroline": False},
    }  # fmt: skip
    return {"name": title, "data": traces, "layout": layout}


def _hover(trial: TrialRow) -> str:
    """Return the words of a trial: its state and step, its score with its error, and its parameters."""
    score = format_value(trial.score) + (f" ± {format_value(trial.error)}" if trial.error else "")
    lines = [f"{trial_name(trial.number, committed=trial.committed)}, {trial.state}, {score} at step {trial.step}"]
    lines += [f"{name} {format_value(value)}" for name, value in trial.parameters.items()]
    return "<br>".join(map(escape, lines))  # plotly reads some markup


def _symbol(trial: TrialRow) -> str:
    return _SYMBOLS.get(trial.state, "square-open")


def _colour(reports: Sequence[SweepReport], report: SweepReport) -> str:
    return _COLOURS[reports.index(report) % len(_COLOURS)]


def _metric(reports: Sequence[SweepReport]) -> str:
    return " or ".join(dict.fromkeys(report.metric for report in reports))


def _axis_value(value: object) -> float | str | None:
    """Return a value that plotly can place: a number, a word, or None if there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None if value is None else format_value(value)
    return float(value) if math.isfinite(value) else None


def _is_log(reports: Iterable[SweepReport], name: str) -> bool:
    domains = [report.domains[name] for report in reports if name in report.domains]
    return bool(domains) and all(isinstance(d, LogUniform) or (isinstance(d, Integer) and d.log) for d in domains)


def _to_unit(column: Sequence[float | str | None], *, log: bool) -> list[float | None]:
    """Return values between 0 and 1: of numbers by their range, of words by their order."""
    words = sorted({value for value in column if isinstance(value, str)})
    numbers = [float(words.index(value)) if isinstance(value, str) else value for value in column]
    if log:
        numbers = [None if value is None or value <= 0 else math.log(value) for value in numbers]
    known = [value for value in numbers if value is not None]
    if not known:
        return numbers
    low, width = min(known), max(known) - min(known)
    return [None if value is None else (value - low) / width if width else 0.5 for value in numbers]
