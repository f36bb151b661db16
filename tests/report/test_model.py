"""Which trial is best, what is worth a column, and what may be claimed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import budget, report, row, view

from tuner.privacy.card.claims import budget_sentence
from tuner.privacy.modes import COMPOSITION
from tuner.report.facts import _next_commands
from tuner.report.trial_row import TrialRow, varying_parameters
from tuner.report.wording import Shares
from tuner.study.best import is_better
from tuner.study.types import TrialStatus
from tuner.sweep import folder

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


def test_only_what_differs_gets_a_column() -> None:
    assert varying_parameters([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 3, "c": 1}]) == ("b", "c")
    assert varying_parameters([{"a": 1, "b": 2}]) == ("a", "b")
    assert varying_parameters([]) == ()


def test_a_score_that_is_no_number_is_no_score() -> None:
    seen = TrialRow.of(view(0, TrialStatus.FAILED, last_score=NAN), curve=[(50, 0.5), (100, NAN)])
    assert (seen.score, seen.curve, seen.state) == (None, ((50, 0.5),), "failed")


def test_the_claim_is_the_cap_and_never_what_was_spent() -> None:
    sentence = budget_sentence(budget())
    assert "The guarantee is the cap: ε = 8 at δ = 1e-05" in sentence
    assert "2.7" not in sentence


def test_the_next_commands_name_this_sweep_and_no_newer_one(tmp_path: Path) -> None:
    old = folder.create_as(tmp_path, "tiny-20260101-000000-aaaaaa", mode=COMPOSITION)
    old.experiment.touch()
    old.plan.touch()
    assert _next_commands(old, has_best=True, state="done")[0].startswith("tune export tiny ")
    assert _next_commands(old, has_best=True, state="interrupted")[0].startswith(f"tune resume {old.id}")
    new = folder.create_as(tmp_path, "tiny-20260102-000000-aaaaaa", mode=COMPOSITION)
    new.experiment.touch()
    new.plan.touch()
    assert f"tune export {old.id} " in _next_commands(old, has_best=True, state="done")[0]
    assert f"--out exports/{old.id}" in _next_commands(old, has_best=True, state="done")[0]
    assert _next_commands(new, has_best=True, state="done")[0].startswith("tune export tiny ")
