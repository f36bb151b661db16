"""Reports of a run: text with Markdown tables, and one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isnan

from benchmarks.harness.figures import Bar, Figure, Results, Table, Verdict


def as_text(results: Results, bars: Mapping[str, Bar], verdict: Verdict, environment: Mapping[str, object]) -> str:
    """Return the environment, tables, figures, remarks and the verdict as text."""
    lines = [f"{name}: {value}" for name, value in environment.items()]
    for title, table in results.tables.items():
        lines += ["", title, "", *table_lines(table)]
    lines += ["", *(f"{name}: {shown(figure)}" for name, figure in results.figures.items())]
    lines += ["", *results.remarks, "", f"left out: {'; '.join(verdict.left_out) or 'nothing'}"]
    short = [_short(name, results, bars) for name in verdict.falls_short]
    return "\n".join([*lines, f"falls short: {'; '.join(short) or 'nothing'}"])


def as_json(results: Results, bars: Mapping[str, Bar], verdict: Verdict, environment: Mapping[str, object]) -> str:
    """Return the report as one line of JSON; a number that is not finite is null."""
    content = {
        "environment": dict(environment),
        "figures": {name: asdict(figure) for name, figure in results.figures.items()},
        "tables": {title: asdict(table) for title, table in results.tables.items()},
        "bars": {name: asdict(bar) for name, bar in bars.items()},
        "remarks": results.remarks,
        "falls_short": list(verdict.falls_short),
        "left_out": list(verdict.left_out),
    }
    finite = json.loads(json.dumps(content), parse_constant=lambda _: None)
    return json.dumps(finite, allow_nan=False)


def table_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(digits(value) if isinstance(value, float) else str(value) for value in row)} |"


def shown(figure: Figure) -> str:
    """Return a figure with its unit, its spread, the wall clock and its note."""
    unit = f" {figure.unit}" if figure.unit else ""
    wall = "" if figure.wall is None else f", {digits(figure.wall)}{unit} by the wall clock"
    return f"{digits(figure.value)}{unit}{spread(figure)}{wall}{f'; {figure.note}' if figure.note else ''}"


def spread(figure: Figure) -> str:
    """Return quartiles or standard errors in brackets, or nothing."""
    return "" if isnan(figure.lower) else f" ({digits(figure.lower)}–{digits(figure.upper)})"


def digits(number: float) -> str:
    """Return three digits, or all digits before the point of a large number."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _short(name: str, results: Results, bars: Mapping[str, Bar]) -> str:
    if name in results.failed:
        return f"{name} ({results.failed[name]})"
    found = digits(results.figures[name].value) if name in results.figures else "missing"
    return f"{name} ({found}, {bars[name]})"
