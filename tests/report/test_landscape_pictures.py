"""The pictures of loss landscapes draw the numbers of every model, and need nothing but themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest
from figure_checks import texts

from tuner.report.landscape_pictures import line_chart, plane_chart


def drawn(label: str, losses: list[float | None]) -> dict[str, Any]:
    """A model as the pictures take it."""
    line = {"coordinates": [-1.0, 0.0, 1.0], "losses": losses, "accuracies": [0.1, 0.9, 0.2]}
    return {
        "label": label,
        "loss": 1.0,
        "sharpness": {"value": 2.5},
        "line": line,
        "plane": {**line, "losses": [losses] * 3},
    }


def test_pictures_stand_alone_and_show_what_is_finite() -> None:
    models = [drawn("<b> & $c$", [1e-3, 1.0, 1e4]), drawn("gaps", [None, 1.0, None]), drawn("flat", [0.0, 0.0, 0.0])]
    for figure in (line_chart(models), plane_chart(models), plane_chart([models[2]]), line_chart(models * 7)):
        words = texts(figure)
        assert not {"nan", "inf", "-inf"} & set(words)
        assert any("$c$" in text or "flat" in text for text in words)


def test_each_panel_draws_the_numbers_of_every_model() -> None:
    models = [drawn("one", [5.0, 1.0, 3.0]), drawn("gaps", [None, 2.0, 4.0])]
    loss, accuracy = line_chart(models).axes
    assert [list(line.get_ydata()) for line in loss.get_lines()] == [
        [5.0, 1.0, 3.0],
        [pytest.approx(math.nan, nan_ok=True), 2.0, 4.0],
    ]
    assert [list(line.get_ydata()) for line in accuracy.get_lines()] == [[0.1, 0.9, 0.2]] * 2
    assert all(list(line.get_xdata()) == [-1.0, 0.0, 1.0] for line in loss.get_lines())
    assert loss.get_yscale() == "linear"
    wide = line_chart([drawn("wide", [1e-3, 1.0, 1e4])])
    assert wide.axes[0].get_yscale() == "log"


def test_a_plane_has_a_panel_a_model_and_one_scale_of_colours() -> None:
    first, second, bar = plane_chart([drawn("one", [1.0, 2.0, 3.0]), drawn("two", [3.0, 4.0, 8.0])]).axes
    assert (first.get_title(), second.get_title(), bar.get_ylabel()) == ("one", "two", "loss")
    limits = {each.get_clim() for panel in (first, second) for each in panel.collections}
    assert limits == {(1.0, 8.0)}
