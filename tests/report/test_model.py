"""Which trial wins, what is worth a column, and what may be claimed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import budget, report, row, view

from tuner.privacy.card.claims import budget_sentence
from tuner.privacy.modes import COMPOSITION, SELECTION
from tuner.privacy.modes.base import Mode
from tuner.report.facts import _next_commands
from tuner.report.text import budget_bar
from tuner.report.trial_row import TrialRow, varying_parameters
from tuner.study.types import TrialStatus
from tuner.sweep import folder

NAN = float("nan")


def test_the_winner_is_the_chosen_one_and_else_the_best() -> None:
    trials = (row(0, 0.7), row(1, 0.9), row(2, 0.8))
    assert report(*trials).winner is trials[1]
    chosen = report(*trials, chosen=2, why="trial 2 by the fitted curve (trial 1 scored higher: 0.9 against 0.8)")
    assert chosen.winner is trials[2]
    assert chosen.best is trials[1], "a score is a fact"
    assert report().winner is None


@given(spent=st.integers(0, 500), reserved=st.integers(0, 500), width=st.integers(0, 50))
def test_the_parts_of_a_bar_always_fill_it(spent: int, reserved: int, width: int) -> None:
    assert len(budget_bar(budget(spent, reserved, 1000), width=width)) == width


def test_only_what_differs_gets_a_column() -> None:
    assert varying_parameters([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 3, "c": 1}]) == ("b", "c")
    assert varying_parameters([{"a": 1, "b": 2}]) == ("a", "b")
    assert varying_parameters([]) == ()


def test_a_score_that_is_no_number_is_no_score() -> None:
    seen = TrialRow.of(view(0, TrialStatus.FAILED, last_score=NAN), curve=[(50, 0.5), (100, NAN)])
    assert (seen.score, seen.curve, seen.state) == (None, ((50, 0.5),), "failed")


def test_the_claim_is_the_cap_and_never_what_was_spent() -> None:
    sentence = budget_sentence(budget())
    assert "The guarantee of ONE search is its cap: ε = 8 at δ = 1e-05" in sentence
    assert "2.7" not in sentence


def test_the_next_commands_name_this_sweep_and_no_newer_one(tmp_path: Path) -> None:
    old = folder.create_as(tmp_path, "tiny-20260101-000000-aaaaaa", mode=COMPOSITION)
    old.experiment.touch()
    old.plan.write_text('{"accounting": "composition"}')
    assert _next_commands(old, has_best=True, state="done")[0].startswith("tune export tiny ")
    assert _next_commands(old, has_best=True, state="interrupted")[0].startswith(f"tune resume {old.id}")
    for state, resumed in (("done", True), ("budget reached", False)):  # a spent budget has no more trials
        assert any("tune resume" in each for each in _next_commands(old, has_best=False, state=state)) == resumed
    new = folder.create_as(tmp_path, "tiny-20260102-000000-aaaaaa", mode=COMPOSITION)
    new.experiment.touch()
    new.plan.touch()
    assert f"tune export {old.id} " in _next_commands(old, has_best=True, state="done")[0]
    assert f"--out exports/{old.id}" in _next_commands(old, has_best=True, state="done")[0]
    assert _next_commands(new, has_best=True, state="done")[0].startswith("tune export tiny ")


@pytest.mark.parametrize("mode", [COMPOSITION, SELECTION])
def test_the_newest_of_sweeps_started_in_one_second_is_the_last_one(tmp_path: Path, mode: Mode) -> None:
    started = [folder.create(tmp_path, "tiny", mode=mode) for _ in range(8)]
    for sweep in started:
        sweep.experiment.touch()
        sweep.plan.touch()
    assert [sweep.id for sweep in folder.list_sweeps(tmp_path)] == [sweep.id for sweep in started]
    assert folder.find_sweep(tmp_path, "tiny") == started[-1]
