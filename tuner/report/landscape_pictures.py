"""Pictures (SVG) of the loss landscape of models, and a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tuner.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, new_figure, plain_ticks, styled
from tuner.report.wording import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["landscape_table", "line_chart", "plane_chart"]

Model = Mapping[str, Any]

_COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, BLACK)
_DASHES = ("-", "--", ":", "-.")
_BANDS = 14
_SPREAD = 20  # ratio of losses from which their axis is logarithmic
_TITLE = 30  # characters that fit above a plane


def landscape_table(models: Sequence[Model]) -> Table:
    """Return a table with one row per model.

    A row has the loss, the accuracy, the range of the sharpness, and the loss at both ends of the random line. The
    sharpness depends on the random start, so its smallest and its largest value are shown.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("model", overflow="fold")
    made.add_column("method", overflow="fold")
    ends = models[0]["line"]["coordinates"]
    at_ends = (f"loss at α = {ends[0]:g}", f"loss at α = {ends[-1]:g}")
    for head in ("ε", "loss", "accuracy", "sharpness ≥", "lowest start", *at_ends):
        made.add_column(head, justify="right", no_wrap=True)
    for model in models:
        losses = model["line"]["losses"]
        found = model["sharpness"]
        numbers = (model["loss"], model["accuracy"], found["value"], min(found["by_start"]), losses[0], losses[-1])
        cells = (f"{model['method']}, {model['model']}", f"{model['epsilon']:g}", *map(format_value, numbers))
        made.add_row(model["label"], *cells)
    return made


@styled()
def line_chart(models: Sequence[Model]) -> Figure:
    """Draw loss and accuracy along one random direction, in two panels with all models."""
    figure = new_figure(9.0, 3.6 + 0.2 * len(models))
    panels = figure.subplots(1, 2)
    for panel, title, key in zip(panels, ("loss", "accuracy"), ("losses", "accuracies"), strict=True):
        panel.set(title=title, xlabel="α, distance along the direction", ylabel=title)
        for number, model in enumerate(models):
            xs, ys = model["line"]["coordinates"], [_or_nan(value) for value in model["line"][key]]
            label = f"{model['label']}  (sharpness ≥ {format_value(model['sharpness']['value'])})"
            colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
            panel.plot(xs, ys, color=colour, linestyle=dash, linewidth=2, label=label)
    losses = [loss for model in models for loss in model["line"]["losses"] if loss is not None]
    if losses and min(losses) > 0 and max(losses) / min(losses) >= _SPREAD:
        panels[0].set_yscale("log")
    for panel in panels:
        plain_ticks(panel.xaxis)
        plain_ticks(panel.yaxis)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left")
    return figure


@styled()
def plane_chart(models: Sequence[Model]) -> Figure:
    """Draw the loss over two random directions, one panel per model, with one colour scale for all."""
    import numpy as np
    from matplotlib.colors import LogNorm

    every = [loss for model in models for row in model["plane"]["losses"] for loss in row]
    known = [loss for loss in every if loss is not None and loss > 0] or [1.0]
    low, high = min(known), max(*known, min(known) * 1.001)
    levels = np.geomspace(low, high, _BANDS + 1)
    figure = new_figure(3.4 * len(models) + 1.0, 3.6)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for panel, model in zip(panels, models, strict=True):
        label = model["label"]
        title = label if len(label) <= _TITLE else f"{label[: _TITLE - 1]}…"
        panel.set(title=title, xlabel="α₁", ylabel="α₂", aspect="equal")
        coordinates = model["plane"]["coordinates"]
        # The first direction points right, the second up; losses that are not numbers stay white.
        losses = np.array([[_or_nan(loss) for loss in row] for row in model["plane"]["losses"]]).T
        shown = np.ma.masked_invalid(np.clip(losses, low, high))
        bands = panel.contourf(coordinates, coordinates, shown, levels=levels, norm=LogNorm(low, high), cmap="viridis")
        panel.plot([0], [0], marker="o", color=BLACK, markerfacecolor="white", linestyle="none")
    bar = figure.colorbar(bands, ax=panels, label="loss")
    plain_ticks(bar.ax.yaxis)
    return figure


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
