"""The picture of the DPLIS study: accuracy over R, early and late side by side, as SVG made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from benchmarks.dplis_arms import Estimate, Point

__all__ = ["chart"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 470.0, 340.0, 58.0, 64.0, 48.0, 16.0
_COLOURS = {"mean": "#2f6fde", "sum": "#d98a00"}
_SHIFT = {"mean": -4.0, "sum": 4.0}  # so that whiskers do not hide one another
_BANDS = {"untuned DP-SGD": "#5b6776", "tuned DP-SGD": "#1f8a4c"}
_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1b2430}"
    ".tick{font-size:11px;fill:#5b6776}.title{font-weight:600;font-size:13px}.grid{stroke:#e1e5ea}"
)


def chart(points: Sequence[Point]) -> str:
    """Two panels. Whiskers and bands are one standard error; R is spaced by rank, not by value."""
    width = _WIDTH * len(points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {_HEIGHT:g}" width="{width:g}" '
        f'height="{_HEIGHT:g}" role="img" aria-label="validation accuracy by smoothing radius">',
        f'<style>{_STYLE}</style><rect width="{width:g}" height="{_HEIGHT:g}" fill="#fff"/>',
        _legend(points[0].study.reductions),
    ]
    for number, point in enumerate(points):
        parts.append(f'<g transform="translate({number * _WIDTH:g} 0)">{_panel(point)}</g>')
    return "".join([*parts, "</svg>\n"])


def _panel(point: Point) -> str:
    study = point.study
    radii = (0.0, *study.radii)
    lines = {reduction: [point.at(radius, reduction) for radius in radii] for reduction in study.reductions}
    bands = dict(zip(_BANDS, (point.untuned, point.tuned), strict=True))
    low, high = _range([*(each for line in lines.values() for each in line), *bands.values()])
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _GAP

    def x_at(index: int) -> float:
        return _LEFT + 24 + index * (right - _LEFT - 48) / (len(radii) - 1)

    def y_at(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - _TOP)

    parts = []
    for tick in _ticks(low, high):
        y = y_at(tick)
        parts.append(f'<line class="grid" x1="{_LEFT:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for name, score in bands.items():
        parts.append(_band(name, score, right, y_at))
    for index, radius in enumerate(radii):
        parts.append(
            f'<text class="tick" x="{x_at(index):.1f}" y="{bottom + 16:g}" text-anchor="middle">{radius:g}</text>'
        )
    for reduction, line in lines.items():
        spots = [(x_at(index) + _SHIFT[reduction], score) for index, score in enumerate(line)]
        parts.append(_line(_COLOURS[reduction], [(x, score) for x, score in spots if math.isfinite(score.mean)], y_at))
    middle, height = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(
        f'<text class="title" x="{middle:g}" y="{_TOP - 10:g}" text-anchor="middle">{escape(point.name)}: '
        f"ε = {point.epsilon:.2f}, {point.steps} steps</text>"
        f'<text x="{middle:g}" y="{_HEIGHT - 10:g}" text-anchor="middle">smoothing radius R (not to scale)</text>'
        f'<text transform="translate(14 {height:g}) rotate(-90)" text-anchor="middle">validation accuracy, %</text>'
    )
    return "".join(parts)


def _line(colour: str, spots: Sequence[tuple[float, Estimate]], y_at: Callable[[float], float]) -> str:
    path = " ".join(f"{x:.1f},{y_at(score.mean):.1f}" for x, score in spots)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for x, score in spots:
        reach = score.error if math.isfinite(score.error) else 0.0
        top, end = y_at(score.mean + reach), y_at(score.mean - reach)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{end:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y_at(score.mean):.1f}" r="3.5" fill="{colour}"/>')
    return "".join(parts)


def _band(name: str, score: Estimate, right: float, y_at: Callable[[float], float]) -> str:
    if not math.isfinite(score.mean):
        return ""
    reach = score.error if math.isfinite(score.error) else 0.0
    top, end, middle = y_at(score.mean + reach), y_at(score.mean - reach), y_at(score.mean)
    return (
        f'<rect x="{_LEFT:g}" y="{top:.1f}" width="{right - _LEFT:.1f}" height="{end - top:.1f}" '
        f'fill="{_BANDS[name]}" fill-opacity="0.18"/>'
        f'<line x1="{_LEFT:g}" x2="{right:g}" y1="{middle:.1f}" y2="{middle:.1f}" stroke="{_BANDS[name]}" '
        'stroke-dasharray="5 4"/>'
    )


def _legend(reductions: Sequence[str]) -> str:
    entries = [(f"DPLIS, {reduction}", _COLOURS[reduction], "") for reduction in reductions]
    entries += [(name, colour, ' stroke-dasharray="5 4"') for name, colour in _BANDS.items()]
    parts = []
    for number, (name, colour, dashes) in enumerate(entries):
        x = _LEFT + 150 * number
        parts.append(f'<line x1="{x:g}" x2="{x + 24:g}" y1="20" y2="20" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="{x + 30:g}" y="24">{escape(name)}</text>')
    return "".join(parts)


def _range(scores: Sequence[Estimate]) -> tuple[float, float]:
    """The accuracies shown, with some air; 0 to 100 where every run diverged."""
    shown = [score for score in scores if math.isfinite(score.mean)]
    if not shown:
        return 0.0, 100.0
    ends = [
        score.mean + sign * (score.error if math.isfinite(score.error) else 0.0) for score in shown for sign in (-1, 1)
    ]
    air = max(0.08 * (max(ends) - min(ends)), 0.05)
    return min(ends) - air, max(ends) + air


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return [round(number * step, 6) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
