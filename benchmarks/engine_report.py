"""A run of the engine benchmark as text (tables that can be pasted into a page), as JSON and as a plot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite, isnan
from typing import Any

from benchmarks.engine_bars import BARS, WORKLOADS, Verdict
from benchmarks.engine_measure import Figure, Line
from benchmarks.engine_sections import Results

__all__ = ["as_json", "as_svg", "as_text"]

# Tables: a title, and the columns as (heading, prefix of the figures' names).
_TABLES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "A private step: milliseconds, in non-private steps, and how many times longer the others take",
        (
            ("non-private ms", "non_private_ms"),
            ("step ms", "step_ms"),
            ("in non-private", "step_over_non_private"),
            ("the same with torch's noise", "open_noise_over_non_private"),
            ("hooks", "hooks_over_step"),
            ("hooks, channels-last", "hooks_nhwc_over_step"),
            ("functorch", "functorch_over_step"),
            ("ew", "ew_over_step"),
            ("ghost", "ghost_over_step"),
            ("vmap(grad)", "vmap_over_step"),
            ("naive loop", "naive_over_step"),
        ),
    ),
    (
        "DPLIS, K = 10, R = 10, mean",
        (
            ("ms", "dplis_ms"),
            ("in ten non-private steps", "dplis_over_ten_non_private"),
            ("in our own steps", "dplis_over_step"),
            ("K passes of hooks", "hooks_passes_over_dplis"),
            ("K naive loops", "naive_passes_over_dplis"),
        ),
    ),
    (
        "Parts, as shares of our own step",
        (
            ("step with weight decay", "weight_decay_over_step"),
            ("smoothing, layer", "laplacian_layer_share"),
            ("smoothing, model", "laplacian_model_share"),
            ("smoothing, model, ms", "laplacian_model_ms"),
        ),
    ),
)


def as_text(results: Results, verdict: Verdict, environment: Mapping[str, object]) -> str:
    """The environment, the tables, all other figures, and the verdict."""
    shown: set[str] = set()
    lines = [f"{name}: {value}" for name, value in environment.items()]
    for title, columns in _TABLES:
        lines += ["", title, "", *_table(columns, results.figures, shown)]
    rest = [name for name in results.figures if name not in shown]
    lines += ["", *(f"{name}: {_cell(results.figures[name])}{_note(results.figures[name])}" for name in rest)]
    lines += ["", *results.remarks, "", "left out: " + ("; ".join(verdict.left_out) or "nothing")]
    limits = {bar.name: f"{bar.direction} {bar.limit:g}" for bar in BARS}
    short = [f"{name} ({_cell(results.figures[name])}, {limits[name]})" for name in verdict.falls_short]
    return "\n".join([*lines, "falls short: " + ("; ".join(short) or "nothing")])


def as_json(results: Results, verdict: Verdict, environment: Mapping[str, object]) -> str:
    """Everything on one line; a number that is not finite is null."""
    content: dict[str, Any] = {
        "environment": dict(environment),
        "figures": {name: asdict(figure) for name, figure in results.figures.items()},
        "lines": {name: asdict(line) for name, line in results.lines.items()},
        "bars": [asdict(bar) for bar in BARS],
        "remarks": results.remarks,
        "falls_short": list(verdict.falls_short),
        "left_out": list(verdict.left_out),
    }
    return json.dumps(_finite(content), allow_nan=False)


def _finite(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _table(columns: Sequence[tuple[str, str]], figures: Mapping[str, Figure], shown: set[str]) -> list[str]:
    rows = []
    for workload in WORKLOADS:
        names = [f"{prefix}.{workload.name}" for _, prefix in columns]
        if any(name in figures for name in names):
            shown.update(names)
            cells = [_cell(figures[name]) if name in figures else "–" for name in names]
            rows.append(f"| {workload.name} | {' | '.join(cells)} |")
    head = [f"| | {' | '.join(heading for heading, _ in columns)} |", f"|---|{'---|' * len(columns)}"]
    return [*head, *rows] if rows else ["not measured"]


def _cell(figure: Figure) -> str:
    """Three digits, and the quartiles where there are any."""
    unit = f" {figure.unit}" if figure.unit == "MB" else ""
    spread = "" if isnan(figure.lower) else f" ({_digits(figure.lower)}–{_digits(figure.upper)})"
    return f"{_digits(figure.median)}{unit}{spread}"


def _digits(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _note(figure: Figure) -> str:
    return f"; {figure.note}" if figure.note else ""


_WIDTH, _HEIGHT, _MARGIN = 420, 300, 56


def as_svg(lines: Mapping[str, Line], *, label: str, note: str = "") -> str:
    """Points and their best lines, one colour each, both axes from 0.

    Args:
        lines: by the name of the legend.
        label: of the horizontal axis.
        note: a small line below it.
    """
    most_x = max(x for line in lines.values() for x, _ in line.points)
    most_y = max(y for line in lines.values() for _, y in line.points) * 1.1
    right, bottom = _WIDTH - _MARGIN / 2, _HEIGHT - _MARGIN

    def place(x: float, y: float) -> tuple[float, float]:
        return _MARGIN + x / most_x * (right - _MARGIN), bottom - y / most_y * (bottom - 20)

    def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_MARGIN} 20V{bottom}H{right}" fill="none" stroke="black"/>',
        text((_MARGIN + right) / 2, _HEIGHT - 22, label),
        text((_MARGIN + right) / 2, _HEIGHT - 7, note),
        text(_MARGIN, 14, "milliseconds a step", "start"),
    ]
    xs = sorted({x for line in lines.values() for x, _ in line.points})
    parts += [text(place(x, 0)[0], bottom + 15, f"{x:g}") for x in xs if x >= most_x / 12 or x == xs[0]]
    parts += [text(_MARGIN - 5, place(0, y)[1] + 4, _digits(y), "end") for y in (0.0, most_y / 2.2, most_y / 1.1)]
    for index, (name, line) in enumerate(lines.items()):
        colour = ("#1f5fa8", "#c4561a", "#2b8a4b", "#7a3fa0")[index % 4]
        (x1, y1), (x2, y2) = place(0, max(0.0, line.intercept)), place(most_x, line.slope * most_x + line.intercept)
        parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in (place(*p) for p in line.points)
        ]
        words = f"{name}: R² = {line.r_squared:.4f}, farthest point {100 * line.deviation:.0f} %"
        parts.append(f'<g fill="{colour}">{text(_MARGIN + 12, 34 + 15 * index, words, "start")}</g>')
    return "\n".join([*parts, "</svg>", ""])
