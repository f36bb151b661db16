"""Privacy curve of a cap: its (ε, δ) pairs for the card, and a picture that is drawn from the card alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from tuner.figures import BLUE, ORANGE, RED, new_figure, styled, svg_text
from tuner.privacy.accountant.filters import Filter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["claim_curve", "curve_figure", "picture_numbers", "render_svg"]

_DELTAS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9)
"""The δ values of every curve. Each curve also has a point at the search's own δ."""

_LINES: dict[str, dict[str, Any]] = {
    "training": {"color": BLUE, "marker": "o", "label": "training records: each dot is a guaranteed (ε, δ)"},
    "validation": {"color": ORANGE, "marker": "s", "linestyle": "--", "label": "validation records"},
}


def claim_curve(filter: Filter, delta: float) -> list[dict[str, float]]:
    """Return upper bounds of ε for a search with this privacy filter, at the search's `delta` and at each of `_DELTAS`.

    Returns:
        Rows of ``delta`` and ``epsilon``, from the largest δ to the smallest. Rows with infinite ε are left out.
    """
    deltas = sorted({*_DELTAS, delta}, reverse=True)
    pairs = zip(deltas, filter.claims(deltas), strict=True)
    return [{"delta": value, "epsilon": epsilon} for value, epsilon in pairs if isfinite(epsilon)]


def picture_numbers(card: Mapping[str, Any]) -> tuple[str, str]:
    """Return the picture's two texts that contain numbers: the label of the claimed (ε, δ), and the description."""
    claim = card["claim"]
    mark = f"claimed: ε = {claim['epsilon']!r}, δ = {claim['delta']!r}"
    curves = "; ".join(
        f"{name} records: " + ", ".join(f"ε = {epsilon:.6g} at δ = {delta:g}" for epsilon, delta in line)
        for name, line in _lines(card).items()
    )
    return mark, f"{mark}. {curves}."


def render_svg(card: Mapping[str, Any]) -> str:
    """Return the chart of `curve_figure` as SVG text with a title and a description."""
    _, description = picture_numbers(card)
    return svg_text(curve_figure(card), _title(card), description)


@styled()
def curve_figure(card: Mapping[str, Any]) -> Figure:
    """Return a card's chart: a curve for training records, a curve for validation records, and the claimed (ε, δ).

    Raises:
        KeyError: the card lacks a field.
        ValueError: a number is out of range.
    """
    claim, lines = card["claim"], _lines(card)
    mark = (float(claim["epsilon"]), float(claim["delta"]))
    points = [mark, *(point for line in lines.values() for point in line)]
    if not all(isfinite(epsilon) and epsilon > 0 and 0 < delta < 1 for epsilon, delta in points):
        raise ValueError("a curve must have finite ε > 0 and δ in (0, 1)")
    figure = new_figure(6.4, 4.4)
    axes = figure.add_subplot(xlabel="ε", ylabel="δ (logarithmic)", yscale="log")
    for name, line in lines.items():
        epsilons, deltas = zip(*line, strict=True)
        axes.plot(epsilons, deltas, markersize=5, **_LINES[name])
    label, _ = picture_numbers(card)
    axes.plot(*mark, color=RED, marker="D", markersize=9, markerfacecolor="none", linestyle="none", label=label)
    axes.set_xlim(left=0.0)
    axes.yaxis.set_major_formatter(lambda delta, _: f"{delta:.0e}")
    axes.minorticks_off()
    title = _title(card)
    axes.set_title(title if len(title) <= 70 else f"{title[:69]}…")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _title(card: Mapping[str, Any]) -> str:
    return f"Privacy curve of {card['claim']['search']}"


def _lines(card: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(float(row["epsilon"]), float(row["delta"])) for row in card[section]["curve"]]
        for name, section in (("training", "training_cap"), ("validation", "validation_cap"))
        if card[section] is not None
    }
