"""Which trial is best, what is worth a column, and what may be claimed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import budget, budget_of_units, budget_with_scores, report, row, view

from tuner.privacy.card.claims import budget_sentence
from tuner.report.trial_row import TrialRow, varying_parameters
from tuner.report.wording import Shares, budget_line, format_value, plural
from tuner.study.best import is_better
from tuner.study.types import TrialStatus

NAN = float("nan")


def test_the_best_is_complete_and_the_first_of_several() -> None:
    trials = (row(0, 0.7), row(1, 0.9), row(2, 0.99, "pruned"), row(3, 0.9), row(4, None, "failed"))
    found = report(*trials).best
    assert found is trials[1]
    least = report(*trials, mode="min").best
    assert least is trials[0]
    assert report(row(0, 0.9, "pruned")).best is None


def test_the_winner_is_the_chosen_one_and_else_the_best() -> None:
    trials = (row(0, 0.7), row(1, 0.9), row(2, 0.8))
    assert report(*trials).winner is trials[1]
    chosen = report(*trials, chosen=2, why="trial 2 by the curve (trial 1 scored higher: 0.9 against 0.8)")
    assert chosen.winner is trials[2]
    assert chosen.best is trials[1], "a score is a fact"
    assert report().winner is None


@pytest.mark.parametrize(
    ("score", "than", "mode", "expected"),
    [
        (0.2, 0.1, "max", True),
        (0.2, 0.1, "min", False),
        (0.1, 0.2, "min", True),
        (0.1, 0.1, "max", False),
        (0.1, None, "min", True),
        (NAN, None, "max", False),
        (NAN, 0.1, "min", False),
        (None, None, "max", False),
        (float("inf"), 0.1, "max", False),
    ],
)
def test_better(score: float | None, than: float | None, mode: str, expected: bool) -> None:
    assert is_better(score, than, mode=mode) is expected


@given(spent=st.integers(0, 2000), reserved=st.integers(0, 2000), cap=st.integers(0, 1000))
def test_the_parts_of_a_bar_always_fill_it(spent: int, reserved: int, cap: int) -> None:
    shares = Shares.of(budget(spent, reserved, cap))
    assert min(shares.spent, shares.reserved, shares.left) >= 0
    assert shares.spent + shares.reserved + shares.left == pytest.approx(1)


def test_the_parts_of_a_bar_are_the_parts_of_the_cap() -> None:
    shares = Shares.of(budget(300, 100, 1000))
    assert (shares.spent, shares.reserved, shares.left) == pytest.approx((0.3, 0.1, 0.6))


def test_the_bar_of_a_filter_shows_shares_of_its_budget() -> None:
    shares = Shares.of(budget_of_units(0.25))
    assert (shares.spent, shares.reserved, shares.left) == pytest.approx((0.65, 0.1, 0.25))


@pytest.mark.parametrize("made", [budget(), budget_of_units(), budget_with_scores()], ids=["steps", "units", "scores"])
def test_whatever_is_spent_is_said_to_be_the_odometers(made: Any) -> None:  # noqa: ANN401 - stands for a BudgetView
    line = budget_line(made)
    assert line.count("ε") == line.count("odometer") == 1
    assert "The guarantee is the cap" in budget_sentence(made)
    assert "not a guarantee" in budget_sentence(made)


def test_only_what_differs_gets_a_column() -> None:
    assert varying_parameters([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 3, "c": 1}]) == ("b", "c")
    assert varying_parameters([{"a": 1, "b": 2}]) == ("a", "b")
    assert varying_parameters([]) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.123456, "0.1235"),
        (1e-5, "1e-05"),
        (9999, "9999"),
        (12000, "12\u202f000"),
        ("cosine", "cosine"),
        (True, "True"),
        (None, "–"),
        (NAN, "not a number"),
    ],
)
def test_values_in_a_table(value: object, expected: str) -> None:
    assert format_value(value) == expected


def test_a_score_that_is_no_number_is_no_score() -> None:
    seen = TrialRow.of(view(0, TrialStatus.FAILED, last_score=NAN), curve=[(50, 0.5), (100, NAN)])
    assert (seen.score, seen.curve, seen.state) == (None, ((50, 0.5),), "failed")


def test_the_claim_is_the_cap_and_never_what_was_spent() -> None:
    sentence = budget_sentence(budget())
    assert "The guarantee is the cap: ε = 8 at δ = 1e-05" in sentence
    assert "2.7" not in sentence


@pytest.mark.parametrize(
    ("number", "what", "expected"),
    [(0, "step", "0 steps"), (1, "step", "1 step"), (2, "search", "2 searches"), (1, "search", "1 search")],
)
def test_one_and_several(number: int, what: str, expected: str) -> None:
    assert plural(number, what) == expected
