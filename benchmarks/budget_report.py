"""A run of the budget benchmark as text, whose tables can be pasted into a page, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isnan

from benchmarks.budget_bars import BARS
from benchmarks.budget_common import Results, Table
from benchmarks.engine_bars import Bar, Verdict
from benchmarks.engine_measure import Figure

__all__ = ["as_json", "as_text", "table_text"]


def as_text(results: Results, verdict: Verdict, environment: Mapping[str, object], bars: Sequence[Bar] = BARS) -> str:
    """The environment, all tables and figures, and the verdict."""
    lines = [f"{name}: {value}" for name, value in environment.items()]
    for title, table in results.tables.items():
        lines += ["", title, "", *table_text(table)]
    lines += ["", *(f"{name}: {_cell(figure)}" for name, figure in results.figures.items())]
    lines += ["", *results.remarks, "", "left out: " + ("; ".join(verdict.left_out) or "nothing")]
    limits = {bar.name: f"{bar.direction} {bar.limit:g}" for bar in bars}
    short = [f"{name} ({_cell(results.figures[name])}, {limits[name]})" for name in verdict.falls_short]
    return "\n".join([*lines, "falls short: " + ("; ".join(short) or "nothing")])


def as_json(results: Results, verdict: Verdict, environment: Mapping[str, object], bars: Sequence[Bar] = BARS) -> str:
    """Everything on one line; a number that is not finite is null."""
    content = {
        "environment": dict(environment),
        "figures": {name: asdict(figure) for name, figure in results.figures.items()},
        "tables": {title: asdict(table) for title, table in results.tables.items()},
        "bars": [asdict(bar) for bar in bars],
        "remarks": results.remarks,
        "falls_short": list(verdict.falls_short),
        "left_out": list(verdict.left_out),
    }
    plain = json.loads(json.dumps(content), parse_constant=lambda _: None)
    return json.dumps(plain, allow_nan=False)


def table_text(table: Table) -> Iterable[str]:
    """As Markdown."""
    yield f"| {' | '.join(table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(_digits(value) if isinstance(value, float) else str(value) for value in row)} |"


def _cell(figure: Figure) -> str:
    unit = f" {figure.unit}" if figure.unit else ""
    spread = "" if isnan(figure.lower) else f" ({_digits(figure.lower)}–{_digits(figure.upper)})"
    wall = "" if figure.wall is None else f", {_digits(figure.wall)}{unit} by the wall clock"
    return f"{_digits(figure.median)}{unit}{spread}{wall}{f'; {figure.note}' if figure.note else ''}"


def _digits(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"
