"""Line charts for the pages, as SVG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a chart.

    Attributes:
        label: in the legend.
        xs: places on the horizontal axis.
        ys: values there.
        errors: half of the length of each whisker; none when empty.
        style: of matplotlib, such as 'o-' for points that are joined.
        line: slope and intercept of a straight line to draw through points, or None.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    errors: Sequence[float] = ()
    style: str = "o-"
    line: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart of a row of charts.

    Attributes:
        title: above it.
        x_label: of the horizontal axis.
        y_label: of the vertical axis.
        series: its lines.
        bands: horizontal bands as (label, middle, half of the width).
        ticks: labels of the places 0, 1, 2, ...; empty for a numeric axis that starts at 0.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    bands: Sequence[tuple[str, float, float]] = ()
    ticks: Sequence[str] = ()


def write_charts(path: Path, panels: Sequence[Panel]) -> None:
    """Write panels next to each other."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(5.5 * len(panels), 4), layout="constrained")
    for axes, panel in zip(picture.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
        for place, (label, middle, half) in enumerate(panel.bands):
            colour = f"C{len(panel.series) + place}"
            axes.axhspan(middle - half, middle + half, color=colour, alpha=0.2)
            axes.axhline(middle, color=colour, linestyle="--", label=label)
        for each in panel.series:
            errors = list(each.errors) or None
            drawn = axes.errorbar(each.xs, each.ys, yerr=errors, fmt=each.style, label=each.label)
            if each.line is not None:
                slope, intercept = each.line
                axes.plot([0, max(each.xs)], [intercept, slope * max(each.xs) + intercept], color=drawn[0].get_color())
        if panel.ticks:
            axes.set_xticks(range(len(panel.ticks)), panel.ticks)
        else:
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, format="svg")
