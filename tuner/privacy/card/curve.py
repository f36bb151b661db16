"""The (ε, δ) curve of a cap, and its drawing: a self-contained SVG that follows from the card alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from typing import Any

from tuner.privacy.accountant.filters import Filter

__all__ = ["curve_of", "render_svg"]

_DELTAS = tuple(float(f"1e-{half // 2}" if half % 2 == 0 else f"3e-{half // 2 + 1}") for half in range(4, 19))
"""1e-2, 3e-3, 1e-3, …, 1e-9."""

_WIDTH, _HEIGHT = 640.0, 400.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 74.0, 20.0, 54.0, 52.0
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.small{font-size:12px;fill:#4b5763}.title{font-size:15px;"
    "font-weight:600}.grid{stroke:#d9dee3}.axis{stroke:#7b8794}.training{fill:none;stroke:#1f5fa8;stroke-width:2}"
    ".validation{fill:none;stroke:#a8561f;stroke-width:2;stroke-dasharray:6 4}.training-dot{fill:#1f5fa8}"
    ".validation-dot{fill:#a8561f}.claim{fill:#fff;stroke:#b00020;stroke-width:2.5}"
)


def curve_of(filter: Filter, delta: float) -> list[dict[str, float]]:
    """ε at many δ, `delta` among them: each pair is a claim of its own for everything that the filter admits.

    Args:
        filter: the cap.
        delta: of the search.

    Returns:
        ``delta`` and ``epsilon``, δ falling; without those δ at which nothing can be told.
    """
    deltas = sorted({*_DELTAS, delta}, reverse=True)
    pairs = zip(deltas, filter.claims(deltas), strict=True)
    return [{"delta": value, "epsilon": epsilon} for value, epsilon in pairs if isfinite(epsilon)]


def render_svg(card: Mapping[str, Any]) -> str:
    """The curve of a card as a picture: ε to the right, δ upwards on a logarithmic axis.

    Args:
        card: what `build_card` made, or `parse_card` read.

    Raises:
        KeyError: the card lacks a field.
        ValueError: a number is none.
    """
    claim = card["claim"]
    lines = [
        (name, [(float(row["epsilon"]), float(row["delta"])) for row in card[section]["curve"]])
        for name, section in (("training", "training_cap"), ("validation", "validation_cap"))
        if card[section] is not None
    ]
    mark = (float(claim["epsilon"]), float(claim["delta"]))
    points = [mark, *(point for _, line in lines for point in line)]
    if not all(isfinite(x) and x > 0 and 0 < y < 1 for x, y in points):
        raise ValueError("a curve must have finite ε > 0 and δ in (0, 1)")
    high_x = max(x for x, _ in points) * 1.06
    low_y, high_y = floor(min(log10(y) for _, y in points)), ceil(max(log10(y) for _, y in points))
    high_y = max(high_y, low_y + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + x / high_x * (_WIDTH - _LEFT - _RIGHT)
        return across, _TOP + (high_y - log10(y)) / (high_y - low_y) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [*_frame(high_x, low_y, high_y, at), *(_line(name, line, at) for name, line in lines)]
    x, y = at(*mark)
    said = f"claimed: ε = {claim['epsilon']!r}, δ = {claim['delta']!r}"
    parts.append(f'<circle class="claim" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(said)}</title></circle>')
    parts += _legend([name for name, _ in lines], said)
    title = f"Privacy curve of {claim['search']}"
    steps = "; ".join(
        f"{name} records: " + ", ".join(f"ε {x:.4g} at δ {y:.0e}" for x, y in line) for name, line in lines
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-labelledby="title description">\n<title id="title">{escape(title)}</title>\n'
        f'<desc id="description">{escape(f"{said}. {steps}.")}</desc>\n<style>{_STYLE}</style>\n'
        f'<rect width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="#fff"/>\n'
        f'<text class="title" x="{_LEFT:g}" y="22">{escape(_short(title))}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _frame(high_x: float, low_y: int, high_y: int, at: Any) -> list[str]:  # noqa: ANN401 - a local function
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    every = max(1, (high_y - low_y + 7) // 8)
    for power in range(low_y, high_y + 1):
        y = at(0.0, 10.0**power)[1]
        parts.append(f'<line class="grid" x1="{_LEFT:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if (power - low_y) % every == 0:
            label = f"1e{power}" if power else "1"
            parts.append(f'<text class="small" x="{_LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    step = _step(high_x)
    for number in range(floor(high_x / step) + 1):
        x = at(number * step, 10.0**low_y)[0]
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP:g}" y2="{bottom:g}"/>')
        parts.append(
            f'<text class="small" x="{x:.1f}" y="{bottom + 18:g}" text-anchor="middle">{number * step:.6g}</text>'
        )
    parts.append(f'<path class="axis" fill="none" d="M{_LEFT:g} {_TOP:g}V{bottom:g}H{right:g}"/>')
    middle_x, middle_y = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(f'<text x="{middle_x:g}" y="{_HEIGHT - 10:g}" text-anchor="middle">ε</text>')
    parts.append(
        f'<text x="18" y="{middle_y:g}" text-anchor="middle" transform="rotate(-90 18 {middle_y:g})">'
        "δ (logarithmic)</text>"
    )
    return parts


def _line(name: str, line: Sequence[tuple[float, float]], at: Any) -> str:  # noqa: ANN401 - a local function
    places = [at(x, y) for x, y in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle class="{name}-dot" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>ε = {epsilon:.6g} at δ = {delta:g}</title>'
        "</circle>"
        for (x, y), (epsilon, delta) in zip(places, line, strict=True)
    )
    return f'<polyline class="{name}" points="{path}"/>{dots}'


def _legend(names: Sequence[str], said: str) -> list[str]:
    parts, x = [], _LEFT
    words = {"training": "records that train: each dot is a claim", "validation": "records that validate"}
    for name in names:
        parts.append(f'<line class="{name}" x1="{x:g}" x2="{x + 22:g}" y1="40" y2="40"/>')
        parts.append(f'<text class="small" x="{x + 28:g}" y="44">{words[name]}</text>')
        x += 48 + 6.1 * len(words[name])
    parts.append(f'<circle class="claim" cx="{x + 6:g}" cy="40" r="5"/>')
    # Next to the legend where there is room; the numbers stand in the title of the mark as well.
    parts.append(f'<text class="small" x="{x + 16:g}" y="44">{escape(said if len(names) == 1 else "claimed")}</text>')
    return parts


def _step(high: float) -> float:
    """A round distance of ticks, of which about six fit."""
    rough = high / 6
    unit = 10.0 ** floor(log10(rough))
    return float(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough))


def _short(text: str) -> str:
    return text if len(text) <= 70 else f"{text[:69]}…"
