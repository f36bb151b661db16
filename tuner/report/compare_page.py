"""One interactive page about one sweep or several, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import yaml

from tuner.privacy.ledger.amounts import amount
from tuner.recorder.records import flatten
from tuner.report.budget_charts import epsilon_chart, guarantees_chart
from tuner.report.charts import Chart, learning_curves, scores_chart
from tuner.report.interactive import Places, interactive_page
from tuner.report.parameter_charts import importance_chart, pair_chart, parallel_chart, parameter_chart
from tuner.report.wording import format_value, with_error

if TYPE_CHECKING:
    from tuner.report.sweep_report import SweepReport

__all__ = ["compare_page"]

_HEADS = (
    "sweep",
    "state",
    "method and data",
    "guaranteed ε",
    "δ",
    "trials",
    "best score",
    "parameters of the best trial",
)
_PAIRED = 4  # parameters of which every pair has a chart
_NOTHING = "None"  # as MLflow's parameters say that a setting has no value
_OF_THE_FILE = ("ledger", "storage", "tracking")  # where things are kept says nothing about the search


def compare_page(reports: Sequence[SweepReport]) -> str:
    """Return the page: a table of the sweeps, the settings that differ, and charts of all their trials.

    Scores of different data sets or metrics say nothing about each other, so each of them has charts of its own.
    """
    places = Places()
    groups: dict[str, list[SweepReport]] = {}
    for report in reports:
        groups.setdefault(f"{report.metric} on {report.dataset}" if report.dataset else report.metric, []).append(
            report
        )
    return interactive_page(
        "compare.html",
        places,
        title=" and ".join(report.sweep for report in reports),
        reports=reports,
        heads=_HEADS,
        rows=[_row(report) for report in reports],
        differing=_differing(reports),
        groups=[(name, places.place(*_charts(group))) for name, group in groups.items()],
    )


def _charts(reports: Sequence[SweepReport]) -> Iterator[Chart | None]:
    """Yield the charts of sweeps on one data set. A sealed sweep has its winner alone."""
    names = list(dict.fromkeys(name for report in reports for name in report.parameters))
    yield guarantees_chart(reports)
    yield scores_chart(reports)
    yield learning_curves(reports)
    yield epsilon_chart(reports)
    for name in names:
        yield parameter_chart(reports, name)
    for pair in combinations(names[:_PAIRED], 2):
        yield pair_chart(reports, *pair)
    yield parallel_chart(reports, names)
    for report in reports:
        chart = importance_chart(report)
        yield chart and {**chart, "name": f"{chart['name']}, {report.sweep}"}


def _row(report: SweepReport) -> tuple[str, ...]:
    winner, budget = report.winner, report.budget
    return (
        report.sweep,
        report.state,
        report.subtitle,
        amount(budget.epsilon_cap) if budget is not None else "nothing charged" if report.claim else "not private",
        "–" if budget is None else amount(budget.delta),
        "sealed" if report.runs_hidden else f"{report.ended} of {report.trials_planned}",
        "–" if winner is None else f"{report.metric} {with_error(winner.score, winner.error)}",
        "–" if winner is None else ", ".join(f"{name} {format_value(value)}" for name, value in _own(report, winner)),
    )


def _own(report: SweepReport, winner: Any) -> list[tuple[str, object]]:  # noqa: ANN401 - a TrialRow
    return [(name, winner.parameters[name]) for name in report.parameters if name in winner.parameters]


def _differing(reports: Sequence[SweepReport]) -> list[tuple[str, ...]]:
    """Return the settings whose values differ, with the value in each sweep."""
    files_of: list[Mapping[str, str]] = [flatten(_settings(report)) for report in reports]
    names = dict.fromkeys(name for each in files_of for name in each)
    rows = [
        (name, *("–" if each.get(name, _NOTHING) == _NOTHING else each[name] for each in files_of)) for name in names
    ]
    return [row for row in rows if len(set(row[1:])) > 1]


def _settings(report: SweepReport) -> dict[str, object]:
    read: dict[str, object] = yaml.safe_load(report.experiment) or {} if report.experiment else {}
    return {name: value for name, value in read.items() if name not in _OF_THE_FILE}
