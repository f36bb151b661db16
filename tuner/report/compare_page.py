"""One interactive page about one sweep or several. Unlike the report of a sweep, it runs scripts: its own two."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup

from tuner.recorder.records import flatten
from tuner.report.interactive import charts, plotly_script
from tuner.report.pages import page_from
from tuner.report.wording import format_value, with_error

if TYPE_CHECKING:
    from tuner.report.sweep_report import SweepReport

__all__ = ["compare_page"]

_HEADS = ("sweep", "state", "data", "guaranteed ε", "δ", "trials", "best score", "of the trial")
_OF_THE_FILE = ("ledger", "storage", "tracking")  # where things are kept says nothing about the search


def compare_page(reports: Sequence[SweepReport]) -> str:
    """Return the page: a table of the sweeps, the settings that differ, and charts of all their trials."""
    scripts = [plotly_script(), files("tuner.report").joinpath("templates/compare.js").read_text(encoding="utf-8")]
    return page_from(
        "compare.html",
        title=" and ".join(report.sweep for report in reports),
        reports=reports,
        heads=_HEADS,
        rows=[_row(report) for report in reports],
        differing=_differing(reports),
        # No record and no name can end the element or begin another one: `<` is written as an escape of JSON.
        charts=Markup(json.dumps(charts(reports), allow_nan=False).replace("<", "\\u003c")),
        scripts=[Markup(script) for script in scripts],
        hashes=[_hash(script) for script in scripts],
    )


def _hash(script: str) -> str:
    """Return a script's source expression for the page's content security policy. No other script may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _row(report: SweepReport) -> tuple[str, ...]:
    winner, budget = report.winner, report.budget
    return (
        report.sweep,
        report.state,
        report.subtitle,
        "not private" if budget is None else format_value(budget.epsilon_cap),
        "–" if budget is None else format_value(budget.delta),
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
    rows = [(name, *(each.get(name, "–") for each in files_of)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def _settings(report: SweepReport) -> dict[str, object]:
    read: dict[str, object] = yaml.safe_load(report.experiment) or {} if report.experiment else {}
    return {name: value for name, value in read.items() if name not in _OF_THE_FILE}
