"""The plan and the summary as text."""

from __future__ import annotations

import io
import re

import pytest
from report_fakes import budget_of_units, budget_with_scores, report, row
from rich.console import Console, RenderableType

from tuner.privacy.modes import SELECTION
from tuner.report.text import PlanTable, PlanText, console, plan_panel, summary


def shown(renderable: RenderableType, width: int = 140, *, terminal: bool = False) -> str:
    target = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=terminal)
    target.print(renderable)
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_the_summary_has_the_best_the_budget_and_what_to_run_next() -> None:
    commands = ("tune export digits", "tune report digits", "tune budget digits")
    trials = (row(0, 0.5), row(1, 0.9), row(2, 0.95, "pruned"), row(3, None, "failed"))
    seen = shown(summary(report(*trials, state="budget reached", next_commands=commands)))
    assert "trial 1, validation_accuracy 0.9" in seen
    assert "4 of 5 (2 complete, 1 pruned, 1 failed)" in seen
    assert "300 spent, 100 reserved, 600 left of 1000 steps" in seen
    assert "The guarantee is the cap" in seen
    for command in commands:
        assert command in seen


def test_the_summary_names_the_winner_by_the_curve_and_why() -> None:
    why = "trial 0 by the curve (trial 1 scored higher: 0.9 against 0.8)"
    words = shown(summary(report(row(0, 0.8), row(1, 0.9), chosen=0, why=why)))
    assert re.search(r"best +trial 0, validation_accuracy 0.8", words)
    assert re.search(rf"chosen +{re.escape(why)}", words)
    assert "chosen" not in shown(summary(report(row(0, 0.8), row(1, 0.9), chosen=1)))


def test_the_table_begins_with_the_best_and_is_cut_at_ten() -> None:
    seen = shown(summary(report(*(row(number, number / 100) for number in range(30)))))
    rows = [line for line in seen.splitlines() if " complete " in line and "of 5" not in line]
    assert len(rows) == 10
    assert rows[0].split()[0] == "29"
    assert "the best 10 of 30 trials" in seen


def test_a_sweep_without_a_complete_trial_says_so() -> None:
    assert "no trial ran to its end" in shown(summary(report(row(0, None, "failed"))))
    assert "no trial ran to its end" in shown(summary(report()))


def test_not_private_is_said() -> None:
    assert "NOT PRIVATE" in shown(summary(report(row(0), budget=None)))


@pytest.mark.parametrize("width", [60, 140])
def test_the_plan_says_all_of_its_text(width: int) -> None:
    text = PlanText(
        title="digits",
        facts=(("trials", "24"), ("noise [auto]", "1.234")),
        sentence="The guarantee is the cap.",
        warnings=("δ is above n^-1.1",),
    )
    seen = shown(plan_panel(text), width)
    for expected in ("plan", "24", "noise [auto]", "1.234", "The guarantee", "! δ is above"):
        assert expected in seen


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [80, 120])
def test_the_comparison_of_a_plan_fits_its_width_with_a_row_a_mode(width: int, *, terminal: bool) -> None:
    rows = (("one run, no search", "0.6653", "3", "1", "1"), ("selection", "0.7953", "1.59", "20", "at most 90"))
    header = ("", "noise", "ε of one run", "runs expected", "99 % of searches")
    table = PlanTable(title="what ε = 3 buys in each mode", header=header, rows=rows)
    seen = shown(
        plan_panel(PlanText(title="digits", facts=(("trials", "24"),), tables=(table,))), width, terminal=terminal
    )
    lines = seen.splitlines()
    assert max(map(len, lines)) <= width
    assert any("what ε = 3 buys in each mode" in line for line in lines)
    assert any(all(name in line for name in header) for line in lines), "no heading is broken"
    for row_ in rows:
        assert any(all(cell in line for cell in row_) for line in lines)


def test_protected_scores_and_a_budget_without_steps_are_told() -> None:
    seen = shown(summary(report(row(0), budget=budget_with_scores())))
    assert "protected scores: 12 spent, 8 reserved, 20 left of 40 scores" in " ".join(seen.split())
    seen = shown(summary(report(row(0), budget=budget_of_units())))
    assert "300 steps spent, 100 reserved; 30% of the budget spent, 10% reserved, 60% left" in " ".join(seen.split())


MANY = {
    "learning_rate": 0.123456,
    "laplacian_sigma": 1.5,
    "schedule.inverse_time.decay": 2.25,
    "smoothing_radius": 10.5,
    "weight_decay": 0.0001,
}


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [70, 80, 99, 120, 200])
def test_no_name_of_a_parameter_is_broken(width: int, *, terminal: bool) -> None:
    trials = [row(number, 0.5, parameters={**MANY, "learning_rate": number / 7}) for number in range(3)]
    seen = shown(summary(report(*trials, searched=tuple(MANY))), width, terminal=terminal)
    assert max(len(line) for line in seen.splitlines()) <= width
    table = seen[: seen.index("ended as")]
    for name in MANY:
        assert name in table
    together = "parameters" in table
    assert together is (width < 200)
    if together:
        assert "laplacian_sigma=1.5" in table


def test_the_metric_is_named_where_there_is_room() -> None:
    trials = (row(0), row(1))
    for width, heading in ((80, "score"), (99, "score"), (100, "validation_accuracy")):
        lines = shown(summary(report(*trials)), width, terminal=True).splitlines()
        (head,) = (line for line in lines if "state" in line and "steps" in line)
        assert heading in head


def test_a_frame_is_for_a_terminal() -> None:
    for renderable in (summary(report(row(0))), plan_panel(PlanText(title="digits", facts=(("trials", "24"),)))):
        assert "╭" in shown(renderable, terminal=True)
        assert not set(shown(renderable)) & set("╭│╰─")
        assert "digits" in shown(renderable).splitlines()[0]


def test_a_pipe_is_wide_and_a_terminal_is_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert console().width == 120
    monkeypatch.setenv("COLUMNS", "150")
    assert console().width == 150
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert console().width == 70
    assert console(quiet=True).quiet


def test_a_sealed_summary_begins_with_how_it_ended() -> None:
    lines = shown(summary(report(row(0, 0.87), accounting=SELECTION, score_error=0.0831))).splitlines()
    assert "ended as" in lines[1]
    assert "winner" in lines[2]
    assert "0.87 ± 0.083" in lines[2]
    assert "whole search" not in " ".join(lines)
    assert "winner not released yet" in shown(summary(report(accounting=SELECTION, state="interrupted")))


def test_candidates_that_did_not_fit_are_told() -> None:
    seen = " ".join(shown(summary(report(row(0), row(2), not_started=1))).split())
    assert "1 candidate did not fit" in seen
