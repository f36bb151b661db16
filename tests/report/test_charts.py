"""Interactive charts have the numbers that they are given, tell states apart by shape, and hide no stopped trial."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fakes import picture, report, row, spending_of

from search_spaces.domains import Categorical, Domain, LogUniform, Uniform
from tuner.plan.comparison import CandidateRow
from tuner.plan.prices import Expected
from tuner.report.budget_charts import charges_chart, price_chart, spending_chart
from tuner.report.charts import Chart, learning_curves, ranking_chart, scores_chart
from tuner.report.curve_chart import OFF_AXIS, curve_chart, curve_plot
from tuner.report.interactive import Places
from tuner.report.parameter_charts import pair_chart, parallel_chart, parameter_chart
from tuner.report.spending import Charged

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)
SHOWN = report(
    row(0, 0.5), row(1, 0.9, error=0.02), row(2, 0.8, "pruned", step=50, curve=((50, 0.8),)), row(3, None, "failed")
)


def points(chart: Chart | None) -> dict[str, list[tuple[Any, Any]]]:
    """Name → points of every trace that has some."""
    assert chart is not None
    each = [(trace.get("name") or trace.get("legendgroup"), trace) for trace in chart["data"]]
    return {name: list(zip(t["x"], t["y"], strict=True)) for name, t in each if t["x"] != [None]}


def test_every_scored_trial_is_a_point_of_its_state_with_its_step_and_its_error() -> None:
    chart = scores_chart([SHOWN])
    assert points(chart) == {
        "complete": [(0, 0.5)], "pruned": [(2, 0.8)], "winner": [(1, 0.9)],
        "best so far": [(0, 0.5), (1, 0.9), (3, 0.9)],
    }  # fmt: skip
    assert chart is not None
    by_name = {trace["name"]: trace for trace in chart["data"]}
    assert by_name["pruned"]["text"] == ["at 50"]
    assert "0.8 at step 50 of 100" in by_name["pruned"]["hovertext"][0]
    assert by_name["winner"]["error_y"]["array"] == [0.02]
    symbols = [by_name[name]["marker"]["symbol"][0] for name in ("complete", "pruned", "winner")]
    assert len(set(symbols)) == 3


def test_curves_have_all_trials_also_one_that_stopped_at_its_first_report() -> None:
    chart = learning_curves([SHOWN])
    assert chart is not None
    drawn = [list(zip(t["x"], t["y"], strict=True)) for t in chart["data"] if t["x"] != [None]]
    assert sorted(drawn) == [[(50, 0.1), (100, 0.5)], [(50, 0.1), (100, 0.9)], [(50, 0.8)]]
    hovers = [text for t in chart["data"] for text in t.get("text", ())]
    assert not any("±" in text for text in hovers if "at step 50" in text and "pruned" not in text), (
        "an error is of the last score"
    )


def test_there_is_no_chart_without_scores() -> None:
    shown = [report(row(0, None, "failed"))]
    for chart in (scores_chart, learning_curves):
        assert chart(shown) is None
    assert parameter_chart(shown, "learning_rate") is parallel_chart(shown, ["learning_rate", "schedule"]) is None
    assert parameter_chart([report(row(0))], "learning_rate") is None, "one score says nothing about a parameter"


def test_one_trial_has_an_axis_around_its_score_and_whole_numbers_of_trials() -> None:
    chart = scores_chart([report(row(0, 0.8, error=0.01))])
    assert chart is not None
    assert chart["layout"]["yaxis"]["range"] == pytest.approx([0.78, 0.82])
    assert chart["layout"]["xaxis"]["dtick"] == 1


@pytest.mark.parametrize(
    ("domain", "values", "expected"),
    [
        (LogUniform(0.1, 1.0), (0.10, 0.12, 0.15), "log"),
        (Uniform(0.0, 2.0), (0.001, 0.12, 1.5), "linear"),
        (LogUniform(0.1, 1.0), (0.0, 0.12, 0.15), "linear"),
        (Categorical((256, 128, 64)), (64, 256, 64), "category"),
    ],
)
def test_the_axis_of_a_parameter_is_that_of_its_domain(
    domain: Domain, values: tuple[float, ...], expected: str
) -> None:
    rows = [row(number, number / 10, parameters={"a": value}) for number, value in enumerate(values)]
    chart = parameter_chart([report(*rows, domains={"a": domain})], "a")
    assert chart is not None
    axis = chart["layout"]["xaxis"]
    assert axis["type"] == expected
    if expected == "category":
        assert axis["categoryarray"] == ["256", "128", "64"]


def test_a_surface_is_exact_for_a_plane_empty_outside_and_knows_complete_trials_only() -> None:
    places = [(0.0, 0.0), (4.0, 0.0), (0.0, 2.0), (1.0, 1.0), (2.0, 0.5), (1.0, 0.5)]
    rows = [row(n, 2 * x - 3 * y, parameters={"x": x, "y": y}) for n, (x, y) in enumerate(places)]
    rows += [
        row(9, 99.0, "pruned", parameters={"x": 4.0, "y": 2.0}),
        row(10, 99.0, parameters={"x": 4.0, "y": 2.0}, committed=True),
    ]
    chart = pair_chart([report(*rows, searched=("x", "y"))], "x", "y")
    assert chart is not None
    surface, others, complete = chart["data"]
    known = [
        (2 * x - 3 * y, z) for y, line in zip(surface["y"], surface["z"], strict=True)
        for x, z in zip(surface["x"], line, strict=True) if z is not None
    ]  # fmt: skip
    assert [z for _, z in known] == pytest.approx([z for z, _ in known], rel=1e-3, abs=1e-9)
    assert surface["z"][-1][-1] is None, "no complete trial of the search is there"
    assert others["x"] == [4.0, 4.0]
    assert 99.0 not in complete["marker"]["color"]


def test_the_ranking_names_the_trials_within_the_error() -> None:
    rows = [
        row(0, 0.7, error=0.02),
        row(1, 0.9, error=0.02),
        row(2, 0.89, error=0.02),
        row(3, 0.95, "pruned", error=0.02),
    ]
    assert points(ranking_chart(report(*rows, tied=(2,)))) == {
        "winner": [("1", 0.9)], "within one standard error of the difference to the winner": [("2", 0.89)],
        "other complete trials": [("0", 0.7)],
    }  # fmt: skip
    assert ranking_chart(report(row(0), row(1))) is None, "no error is known"


def test_what_was_spent_has_two_lines_and_the_cap_where_it_is_near() -> None:
    found = spending_of(SHOWN.trials)
    drawn = points(spending_chart(found, "m"))
    rows = [each for each in found.rows if each.best is not None]
    assert drawn["this search"] == [(each.epsilon, each.best) for each in rows]
    assert drawn["the same trials, if none had ended early"] == [(each.whole_epsilon, each.best) for each in rows]
    near, far = spending_chart(found, "m"), spending_chart(spending_of(SHOWN.trials, cap=500.0), "m")
    assert near is not None
    assert far is not None
    assert [shape["x0"] for shape in near["layout"]["shapes"]] == [20.0]
    assert "shapes" not in far["layout"]


def test_charges_and_prices_are_drawn_as_they_are() -> None:
    charges = (Charged(trial=0, steps=100, total=100, share=0.1), Charged(trial=2, steps=50, total=150, share=0.15))
    drawn = points(charges_chart(report(row(0), row(2), charges=charges)))
    assert drawn["charged to this trial and all earlier ones"] == [(0, 0.1), (2, 0.15)]
    assert {y for _, y in drawn["charged and reserved"]} == {0.25}
    assert charges_chart(report(row(0), budget=None)) is None
    rows = [
        CandidateRow(candidate="a", title="one way", price=Expected(value=1.5, error=0.25, near=2.0)),
        CandidateRow(candidate="b", title="this way", price=Expected(value=2.5, error=0.5, near=2.0), taken=True),
        CandidateRow(candidate="c", title="no way", refused="it does not fit"),
    ]
    assert points(price_chart(rows)) == {"this search": [(2.5, "this way")], "other ways": [(1.5, "one way")]}
    assert price_chart(rows[2:]) is None


def test_the_interactive_curve_has_the_points_and_the_band_of_the_static_one() -> None:
    shown, chart = picture(), curve_plot(picture(), "m")
    static = curve_chart(shown, "m")
    assert static is not None
    assert chart is not None
    lines = {str(line.get_label()): list(map(tuple, line.get_xydata())) for line in static.axes[0].get_lines()}
    drawn = points(chart)
    assert drawn["curve"] == lines["curve"]
    assert drawn["best"] == lines["best"]
    assert set(lines[OFF_AXIS]) <= set(drawn["complete"])
    shaded = [(shape["x0"], shape["x1"]) for shape in chart["layout"]["shapes"]]
    assert shaded == [(-0.03, shown.axis.place(10.0)), (shown.axis.place(60.0), 1.03)]


@settings(max_examples=5)
@given(scores=st.lists(FINITE, min_size=1, max_size=6), values=st.lists(FINITE, min_size=6, max_size=6))
def test_any_finite_numbers_become_json(scores: list[float], values: list[float]) -> None:
    shown = report(*(row(n, score, parameters={"a": values[n], "b": n}) for n, score in enumerate(scores)))
    places = Places()
    places.place(
        scores_chart([shown]), learning_curves([shown]), parameter_chart([shown], "a"), pair_chart([shown], "a", "b"),
        parallel_chart([shown], ["a", "b"]),
    )  # fmt: skip
    assert len(json.loads(places.json)) >= 2


def test_charts_need_no_drawing_library_and_privacy_needs_no_matplotlib() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['plotly'] = None; import tuner.report.compare_page; "
        "import tuner.privacy.card.curve, tuner.privacy.verify.checks; "
        "del sys.modules['matplotlib']; from tuner.figures import new_figure, styled, svg_text\n"
        "with styled(): svg_text(new_figure(1, 1), 'a')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
