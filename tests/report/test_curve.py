"""The curve of a unimodal search and what was spent: well-formed with few and many points, told without colour too."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import report, row, view
from rich.console import Console
from test_html import check

from tuner.report.charts import Axis
from tuner.report.curve_chart import curve_chart, curve_ticks, spending_chart, standalone
from tuner.report.live import LiveView
from tuner.report.page import render
from tuner.report.spending import Spending, spending
from tuner.report.text import summary
from tuner.study.types import TrialStatus
from tuner.study.unimodal.inference.picture import NEVER_STARTED, CurvePicture, CurvePoint

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)


def point(trial: int, value: float, score: float | None, fraction: float = 1.0, state: str = "complete") -> CurvePoint:
    return CurvePoint(trial=trial, value=value, score=score, fraction=fraction, state=state)


POINTS = (
    point(0, 0.0, 0.80),
    point(1, 30.0, 0.85),
    point(2, 5.0, 0.82, 0.5, "pruned"),
    point(3, 12.0, 0.83, 0.25, "running"),
    point(4, 90.0, None, 0.0, NEVER_STARTED),
    point(5, 60.0, None, 0.0, "running"),
    point(6, 100.0, 0.10),
)


def made(**changes: object) -> CurvePicture:
    values: dict[str, Any] = {
        "parameter": "smoothing_radius",
        "low": 0.0,
        "high": 100.0,
        "warp": "log1p",
        "values": (0.0, 10.0, 30.0, 100.0),
        "mean": (0.80, 0.83, 0.85, 0.10),
        "band_low": (0.79, 0.82, 0.845, 0.05),
        "band_high": (0.81, 0.84, 0.855, 0.15),
        "height_at": 1.0,
        "above": 10.0,
        "below": 60.0,
        "points": POINTS,
        "best": 1,
        "near": 0.93,
        "tolerance": 0.002,
    }
    return CurvePicture(**{**values, **changes})


BARE = {"values": (), "mean": (), "band_low": (), "band_high": (), "height_at": 0.0, "above": None, "below": None}


def tree(chart: str) -> ElementTree.Element:
    return ElementTree.fromstring(chart)


def marks(chart: str) -> list[str]:
    """Classes of what is drawn for trials."""
    return re.findall(r'<(?:circle|path) class="((?:point|open|cross)[^"]*)"', chart)


def test_every_trial_is_a_mark_of_its_states_own_shape() -> None:
    chart = curve_chart(made(), "validation_accuracy")
    found = marks(chart)
    assert len(found) == len(POINTS)
    assert sorted(found) == [
        "cross never-started",
        "open running",
        "open running",
        "point best",
        "point complete",
        "point complete",
        "point pruned",
    ]
    hints = [item.text for item in tree(chart).iter("title")]
    assert "trial 2, pruned\nsmoothing_radius 5\nvalidation_accuracy 0.82 after 50% of the steps" in hints
    assert "trial 4, never started\nsmoothing_radius 90" in hints


def test_points_are_larger_the_more_steps_were_taken() -> None:
    sizes = {
        circle.attrib["class"]: float(circle.attrib["r"])
        for circle in tree(curve_chart(made(best=None, near=None), "m")).iter("circle")
    }
    assert sizes["point complete"] > sizes["point pruned"] > 2


@pytest.mark.parametrize("points", [(), POINTS[:1], POINTS[5:6], POINTS])
@pytest.mark.parametrize("known", [True, False])
def test_none_one_and_many_points_with_and_without_a_curve(points: tuple[CurvePoint, ...], *, known: bool) -> None:
    best = 1 if len(points) > 1 else None
    shown = made(points=points, best=best, near=0.9 if best else None, **({} if known else BARE))
    chart = curve_chart(shown, "m")
    assert bool(chart) == bool(points)
    page = render(report(curves=(shown,)))
    check(page)
    assert ("Curve of smoothing_radius" in page) == bool(points)
    if points:
        assert len(marks(chart)) == len(points)
        tree(standalone(shown, "m", "a title"))


def test_zero_stands_at_the_left_end_and_ticks_are_round() -> None:
    ticks = curve_ticks(made(high=300.0))
    assert {"0", "1", "10", "100"} <= {label for _, label in ticks}
    places = [made(high=300.0).axis.place(value) for value, _ in ticks]
    assert places == sorted(places)
    assert min(right - left for left, right in itertools.pairwise(places)) > 0.05
    circles = [c for c in tree(curve_chart(made(), "m")).iter("circle") if "trial 0," in (c.findtext("title") or "")]
    left = [float(line.attrib["x1"]) for line in tree(curve_chart(made(), "m")).iter("line")]
    assert float(circles[0].attrib["cx"]) in left, "on the line of its tick"


@pytest.mark.parametrize(
    ("low", "high", "warp"),
    [
        (0.0, 0.5, "log1p"),
        (20.0, 30.0, "log1p"),
        (1e-4, 2.0, "log"),
        (0.9, 1.1, "log"),
        (-3.0, 5.0, "linear"),
        (0.0, 1e9, "log1p"),
    ],
)
def test_every_axis_has_ticks_inside_it(low: float, high: float, warp: Any) -> None:  # noqa: ANN401 - a Literal
    ticks = curve_ticks(made(low=low, high=high, warp=warp))
    assert len(ticks) >= 3
    assert all(low <= value <= high for value, _ in ticks)
    assert [float(label) for _, label in ticks] == pytest.approx([value for value, _ in ticks], rel=1e-5)


def test_what_is_excluded_is_shaded_between_labelled_limits() -> None:
    chart = curve_chart(made(), "m")
    assert "best between 10 and 60, level 1 %" in chart
    assert chart.count('class="outside"') == chart.count('class="limit"') == 2
    for known, words, shaded in (
        ({"below": None}, "best above 10, level 1 %", 1),
        ({"above": None}, "best below 60, level 1 %", 1),
        ({"above": None, "below": None}, None, 0),
        ({"unimodal": False, "above": 60.0, "below": 10.0}, None, 0),
    ):
        chart = curve_chart(made(**known), "m")
        assert chart.count('class="outside"') == shaded
        assert ("best " in chart.replace("point best", "").split("<text", 1)[1]) == (words is not None)
        assert words is None or words in chart


def test_a_collapse_does_not_flatten_the_top() -> None:
    chart = curve_chart(made(), "m")
    (collapsed,) = (item for item in tree(chart).iter("path") if "off the axis" in (item.findtext("title") or ""))
    assert "m 0.1 after 100% of the steps" in (collapsed.findtext("title") or "")
    circles = {item.attrib["class"] + (item.findtext("title") or ""): item for item in tree(chart).iter("circle")}
    heights = [float(item.attrib["cy"]) for item in circles.values()]
    assert max(heights) - min(heights) > 60, "from 0.80 to 0.85 is a good part of the picture"
    assert "off the axis: see the tables" in check(render(report(curves=(made(),))))


def test_where_less_is_better_the_same_is_upside_down() -> None:
    def turned(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(-value for value in values)

    shown = made(
        maximize=False,
        mean=turned(made().mean),
        band_low=turned(made().band_high),
        band_high=turned(made().band_low),
        points=tuple(
            point(p.trial, p.value, None if p.score is None else -p.score, p.fraction, p.state) for p in POINTS
        ),
    )
    up = tree(curve_chart(made(), "m")).iter("circle")
    down = tree(curve_chart(shown, "m")).iter("circle")
    heights = [(float(a.attrib["cy"]), float(b.attrib["cy"])) for a, b in zip(up, down, strict=True)]
    assert len({round(a + b, 0) for a, b in heights}) == 1, "each point mirrored"


@given(scores=st.lists(FINITE, min_size=1, max_size=7), mean=st.lists(FINITE, min_size=4, max_size=4), up=st.booleans())
def test_any_finite_numbers_stay_inside_the_frame(scores: list[float], mean: list[float], *, up: bool) -> None:
    points = tuple(
        point(n, 100.0 * n / 7, value, (n + 1) / 7, ("complete", "pruned", "running")[n % 3])
        for n, value in enumerate(scores)
    )
    band = {"band_low": tuple(value - 1 for value in mean), "band_high": tuple(value + 1 for value in mean)}
    chart = tree(curve_chart(made(points=points, best=0, mean=tuple(mean), maximize=up, **band), "m"))
    width, height = (float(part) for part in chart.attrib["viewBox"].split()[2:])
    for item in chart.iter("circle"):
        assert 0 <= float(item.attrib["cx"]) <= width
        assert 0 <= float(item.attrib["cy"]) <= height
    for item in (*chart.iter("polyline"), *chart.iter("polygon")):
        for pair in item.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_names_are_escaped_everywhere() -> None:
    shown = made(parameter='<b>"R" & co', fallback="<script>", unimodal=False)
    metric = "<i>score"
    page = render(report(row(0), curves=(shown,), metric=metric, spending=spent()))
    check(page)
    assert "<b>" not in page
    assert "<i>" not in page
    assert "<script>" not in page
    tree(curve_chart(shown, metric))
    tree(standalone(shown, metric, "<title>"))


def test_the_section_says_it_in_words_and_has_the_numbers_as_tables() -> None:
    page = render(report(row(0), curves=(made(),)))
    words = check(page).replace("\u00a0", " ")
    assert (
        "The best smoothing_radius is between 10 and 60 (level 1 % over all looks, for a curve with one top)." in words
    )
    assert "trial 1 (smoothing_radius = 30) is the best of the complete ones" in words
    assert "with probability 0.93" in words
    assert "The same as tables" in words
    assert "<td>90</td><td>–</td><td>–</td><td>never started</td>" in page
    assert "<td>5</td><td>0.82</td><td>50%</td><td>pruned</td>" in page
    about = re.search(r'role="img" aria-label="([^"]*The best smoothing_radius[^"]*)"', page)
    assert about is not None, "who cannot see the chart is told what is in it"


def test_a_rejected_assumption_is_said_with_what_follows() -> None:
    shown = made(unimodal=False, above=60.0, below=10.0, fallback="median")
    words = check(render(report(row(0), curves=(shown,))))
    assert "Not unimodal in smoothing_radius" in words
    assert "pruning by median" in words
    assert "The best smoothing_radius is" not in words


def test_a_sealed_search_shows_neither() -> None:
    page = render(report(row(0), curves=(made(),), spending=spent(), sealed=True))
    assert "Curve of" not in page
    assert "run whole" not in page
    assert "smoothing_radius" not in page


def test_the_picture_of_its_own_has_its_colours_and_loads_nothing() -> None:
    picture = standalone(made(), "validation_accuracy", "smoothing_radius in a-sweep")
    root = tree(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in picture
    assert "url(" not in picture
    assert "href" not in picture
    for used in set(re.findall(r"var\((--\w+)\)", picture)):
        assert f"{used}:" in picture
    height = float(root.attrib["height"])
    assert all(float(text.attrib["y"]) < height for text in root.iter("{http://www.w3.org/2000/svg}text"))


TRIALS = (
    row(0, 0.80, step=100),
    row(1, 0.70, "pruned", step=20),
    row(2, 0.85, step=100),
    row(4, 0.60, "running", step=40),
)


def named(rows: tuple[Any, ...]) -> list[Any]:
    from dataclasses import replace

    return [replace(each, id=f"t{each.number}") for each in rows]


def spent(**changes: object) -> Spending:
    values: dict[str, Any] = {"mode": "max", "excluded": 1, "whole": 100}
    found = spending(named(TRIALS), **{**values, **changes})
    assert found is not None
    return found


def root_of(steps: Mapping[str, int]) -> float:
    return float(sum(steps.values()) ** 0.5)


def test_what_was_spent_is_counted_after_each_better_trial_and_at_the_end() -> None:
    found = spent(epsilon_of=root_of, cap=20.0, delta=1e-5)
    rows = [(each.trial, each.best, each.steps, each.whole_steps) for each in found.rows]
    assert rows == [(0, 0.80, 100, 100), (2, 0.85, 220, 300), (4, 0.85, 260, 500)]
    assert [each.epsilon for each in found.rows] == pytest.approx([10.0, 220**0.5, 260**0.5])
    assert [each.whole_epsilon for each in found.rows] == pytest.approx([10.0, 300**0.5, 500**0.5])
    assert (found.trials, found.stopped, found.excluded) == (5, 1, 1)
    said = " ".join(found.sentences)
    assert "Spent so far: 260 steps, ε 16.12." in said
    assert (
        "The same 5 trials (1 stopped early, 1 never started), each run to its end, would have taken 500 steps" in said
    )
    assert "an odometer, not a guarantee: the guarantee is the cap, ε = 20 at δ = 1e-05." in said
    assert "The cap would not have held them all." in said


def test_steps_that_were_charged_twice_would_have_been_so_in_any_search() -> None:
    found = spent(charged=lambda trial: 130 if trial == "t0" else 100, excluded=0)
    assert (found.rows[-1].steps, found.rows[-1].whole_steps) == (430, 430)
    assert "would have taken" not in " ".join(found.sentences)


def test_steps_are_shown_where_no_epsilon_is_known() -> None:
    for found in (
        spent(),
        spent(epsilon_of=lambda _steps: None, cap=20.0),
        spent(epsilon_of=lambda _steps: float("inf"), cap=20.0),
    ):
        assert not found.with_epsilon
        words = check(render(report(row(0), spending=found)))
        assert "Steps spent against the best validation_accuracy" in words
        assert "ε, run whole" not in words
        assert ">steps</text>" in spending_chart(found, "m")


def test_the_chart_of_what_was_spent_has_two_lines_and_the_cap_where_it_is_near() -> None:
    found = spent(epsilon_of=root_of, cap=20.0, delta=1e-5)
    chart = spending_chart(found, "m")
    tree(chart)
    assert chart.count('class="best-line"') == chart.count('class="whole"') == 1
    assert "the cap" in chart
    assert "odometer, not a guarantee" in chart
    assert "the cap</text>" not in spending_chart(spent(epsilon_of=root_of, cap=500.0, delta=1e-5), "m")
    words = check(render(report(row(0), spending=found)))
    assert "ε spent against the best validation_accuracy" in words


def test_nothing_is_counted_of_no_trial_and_nothing_drawn_without_a_best() -> None:
    assert spending([], mode="max") is None
    found = spending(named((row(0, 0.7, "pruned", step=20),)), mode="max")
    assert found is not None
    assert spending_chart(found, "m") == ""
    check(render(report(row(0), spending=found)))


def test_where_less_is_better_the_least_is_the_best() -> None:
    found = spending(named((row(0, 0.8), row(1, 0.9), row(2, 0.7))), mode="min")
    assert found is not None
    assert [each.trial for each in found.rows] == [0, 2]


def text(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def console(*, terminal: bool, width: int = 140) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, height=40, color_system=None)


@pytest.mark.parametrize("width", [60, 140])
def test_the_live_table_has_the_finding_under_it(width: int) -> None:
    target, line = console(terminal=True, width=width), [""]
    live = LiveView(name="s", trials=3, metric="m", console=target, claim="public", finding=lambda: line[0])
    with live:
        live.trial_started(view(0))
        before = console(terminal=True, width=width)
        before.print(live.render())
        line[0] = "R: best between [10] and 60; trial 4 near the best with 0.93"
        after = console(terminal=True, width=width)
        after.print(live.render())
    assert "best between" not in text(before)
    seen = " ".join(text(after).replace("│", " ").split())
    assert line[0] in seen
    assert seen.index("running") < seen.index("best between") < seen.index("trials ━") if "━" in seen else True
    assert all(len(each) <= width for each in text(after).splitlines())


def test_lines_say_a_finding_when_it_changes() -> None:
    target, line = console(terminal=False), [""]
    with LiveView(name="s", trials=4, metric="m", console=target, claim="c", finding=lambda: line[0]) as live:
        for number, found in enumerate(["", "R: no end excluded yet", "R: no end excluded yet", "R: best above 3"]):
            line[0] = found
            live.trial_finished(view(number, TrialStatus.COMPLETE, step=100, last_score=0.5))
    said = [each for each in text(target).splitlines() if each.startswith("R: ")]
    assert said == ["R: no end excluded yet", "R: best above 3"]


def test_quiet_lines_say_none() -> None:
    target = console(terminal=False)
    with LiveView(
        name="s", trials=1, metric="m", console=target, claim="c", quiet=True, finding=lambda: "R: x"
    ) as live:
        live.trial_finished(view(0, TrialStatus.COMPLETE, step=100, last_score=0.5))
    assert "R: x" not in text(target)


def test_the_summary_has_a_row_for_each_curve() -> None:
    target = console(terminal=False)
    target.print(summary(report(row(0), curves=(made(), made(parameter="other", unimodal=False)))))
    assert "smoothing_radius: best between 10 and 60; trial 1 near the best with 0.93" in text(target)
    assert "other: not unimodal (level 1 %): searched without the assumption" in text(target)


def test_ticks_of_an_ordinary_axis_are_used_where_decades_give_none() -> None:
    assert [value for value, _ in curve_ticks(made(low=20.0, high=30.0))] == Axis(20.0, 30.0, 0.0, 1.0).ticks()
