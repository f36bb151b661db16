"""The plan and the summary as text."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from report_fakes import report, row
from screens import shown

from tuner.report import text
from tuner.report.text import PlanTable, PlanText, console, plan_panel, summary


def test_the_summary_has_the_best_the_budget_and_what_to_run_next() -> None:
    commands = ("tune export digits", "tune report digits", "tune budget digits")
    trials = (row(0, 0.5), row(1, 0.9), row(2, 0.95, "pruned"), row(3, None, "failed"))
    seen = shown(summary(report(*trials, state="budget reached", next_commands=commands)))
    assert "trial 1, validation_accuracy 0.9" in seen
    assert "4 of 5 (2 complete, 1 pruned, 1 failed)" in seen
    assert "300 spent, 100 reserved, 600 left of 1000 steps" in seen
    assert "The guarantee of ONE search is its cap" in seen
    for command in commands:
        assert command in seen


def test_the_summary_says_why_trials_failed_or_were_lost() -> None:
    reason = "its worker died"
    trials = (row(0), row(1, None, "failed", reason="ValueError"), row(2, None, "lost", reason=reason))
    seen = shown(summary(report(*trials, row(3, None, "lost", reason=reason), row(4, 0.1, "pruned", reason="slow"))))
    lines = [line.strip(" │").split() for line in seen.splitlines()]
    assert ["failed", "1:", "ValueError"] in lines
    assert ["lost", "2,", "3:", *reason.split()] in lines
    assert "slow" not in seen, "a pruned trial is no failure"


def test_the_table_begins_with_the_best_and_is_cut_at_ten() -> None:
    seen = shown(summary(report(*(row(number, number / 100) for number in range(30)))))
    rows = [line for line in seen.splitlines() if " complete " in line and "of 5" not in line]
    assert len(rows) == 10
    assert rows[0].split()[0] == "29"
    assert "the best 10 of 30 trials" in seen


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [80, 120])
def test_the_comparison_of_a_plan_fits_its_width_with_a_row_a_mode(width: int, *, terminal: bool) -> None:
    rows = (("one run, no search", "0.6653", "3", "1", "1"), ("selection", "0.7953", "1.59", "20", "at most 90"))
    header = ("", "noise", "ε of one run", "runs expected", "99 % of searches")
    table = PlanTable(title="what ε = 3 buys in each mode", header=header, rows=rows)
    seen = shown(
        plan_panel(PlanText(title="digits", claim="", facts=(("trials", "24"),), tables=(table,))),
        width,
        terminal=terminal,
    )
    lines = seen.splitlines()
    assert max(map(len, lines)) <= width
    assert any("what ε = 3 buys in each mode" in line for line in lines)
    assert any(all(name in line for name in header) for line in lines), "no heading is broken"
    for row_ in rows:
        assert any(all(cell in line for cell in row_) for line in lines)


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


class Screen(io.StringIO):
    """Standard error, as a terminal or as a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.written.set()


def test_a_long_command_gives_a_sign_of_life_to_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for patience, terminal, says in ((0.0, True, "planning …\n"), (0.0, False, ""), (3600.0, True, "")):
        screen = Screen(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(text, "_PATIENCE", patience)
        with text.sign_of_life("planning"):
            screen.written.wait(timeout=60 if says else 0.1)
        assert screen.getvalue() == says
