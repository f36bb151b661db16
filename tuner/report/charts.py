"""Interactive charts of trials, of one sweep or of several on the same records, as data for the browser's plotly.

Each chart has a name, a note, plotly traces and a layout: https://plotly.com/javascript/reference. Nothing is drawn
here. Optuna's own plots are not used: slice and contour leave out what was pruned, none knows a standard error, and
all count the committed run, which has other noise, as a trial of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tuner.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from tuner.report.trial_row import CUT_OFF
from tuner.report.wording import format_value, trial_name, with_error
from tuner.study.best import is_better

if TYPE_CHECKING:
    from tuner.report.sweep_report import SweepReport
    from tuner.report.trial_row import TrialRow

__all__ = [
    "Chart",
    "Place",
    "Reports",
    "hover",
    "key",
    "keys",
    "learning_curves",
    "line",
    "look",
    "make_chart",
    "marks",
    "metric_of",
    "ranking_chart",
    "scores_chart",
    "series_of",
    "widen",
]

Chart = dict[str, Any]
Reports = Sequence["SweepReport"]
Place = float | str | None

_STATES = {
    "complete": ("circle", BLUE),
    "pruned": ("circle-open", ORANGE),
    "failed": ("x", RED),
    "lost": ("x-thin-open", GREY),
    "running": ("diamond-open", GREY),
    "paused": ("triangle-up-open", GREY),
    CUT_OFF: ("square-open", GREY),
    "committed run": ("diamond", GREEN),
    "winner": ("star", GREEN),
}
"""Symbol and colour of each state of a trial, where one sweep is shown. They differ in shape as well as in colour."""
_WHOLE = ("complete", "committed run", "winner")
_SWEEPS = (
    ("circle", BLUE, "solid"),
    ("square", ORANGE, "dash"),
    ("diamond", GREEN, "dashdot"),
    ("triangle-up", PURPLE, "longdash"),
    ("triangle-down", RED, "dot"),
    ("pentagon", GREY, "longdashdot"),
)
"""Symbol, colour and dash of each sweep, where several are shown. A trial that is not complete is hollow."""
_LABELLED = 15  # stopped trials; with more, the steps next to their marks cannot be read
_RANKED = 40  # trials
_EACH_TRIAL = 25  # trials up to which each has a tick
_SEVERAL = (
    "A star is the winner of a sweep. A hollow mark is a trial that did not run to its end. Vertical lines are "
    "standard errors."
)


def scores_chart(reports: Reports) -> Chart | None:
    """Return the last score of each trial by its number. One sweep also has the best score so far."""
    chart = marks(
        f"{metric_of(reports)} of each trial", reports, "trial", lambda trial: trial.number, labelled=len(reports) == 1
    )
    if chart is None:
        return None
    numbers = [trial.number for report in reports for trial in report.trials]
    chart["layout"]["xaxis"] |= {"range": [-0.6, max(numbers) + 0.6], "tickformat": "d"}
    if len(numbers) <= _EACH_TRIAL:
        chart["layout"]["xaxis"] |= {"dtick": 1}
    if len(reports) == 1:
        chart["data"] += _best_so_far(reports[0])
    return chart


def _best_so_far(report: SweepReport) -> list[dict[str, Any]]:
    numbers: list[int] = []
    scores: list[float] = []
    for trial in report.trials:
        than = scores[-1] if scores else None
        if trial.state == "complete" and trial.score is not None and is_better(trial.score, than, mode=report.mode):
            numbers.append(trial.number)
            scores.append(trial.score)
    if len(report.trials) < 2 or not scores:
        return []
    return [line([*numbers, report.trials[-1].number], [*scores, scores[-1]], "best so far", GREEN, shape="hv")]


def learning_curves(reports: Reports) -> Chart | None:
    """Return a line for each trial, also of those that stopped at their first report."""
    traces: list[dict[str, Any]] = []
    for report in reports:
        for trial in sorted(report.trials, key=lambda trial: trial is report.winner):  # the winner last, so on top
            if not trial.curve:
                continue
            symbol, colour, dash = look(reports, report, trial)
            own = ["circle-open"] * (len(trial.curve) - 1) if len(reports) == 1 else []
            traces.append(
                {
                    "mode": "lines+markers",
                    "x": [step for step, _ in trial.curve],
                    "y": [score for _, score in trial.curve],
                    "text": [hover(trial, report, at=place) for place in range(len(trial.curve))],
                    "hoverinfo": "text",
                    "line": {"color": colour, "dash": dash, "width": 3 if trial is report.winner else 1.2},
                    "marker": {
                        "symbol": [*(own or [symbol] * (len(trial.curve) - 1)), symbol],
                        "color": colour,
                        "size": [*([4] * (len(trial.curve) - 1)), 12 if trial is report.winner else 8],
                    },
                    "showlegend": False,
                    "legendgroup": series_of(reports, report, trial),
                }
            )
    if not traces:
        return None
    traces += keys(reports, traces)
    chart = make_chart("learning curves", traces, x="step", y=metric_of(reports))
    chart["layout"]["xaxis"]["rangemode"] = "tozero"
    chart["note"] = (
        "Each line shows all reports of one trial. A trial that stopped at its first report is a single mark."
    )
    return chart


def ranking_chart(report: SweepReport) -> Chart | None:
    """Return the complete trials in the order of their scores, with standard errors; None without errors."""
    shown = [trial for trial in report.trials if trial.state == "complete" and trial.score is not None]
    shown = [trial for trial in shown if trial.error is not None and not trial.committed]
    if len(shown) < 2:
        return None
    shown.sort(key=lambda trial: trial.score or 0.0, reverse=report.mode == "max")
    shown = shown[:_RANKED]
    groups = {
        "winner": [trial for trial in shown if trial is report.winner],
        "within one standard error of the difference to the winner": [
            trial for trial in shown if trial.number in report.tied
        ],
    }
    taken = {trial.number for group in groups.values() for trial in group}
    groups["other complete trials"] = [trial for trial in shown if trial.number not in taken]
    looks = (("star", GREEN, 14), ("diamond", PURPLE, 9), ("circle", BLUE, 8))
    traces = [
        {
            "mode": "markers",
            "name": name,
            "x": [str(trial.number) for trial in group],
            "y": [trial.score for trial in group],
            "error_y": _bars(group),
            "text": [hover(trial, report) for trial in group],
            "hoverinfo": "text",
            "marker": {"symbol": symbol, "color": colour, "size": size},
        }
        for (name, group), (symbol, colour, size) in zip(groups.items(), looks, strict=True)
        if group
    ]
    chart = make_chart("complete trials and their standard errors", traces, x="trial, the best first", y=report.metric)
    chart["layout"]["xaxis"] |= {"type": "category", "categoryarray": [str(trial.number) for trial in shown]}
    chart["note"] = (
        "A vertical line is one standard error up and down. The error comes from the limited number of validation "
        "records, as computed from the public size, and, if scores are protected, from their noise."
    )
    return chart


def marks(
    title: str, reports: Reports, x: str, place: Callable[[TrialRow], Place], *, labelled: bool = False
) -> Chart | None:
    """Return the last score of each trial at the given place. A series is a state of one sweep or one of several."""
    series: dict[str, list[tuple[SweepReport, TrialRow, Place]]] = {}
    for report in reports:
        for trial in report.trials:
            if trial.score is not None and (at := place(trial)) is not None:
                series.setdefault(series_of(reports, report, trial), []).append((report, trial, at))
    stopped = sum(trial.state != "complete" for group in series.values() for _, trial, _ in group)
    labelled = labelled and stopped <= _LABELLED
    traces = []
    for name in sorted(series, key=list(_STATES).index) if len(reports) == 1 else series:
        group = series[name]
        looks = [look(reports, report, trial) for report, trial, _ in group]
        traces.append(
            {
                "mode": "markers+text" if labelled else "markers",
                "name": escape(name),
                "legendgroup": name,
                "x": [at for *_, at in group],
                "y": [trial.score for _, trial, _ in group],
                "error_y": _bars([trial for _, trial, _ in group]),
                "hovertext": [hover(trial, report) for report, trial, _ in group],
                "hoverinfo": "text",
                "text": [_at_step(trial) if labelled else "" for _, trial, _ in group],
                "textposition": "bottom right",
                "cliponaxis": False,
                "textfont": {"size": 10, "color": GREY},
                "showlegend": len(reports) == 1,
                "marker": {
                    "symbol": [symbol for symbol, *_ in looks],
                    "color": [colour for _, colour, _ in looks],
                    "line": {"width": 2, "color": [colour for _, colour, _ in looks]},
                    "size": [
                        13 if symbol == "star" else _size(trial)
                        for (symbol, *_), (_, trial, _) in zip(looks, group, strict=True)
                    ],
                },
            }
        )
    if not traces:
        return None
    if len(reports) > 1:
        traces += keys(reports, traces, mode="markers")
    chart = make_chart(title, traces, x=x, y=metric_of(reports))
    scores = [trial.score for group in series.values() for _, trial, _ in group if trial.score is not None]
    about = max(trial.error or 0.0 for group in series.values() for _, trial, _ in group)
    widen(chart, scores, about)
    chart["note"] = _SEVERAL if len(reports) > 1 else ""
    return chart


def make_chart(name: str, traces: list[dict[str, Any]], *, x: str, y: str) -> Chart:
    """Return a chart in the common style. Names are escaped, because plotly reads some markup."""
    layout = {
        "template": "none",
        "margin": {"t": 12, "r": 16, "l": 50, "b": 40},
        "hovermode": "closest",
        "height": 380,
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": GREY},
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": {
            "title": {"text": escape(x), "standoff": 8},
            "automargin": True,
            "zeroline": False,
            "gridcolor": "#e1e5ea",
        },
        "yaxis": {
            "title": {"text": escape(y), "standoff": 8},
            "automargin": True,
            "zeroline": False,
            "gridcolor": "#e1e5ea",
        },
    }
    return {"name": name, "note": "", "data": traces, "layout": layout}


def widen(chart: Chart, scores: Sequence[float], about: float = 0.0) -> None:
    """Set the range of the scores if all are equal, for which plotly would draw an axis of a width of 2."""
    if max(scores) == min(scores):
        wide = 2 * about or abs(scores[0]) * 0.1 or 1.0
        chart["layout"]["yaxis"]["range"] = [scores[0] - wide, scores[0] + wide]


def hover(trial: TrialRow, report: SweepReport, *, at: int = -1) -> str:
    """Return the words of a trial: its state, its score with its error and its step, and its parameters.

    `at` is the place in the trial's curve of the score that is meant. A score before the last one has neither error nor
    parameters in its words.
    """
    step, score = trial.curve[at] if trial.curve else (trial.step, trial.score)
    last = not trial.curve or at in (-1, len(trial.curve) - 1)
    lines = [
        f"{trial_name(trial.number, committed=trial.committed)}, {trial.state}{', winner' * (trial is report.winner)}"
    ]
    lines.append(f"{with_error(score, trial.error if last else None)} at step {step} of {trial.steps_planned}")
    if not last:
        return "<br>".join(map(escape, lines))
    lines += [
        f"{name} {format_value(trial.parameters[name])}" for name in report.parameters if name in trial.parameters
    ]
    lines += [f"ε of its own steps {format_value(trial.epsilon)}"] * (trial.epsilon is not None)
    return "<br>".join(map(escape, lines))


def _at_step(trial: TrialRow) -> str:
    """Return the step of the score of a trial that did not run to its end."""
    if trial.state == "complete":
        return ""
    return f"at {trial.curve[-1][0] if trial.curve else trial.step}"


def _size(trial: TrialRow) -> float:
    """Return the size of a mark: the larger, the later the step of the score."""
    step = trial.curve[-1][0] if trial.curve else trial.step
    return 5.0 + 4.0 * min(step / trial.steps_planned, 1.0) if trial.steps_planned else 9.0


def _bars(trials: Iterable[TrialRow]) -> dict[str, Any]:
    return {"array": [trial.error or 0.0 for trial in trials], "color": GREY, "thickness": 1, "width": 0}


def line(
    x: list[Any], y: list[Any], name: str, colour: str, *, shape: str = "linear", dash: str = "solid"
) -> dict[str, Any]:
    """Return a trace of a line without hover."""
    return {
        "mode": "lines",
        "x": x,
        "y": y,
        "name": name,
        "hoverinfo": "skip",
        "line": {"color": colour, "shape": shape, "dash": dash, "width": 1.6},
    }


def key(name: str, symbol: str, line: dict[str, Any], *, mode: str = "lines+markers") -> dict[str, Any]:
    """Return a trace without points: an entry of the legend that shows and hides its group."""
    marker = {"symbol": symbol, "color": line["color"], "size": 9, "line": {"width": 2, "color": line["color"]}}
    return {
        "mode": mode,
        "x": [None],
        "y": [None],
        "name": escape(name),
        "legendgroup": name,
        "line": line,
        "marker": marker,
    }


def keys(reports: Reports, traces: Sequence[dict[str, Any]], *, mode: str = "lines+markers") -> list[dict[str, Any]]:
    """Return the legend of the groups of the traces. A trace of its own may be hollow or have a star."""
    sweeps = {report.sweep: _SWEEPS[at % len(_SWEEPS)] for at, report in enumerate(reports)}
    found = []
    for name in dict.fromkeys(trace["legendgroup"] for trace in traces):
        symbol, colour = _STATES[name] if len(reports) == 1 else sweeps[name][:2]
        dash = sweeps[name][2] if len(reports) > 1 else "solid" if name in _WHOLE else "dot"
        found.append(key(name, symbol, {"color": colour, "dash": dash, "width": 1.5}, mode=mode))
    return found


def series_of(reports: Reports, report: SweepReport, trial: TrialRow) -> str:
    """Return the name of the series of a trial: its state, or its sweep if there are several."""
    if len(reports) > 1:
        return report.sweep
    return "winner" if trial is report.winner else "committed run" if trial.committed else trial.state


def look(reports: Reports, report: SweepReport, trial: TrialRow, *, star: bool = True) -> tuple[str, str, str]:
    """Return the symbol, the colour and the dash of a trial. Without `star`, a sweep's winner looks like its others."""
    if len(reports) == 1:
        return (*_STATES[series_of(reports, report, trial)], "solid" if trial.state == "complete" else "dot")
    symbol, colour, dash = _SWEEPS[[each is report for each in reports].index(True) % len(_SWEEPS)]
    if star and trial is report.winner:
        return "star", colour, dash
    return (symbol if trial.state == "complete" else "x" if trial.state == "failed" else f"{symbol}-open"), colour, dash


def metric_of(reports: Reports) -> str:
    """Return the name of the metric, or of all metrics."""
    return " or ".join(dict.fromkeys(report.metric for report in reports))
