"""The curve of a unimodal search draws the numbers it is given, few or many."""

from __future__ import annotations

from typing import Any

import pytest
from figure_checks import series, svg_texts, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fakes import CURVE_POINTS, picture, point

from tuner.report.curve_chart import OFF_AXIS, curve_chart, curve_svg

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)


def marks(figure: Any) -> list[tuple[float, float]]:  # noqa: ANN401 - a Figure
    """Places of the marks of trials."""
    return [tuple(line.get_xydata()[0]) for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"]


def test_every_trial_is_a_mark_at_its_value_and_its_score() -> None:
    shown = picture()
    drawn = series(curve_chart(shown, "m"))
    place = shown.axis.place
    assert drawn["curve"] == [(place(x), y) for x, y in zip(shown.values, shown.mean, strict=True)]
    assert drawn["complete"] == [(place(0.0), 0.80)]
    assert drawn["pruned"] == [(place(5.0), 0.82)]
    assert drawn["best"] == [(place(30.0), 0.85)]
    assert drawn["running"] == [(place(12.0), 0.83)]
    assert len(marks(curve_chart(shown, "m"))) == len(CURVE_POINTS)
    said = texts(curve_chart(shown, "m"))
    for expected in ("smoothing_radius", "m", "trial 1", "never started"):
        assert expected in said


def test_a_collapse_does_not_flatten_the_top_and_is_marked_at_the_edge() -> None:
    figure = curve_chart(picture(), "m")
    assert figure is not None
    low, high = figure.axes[0].get_ylim()
    assert (0.85 - 0.80) / (high - low) > 0.2, "from 0.80 to 0.85 is a good part of the picture"
    assert series(figure)[OFF_AXIS] == [(picture().axis.place(100.0), low)]


@pytest.mark.parametrize(
    ("changes", "shaded"),
    [
        ({}, [(-0.03, 10.0), (60.0, 1.03)]),
        ({"below": None}, [(-0.03, 10.0)]),
        ({"above": None}, [(60.0, 1.03)]),
        ({"above": None, "below": None}, []),
        ({"unimodal": False, "above": 60.0, "below": 10.0}, []),
    ],
)
def test_what_is_excluded_is_shaded(changes: dict[str, object], shaded: list[tuple[float, float]]) -> None:
    shown = picture(**changes)
    figure = curve_chart(shown, "m")
    assert figure is not None
    found = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in figure.axes[0].patches]  # type: ignore[attr-defined]
    place = shown.axis.place
    expected = [(a if a < 0 else place(a), b if b == 1.03 else place(b)) for a, b in shaded]
    assert found == [pytest.approx(pair) for pair in expected]
    assert any(shown.where in text for text in texts(figure)) is bool(shaded) or not shown.where


@settings(max_examples=5)
@given(scores=st.lists(FINITE, min_size=1, max_size=7), mean=st.lists(FINITE, min_size=4, max_size=4), up=st.booleans())
def test_any_finite_numbers_stay_inside_the_frame(scores: list[float], mean: list[float], *, up: bool) -> None:
    points = tuple(
        point(n, 100.0 * n / 7, value, (n + 1) / 7, ("complete", "pruned", "running")[n % 3])
        for n, value in enumerate(scores)
    )
    band = {"band_low": tuple(value - 1 for value in mean), "band_high": tuple(value + 1 for value in mean)}
    figure = curve_chart(picture(points=points, best=0, mean=tuple(mean), maximize=up, **band), "m")
    assert figure is not None
    low, high = figure.axes[0].get_ylim()
    assert all(0 <= x <= 1 and low <= y <= high for x, y in marks(figure))
    texts(figure)


def test_the_file_of_a_curve_stands_on_its_own_and_says_what_is_seen() -> None:
    shown = picture(parameter='<b>"R" & co')
    svg = curve_svg(shown, "<i>score", "<title>")
    said = " ".join(svg_texts(svg))
    for expected in ('<b>"R" & co', "<i>score", "<title>"):
        assert expected in said
    for sentence in shown.sentences:
        assert sentence in " ".join(said.split())
    assert curve_svg(shown, "m", "a") == curve_svg(shown, "m", "a")
    assert curve_svg(picture(points=()), "m", "a") == ""
