"""Charts of a sweep draw the numbers that they are given, and tell states apart by shape."""

from __future__ import annotations

import subprocess
import sys

import pytest
from figure_checks import series, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fakes import report, row

from search_spaces.domains import Categorical, Domain, LogUniform, Uniform
from tuner.report.charts import parameter_chart, steps_chart, trials_chart

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


def test_every_scored_trial_is_a_point_of_its_state_and_the_best_is_its_own_series() -> None:
    shown = report(row(0, 0.5), row(1, 0.9), row(2, 0.8, "pruned"), row(3, None, "failed"))
    assert series(trials_chart(shown)) == {
        "best so far": [(0, 0.5), (1, 0.9), (3, 0.9)],
        "complete": [(0, 0.5)],
        "pruned": [(2, 0.8)],
        "best": [(1, 0.9)],
    }
    assert series(parameter_chart(shown, "learning_rate")) == {
        "complete": [(1.0, 0.5)],
        "pruned": [(0.01, 0.8)],
        "best": [(0.1, 0.9)],
    }


def test_scores_by_step_are_a_line_a_trial_of_at_least_two_reports() -> None:
    shown = report(row(0, 0.5), row(1, 0.9), row(2, 0.8, "pruned", curve=((50, 0.8),)))
    assert series(steps_chart(shown)) == {"complete": [(50, 0.1), (100, 0.5)], "best": [(50, 0.1), (100, 0.9)]}
    assert steps_chart(report(row(0, curve=((50, 0.8),)))) is None


def test_there_is_no_chart_without_scores() -> None:
    shown = report(row(0, None, "failed"))
    assert trials_chart(shown) is parameter_chart(shown, "learning_rate") is steps_chart(shown) is None
    assert parameter_chart(report(row(0)), "learning_rate") is None, "one score says nothing about a parameter"


@pytest.mark.parametrize(
    ("domain", "values", "expected"),
    [
        (LogUniform(0.1, 1.0), (0.10, 0.12, 0.15), "log"),
        (Uniform(0.0, 2.0), (0.001, 0.12, 1.5), "linear"),
        (None, (0.10, 0.12, 0.15), "linear"),
        (None, (0.001, 0.12, 1.5), "log"),
        (LogUniform(0.1, 1.0), (0.0, 0.12, 0.15), "linear"),
    ],
)
def test_the_axis_of_a_parameter_is_that_of_its_range(
    domain: Domain | None, values: tuple[float, ...], expected: str
) -> None:
    rows = [row(number, number / 10, parameters={"a": value}) for number, value in enumerate(values)]
    figure = parameter_chart(report(*rows, domains={} if domain is None else {"a": domain}), "a")
    assert figure is not None
    assert figure.axes[0].get_xscale() == expected


def test_a_choice_has_a_tick_at_every_option_in_its_order() -> None:
    rows = [row(n, n / 10, parameters={"batch": value}) for n, value in enumerate((64, 256, 64))]
    figure = parameter_chart(report(*rows, domains={"batch": Categorical((256, 128, 64))}), "batch")
    assert figure is not None
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["256", "128", "64"]
    assert series(figure) == {"complete": [(2, 0.0), (0, 0.1)], "best": [(2, 0.2)]}


def test_axes_have_labels_and_names_are_never_taken_for_markup() -> None:
    metric = '<i>$score^2$ & "co"'
    rows = [row(n, n / 10, parameters={"<b>": value}) for n, value in enumerate(("$x$", "\\frac{1}", "模型"))]
    shown = report(*rows, metric=metric)
    said = texts(parameter_chart(shown, "<b>"))
    for name in (metric, "<b>", "$x$", "\\frac{1}", "模型"):
        assert name in said
    assert {metric, "trial"} <= set(texts(trials_chart(shown)))
    assert {metric, "step"} <= set(texts(steps_chart(shown)))


@settings(max_examples=5)
@given(scores=st.lists(FINITE, min_size=1, max_size=6), values=st.lists(FINITE, min_size=6, max_size=6))
def test_any_finite_numbers_can_be_drawn(scores: list[float], values: list[float]) -> None:
    shown = report(*(row(n, score, parameters={"a": values[n]}) for n, score in enumerate(scores)))
    for figure in (trials_chart(shown), parameter_chart(shown, "a"), steps_chart(shown)):
        if figure is not None:
            assert not {"nan", "inf"} & set(texts(figure))


def test_privacy_is_importable_without_matplotlib_and_pyplot_is_never_used() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; import tuner.privacy.card.curve, tuner.privacy.verify.checks; "
        "del sys.modules['matplotlib']; from tuner.figures import new_figure, styled, svg_text\n"
        "with styled(): svg_text(new_figure(1, 1), 'a')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
