"""Charts of a sweep's trials: score by trial, by parameter and by step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from search_spaces.domains import Categorical, Integer, LogUniform
from tuner.figures import BLUE, GREEN, GREY, ORANGE, RED, new_figure, styled
from tuner.report.sweep_report import SweepReport
from tuner.report.trial_row import CUT_OFF, TrialRow
from tuner.report.wording import format_value
from tuner.study.best import is_better

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from search_spaces.domains import Domain

__all__ = ["STATE_MARKS", "WIDE", "parameter_chart", "plain_ticks", "steps_chart", "trials_chart"]

WIDE = (8.6, 3.2)
"""Width and height in inches of a chart as wide as the page."""

_NARROW = (5.2, 3.2)
_LEGEND: dict[str, Any] = {"loc": "outside upper left", "ncols": 6}  # place, and the most entries in one line
_SPREAD = 20
"""An axis without a declared scale is logarithmic if the largest value is at least this many times the smallest."""

_HOLLOW = {"markerfacecolor": "white", "markeredgewidth": 1.5}
STATE_MARKS: dict[str, dict[str, Any]] = {
    "complete": {"color": BLUE, "marker": "o"},
    "pruned": {"color": ORANGE, "marker": "o", **_HOLLOW},
    "failed": {"color": RED, "marker": "x", "markeredgewidth": 1.8},
    "lost": {"color": GREY, "marker": "x", "markeredgewidth": 1.8},
    "running": {"color": GREY, "marker": "D", **_HOLLOW},
    "paused": {"color": GREY, "marker": "^", **_HOLLOW},
    CUT_OFF: {"color": GREY, "marker": "s", **_HOLLOW},
    "best": {"color": GREEN, "marker": "*", "markersize": 14},
}
"""Marker of each state of a trial. The states differ in shape as well as in colour."""


@styled()
def trials_chart(report: SweepReport) -> Figure | None:
    """Draw the score of each trial by trial number, and the best score so far. Return None if there is no score."""
    from matplotlib.ticker import MaxNLocator

    scored = [trial for trial in report.trials if trial.score is not None]
    if not scored:
        return None
    figure = new_figure(*WIDE)
    axes = figure.add_subplot(xlabel="trial", ylabel=report.metric)
    numbers, best = _best_so_far(report)
    if numbers:
        axes.step(numbers, best, where="post", color=GREEN, label="best so far", zorder=1)
    _draw_trials(axes, report, ((trial.number, trial) for trial in scored))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(**_LEGEND)
    return figure


@styled()
def parameter_chart(report: SweepReport, name: str) -> Figure | None:
    """Draw the scores against one parameter, on its sampling scale. Return None if there are fewer than two scores."""
    scored = [trial for trial in report.trials if trial.score is not None and name in trial.parameters]
    if len(scored) < 2:
        return None
    figure = new_figure(*_NARROW)
    axes = figure.add_subplot(xlabel=name, ylabel=report.metric)
    values = [trial.parameters[name] for trial in scored]
    domain = report.domains.get(name)
    options = domain.options if isinstance(domain, Categorical) else ()
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if not options and len(numbers) == len(values) and all(map(math.isfinite, numbers)):
        if min(numbers) > 0 and (_is_log(domain) if domain else max(numbers) / min(numbers) >= _SPREAD):
            axes.set_xscale("log")
        _draw_trials(axes, report, zip(numbers, scored, strict=True))
        plain_ticks(axes.xaxis)
    else:
        words = list(dict.fromkeys([*map(_option, options), *sorted(map(_option, values))]))
        _draw_trials(axes, report, [(words.index(_option(trial.parameters[name])), trial) for trial in scored])
        axes.set_xticks(range(len(words)), words)
        axes.set_xlim(-0.5, len(words) - 0.5)
    figure.legend(**_LEGEND)
    return figure


@styled()
def steps_chart(report: SweepReport) -> Figure | None:
    """Draw the scores against the steps, for each trial with at least two reports. The winner is bold.

    Return None if no trial has two reports.
    """
    drawn = [trial for trial in report.trials if len(trial.curve) > 1]
    if not drawn:
        return None
    figure = new_figure(*WIDE)
    axes = figure.add_subplot(xlabel="step", ylabel=report.metric)
    labels: set[str] = set()
    for trial in sorted(drawn, key=lambda trial: trial is report.winner):  # the winner last, so on top
        state = _mark(report, trial)
        axes.plot(
            *zip(*trial.curve, strict=True),
            color=STATE_MARKS[state]["color"],
            linewidth=2.6 if state == "best" else 1.0,
            linestyle="--" if state == "pruned" else "-",
            label="" if state in labels else _label(report, state),
        )
        labels.add(state)
    figure.legend(**_LEGEND)
    return figure


def _is_log(domain: Domain) -> bool:
    return isinstance(domain, LogUniform) or (isinstance(domain, Integer) and domain.log)


def plain_ticks(axis: Any) -> None:  # noqa: ANN401 - an XAxis or a YAxis
    """Label an axis with plain numbers such as ``0.001``, not with powers."""
    from matplotlib.ticker import LogLocator

    axis.set_major_formatter(lambda value, _: f"{value:.6g}")
    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(lambda value, _: f"{value:.6g}" if high / low < 100 else "")


def _draw_trials(axes: Axes, report: SweepReport, places: Iterable[tuple[float, TrialRow]]) -> None:
    """Draw trials at the given x positions, with one series for each state and one for the winner."""
    placed = list(places)
    for state, style in STATE_MARKS.items():
        points = [(x, trial.score) for x, trial in placed if _mark(report, trial) == state and trial.score is not None]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, linestyle="none", label=_label(report, state), **{"markersize": 7, **style})


def _best_so_far(report: SweepReport) -> tuple[list[int], list[float]]:
    """Return the numbers of the trials that improved the best score of complete trials, and their scores.

    The number of the last trial is added with the best score, so that the line reaches the end of the axis.
    """
    numbers: list[int] = []
    scores: list[float] = []
    for trial in report.trials:
        than = scores[-1] if scores else None
        if trial.state == "complete" and trial.score is not None and is_better(trial.score, than, mode=report.mode):
            numbers.append(trial.number)
            scores.append(trial.score)
    if numbers:
        numbers.append(report.trials[-1].number)
        scores.append(scores[-1])
    return numbers, scores


def _mark(report: SweepReport, trial: TrialRow) -> str:
    return "best" if trial is report.winner else trial.state


def _label(report: SweepReport, state: str) -> str:
    return "winner" if state == "best" and report.why else state


def _option(value: object) -> str:
    return format_value(value, 8)  # enough digits to tell options apart
