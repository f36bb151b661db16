"""The plan and the summary as text."""

from __future__ import annotations

import io

import pytest
from report_fakes import report, row
from rich.console import Console, RenderableType

from tuner.report.text import PlanText, plan, summary


def shown(renderable: RenderableType, width: int = 140) -> str:
    target = Console(file=io.StringIO(), width=width, color_system=None)
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


def test_the_table_begins_with_the_best_and_is_cut_at_ten() -> None:
    seen = shown(summary(report(*(row(number, number / 100) for number in range(30)))))
    rows = [line for line in seen.splitlines() if " complete " in line and "of 5" not in line]
    assert len(rows) == 10
    assert rows[0].split()[1] == "29"
    assert "the best 10 of 30 trials" in seen


def test_a_sweep_without_a_complete_trial_says_so() -> None:
    assert "no trial ran to its end" in shown(summary(report(row(0, None, "failed"))))
    assert "no trial ran to its end" in shown(summary(report()))


def test_not_private_is_said() -> None:
    assert "NOT PRIVATE" in shown(summary(report(row(0), budget=None)))


@pytest.mark.parametrize("width", [60, 140])
def test_the_plan_says_that_nothing_was_run(width: int) -> None:
    text = PlanText(
        title="digits",
        facts=(("trials", "24"), ("noise [auto]", "1.234")),
        sentence="The guarantee is the cap.",
        warnings=("δ is above n^-1.1",),
        commands=("tune run digits.yaml",),
    )
    seen = shown(plan(text), width)
    for expected in ("plan", "24", "noise [auto]", "1.234", "The guarantee", "! δ is above", "tune run"):
        assert expected in seen
