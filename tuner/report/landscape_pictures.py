"""The landscape of models as pictures that stand alone (SVG by hand) and as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from rich.table import Table

from tuner.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, Frame
from tuner.report.sweep_report import format_value

__all__ = ["line_svg", "plane_svg", "table"]

Model = Mapping[str, Any]
Point = tuple[float, float]

_COLOURS = ("#1f6fb4", "#d9660a", "#1f8a4c", "#a4377f", "#6b5bd0", "#7a6a12")  # told apart by most eyes
_DASHES = ("", "6 3", "2 3")
_BANDS = 14
_FINE = 4  # each cell of a plane is drawn as 4 by 4, between which the loss is interpolated
_SCALE = ((40, 50, 120), (35, 120, 150), (60, 170, 120), (190, 205, 70), (250, 235, 150))  # low to high
_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1b2430}"
    ".grid{stroke:#e1e5ea}.tick{font-size:11px;fill:#5b6776}.label{font-size:12.5px}"
    ".title{font-size:14px;font-weight:600}.key{font-size:12.5px}"
)
_WIDTH, _HEIGHT, _GAP = 440.0, 300.0, 26.0
_SQUARE = _HEIGHT - TOP - BOTTOM + LEFT + RIGHT  # width of a panel whose plot is as wide as it is high
_HEAD = 24.0  # of a panel: its title
_TITLE = 30  # letters that fit over the plot of a plane


def table(models: Sequence[Model]) -> Table:
    """A row a model: what it is, loss and accuracy, sharpness by the best and the worst start, the ends of the line."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("model", overflow="fold")
    made.add_column("method", overflow="fold")
    ends = models[0]["line"]["coordinates"]
    heads = (
        "ε",
        "loss",
        "accuracy",
        "sharpness ≥",
        "lowest start",
        f"loss at α = {ends[0]:g}",
        f"loss at α = {ends[-1]:g}",
    )
    for head in heads:
        made.add_column(head, justify="right", no_wrap=True)
    for model in models:
        losses = model["line"]["losses"]
        found = model["sharpness"]
        numbers = (model["loss"], model["accuracy"], found["value"], min(found["by_start"]), losses[0], losses[-1])
        made.add_row(
            model["label"],
            f"{model['method']}, {model['model']}",
            f"{model['epsilon']:g}",
            *(format_value(each) for each in numbers),
        )
    return made


def line_svg(models: Sequence[Model]) -> str:
    """Loss and accuracy along one direction, a panel each, all models in both."""
    panels = []
    for title, key, log in (("loss", "losses", None), ("accuracy", "accuracies", False)):
        lines = [_finite(model["line"]["coordinates"], model["line"][key]) for model in models]
        panels.append(_lines(title, lines, log=log))
    keys = [f"{model['label']}  (sharpness ≥ {format_value(model['sharpness']['value'])})" for model in models]
    legend = "".join(
        f'<line x1="0" x2="26" y1="{18 * at - 4}" y2="{18 * at - 4}" {_stroke(at)}/>'
        f'<text class="key" x="34" y="{18 * at}">{escape(key)}</text>'
        for at, key in enumerate(keys)
    )
    width, height = 2 * _WIDTH + _GAP, _HEAD + _HEIGHT
    body = "".join(
        f'<g transform="translate({number * (_WIDTH + _GAP):g} 0)">{panel}</g>' for number, panel in enumerate(panels)
    )
    body += f'<g transform="translate({LEFT:g} {height + 22:g})">{legend}</g>'
    return _picture(body, width, height + 18 * len(keys) + 18, "loss and accuracy along a random direction")


def plane_svg(models: Sequence[Model]) -> str:
    """The loss over two directions, a panel a model, one scale of colours for all."""
    known = [loss for model in models for row in model["plane"]["losses"] for loss in row if loss is not None]
    scale = _Bands.over(known)
    panels = [_heat(model, scale) for model in models]
    body = "".join(f'<g transform="translate({at * (_SQUARE + _GAP):g} 0)">{one}</g>' for at, one in enumerate(panels))
    width = len(panels) * (_SQUARE + _GAP)
    body += f'<g transform="translate({width:g} {_HEAD + TOP:g})">{scale.key(_HEIGHT - TOP - BOTTOM)}</g>'
    return _picture(body, width + 100, _HEAD + _HEIGHT, "loss over two random directions")


class _Bands:
    """Colours for losses, in bands of equal width on a logarithmic scale."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, max(high, low * (1 + 1e-9))

    @classmethod
    def over(cls, losses: Sequence[float]) -> _Bands:
        positive = [loss for loss in losses if loss > 0] or [1.0]
        return cls(min(positive), max(positive))

    def of(self, loss: float | None) -> int | None:
        """The band of a loss; None where there is none."""
        if loss is None:
            return None
        part = math.log(max(loss, self._low) / self._low) / math.log(self._high / self._low)
        return min(_BANDS - 1, int(part * _BANDS))

    @staticmethod
    def colour(band: int | None) -> str:
        if band is None:
            return "#ffffff"
        at = band / (_BANDS - 1) * (len(_SCALE) - 1)
        low = min(int(at), len(_SCALE) - 2)
        mixed = (round(a + (b - a) * (at - low)) for a, b in zip(_SCALE[low], _SCALE[low + 1], strict=True))
        return "#" + "".join(f"{each:02x}" for each in mixed)

    def key(self, height: float) -> str:
        """The scale as a bar, lowest loss at the foot."""
        step = height / _BANDS
        parts = []
        for band in range(_BANDS):
            y = height - (band + 1) * step
            parts.append(f'<rect x="0" y="{y:.1f}" width="16" height="{step + 0.3:.1f}" fill="{self.colour(band)}"/>')
            if band % 3 == 0:
                edge = self._low * (self._high / self._low) ** (band / _BANDS)
                parts.append(f'<text class="tick" x="22" y="{y + step + 4:.1f}">{edge:.3g}</text>')
        parts.append(f'<text class="tick" x="22" y="4">{self._high:.3g}</text>')
        return "".join(parts)


def _heat(model: Model, scale: _Bands) -> str:
    """One model's plane as rows of equal colour; θ in the middle."""
    coordinates, losses = model["plane"]["coordinates"], model["plane"]["losses"]
    edge = coordinates[-1]
    x, y = Axis(-edge, edge, LEFT, _SQUARE - RIGHT), Axis(-edge, edge, _HEIGHT - BOTTOM, TOP)
    fine = (len(coordinates) - 1) * _FINE
    wide, high = (x.end - x.start) / fine, (y.start - y.end) / fine
    parts = []
    for row in range(fine):
        # The first direction runs to the right, the second upwards.
        bands = [scale.of(_between(losses, (column + 0.5) / _FINE, (row + 0.5) / _FINE)) for column in range(fine)]
        at, top = 0, y.start - (row + 1) * high
        for band, run in groupby(bands):
            length = len(list(run))
            parts.append(
                f'<rect x="{x.start + at * wide:.2f}" y="{top:.2f}" width="{length * wide + 0.2:.2f}" '
                f'height="{high + 0.2:.2f}" fill="{scale.colour(band)}"/>'
            )
            at += length
    centre = f'<circle cx="{x.at(0):.1f}" cy="{y.at(0):.1f}" r="3.5" fill="#fff" stroke="#1b2430"/>'
    frame = Frame(_SQUARE, _HEIGHT, x, y)
    label = model["label"]
    title = label if len(label) <= _TITLE else f"{label[: _TITLE - 1]}…"
    cells = f'<g shape-rendering="crispEdges">{"".join(parts)}</g>{centre}'
    return _panel(title, frame.draw(cells, x_label="α₁ (α₂ upwards)", y_label="α₂"), _SQUARE)


def _between(losses: Sequence[Sequence[float | None]], first: float, second: float) -> float | None:
    """The loss between four grid points, linear in both directions; None beside one that is not finite."""
    i, j = int(first), int(second)
    corners = [losses[i + a][j + b] for a in (0, 1) for b in (0, 1)]
    if any(corner is None for corner in corners):
        return None
    a, b = first - i, second - j
    weights = ((1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b)
    return math.fsum(weight * corner for weight, corner in zip(weights, corners, strict=True) if corner is not None)


def _lines(title: str, lines: Sequence[Sequence[Point]], *, log: bool | None) -> str:
    points = [point for line in lines for point in line] or [(0.0, 0.0)]
    frame = Frame(
        _WIDTH,
        _HEIGHT,
        Axis.over([x for x, _ in points], LEFT, _WIDTH - RIGHT),
        Axis.over([y for _, y in points], _HEIGHT - BOTTOM, TOP, log=log),
    )
    body = ""
    for number, line in enumerate(lines):
        path = " ".join(f"{frame.x.at(x):.1f},{frame.y.at(y):.1f}" for x, y in line)
        body += f'<polyline fill="none" points="{path}" {_stroke(number)}/>'
    return _panel(title, frame.draw(body, x_label="α", y_label=title), _WIDTH)


def _panel(title: str, chart: str, width: float) -> str:
    placed = chart.replace("<svg ", f'<svg y="{_HEAD:g}" width="{width:g}" height="{_HEIGHT:g}" ', 1)
    return f'<text class="title" x="{LEFT:g}" y="17">{escape(title)}</text>{placed}'


def _stroke(number: int) -> str:
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    return f'stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-width="2"' + (
        f' stroke-dasharray="{dash}"' if dash else ""
    )


def _finite(xs: Sequence[float], ys: Sequence[float | None]) -> list[Point]:
    return [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None]


def _picture(body: str, width: float, height: float, about: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(about)}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{body}</svg>\n'
    )
