"""The live view: a table in a terminal of any size, and lines where there is no terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from report_fakes import budget, view
from rich.console import Console
from screens import console, shown, text

from tuner.errors import LedgerError
from tuner.report.live import LiveView
from tuner.report.wording import format_value
from tuner.study.types import TrialStatus

NAN = float("nan")


def make(target: Console, *, trials: int = 4, **changes: object) -> LiveView:
    values: dict[str, object] = {"metric": "validation_accuracy", "budget_view": budget, "subtitle": "dplis on digits"}
    return LiveView(name="digits-0001", trials=trials, console=target, **{**values, **changes})  # type: ignore[arg-type]


def play(live: LiveView) -> None:
    """One complete, one better, one pruned with the best score of all, one NaN."""
    for number, (state, score, reason) in enumerate(
        [
            (TrialStatus.COMPLETE, 0.71, ""),
            (TrialStatus.COMPLETE, 0.82, ""),
            (TrialStatus.PRUNED, 0.93, "below the median"),
            (TrialStatus.FAILED, NAN, "score is not a number"),
        ]
    ):
        live.trial_started(view(number))
        live.trial_reported(view(number, step=50, last_score=score), 50, {"validation_accuracy": score})
        live.trial_finished(view(number, state, step=100, last_score=score, reason=reason))


def test_lines_where_nobody_watches() -> None:
    target = console(terminal=False, width=80)
    with make(target) as live:
        play(live)
    lines = text(target).splitlines()
    assert len(lines) == 1 + 4 * 3
    assert "The guarantee of ONE search is its cap: ε = 8" in lines[0]
    assert lines[1] == "trial 0 started  learning_rate=0.1  smoothing_samples=10"
    assert lines[2] == "trial 0 step 50/100  validation_accuracy 0.71"
    assert lines[6].startswith("trial 1 complete  validation_accuracy 0.82  BEST  2/4 trials  budget: 300 spent")
    assert lines[9].startswith("trial 2 pruned (below the median)  validation_accuracy 0.93  3/4 trials")
    assert lines[12].startswith("trial 3 failed (score is not a number)  validation_accuracy –  4/4 trials")
    assert "\x1b" not in text(target)


def test_a_paused_trial_is_shown_as_paused_and_has_not_ended() -> None:
    target = console(terminal=False, width=140)
    with make(target) as live:
        live.trial_started(view(0))
        live.trial_paused(view(0, TrialStatus.PAUSED, step=50, last_score=0.7))
    assert text(target).splitlines()[-1] == "trial 0 paused at step 50/100"
    assert "paused" in shown(live.render(), terminal=True)
    assert "0/4" in shown(live.render(), terminal=True)


def test_the_table_shows_every_trial_its_state_the_best_and_the_budget() -> None:
    live = make(console(terminal=True, width=140), note=lambda: "MLflow: 3 waiting")
    with live:
        play(live)
    seen = shown(live.render(), terminal=True)
    rows = {line.split()[1]: line for line in seen.splitlines() if "/100" in line}
    assert "★" in rows["★"]
    assert "0.82" in rows["★"], "the star stands at the best COMPLETE trial"
    assert "pruned" in rows["2"]
    assert "failed" in rows["3"]
    assert "4/4  best 0.82 (trial 1)" in seen
    assert "█ spent 300  ▓ reserved 100  ░ left 600  of 1000 steps" in seen
    assert "The guarantee of ONE search is its cap" in seen
    assert "MLflow: 3 waiting" in seen


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (100, 30), (200, 60)])
def test_it_fits_every_terminal_and_keeps_what_matters(width: int, height: int) -> None:
    target = console(terminal=True, width=width, height=height)
    live = make(target, trials=60)
    with live:
        for number in range(50):
            many = {f"parameter_{index}": number * index for index in range(9)}
            live.trial_started(view(number, parameters=many))
            if number != 7:
                score = 0.99 if number == 3 else 0.5
                live.trial_finished(view(number, TrialStatus.COMPLETE, parameters=many, step=100, last_score=score))
    seen = shown(live.render(), width, height, terminal=True)
    lines = seen.splitlines()
    assert len(lines) <= height + 2
    assert max(len(line) for line in lines) <= width
    assert "★ 3" in seen
    assert "● running" in seen
    assert "✓ complete" in seen
    assert "more trials are not shown" in seen
    assert "49/60" in seen


def test_at_80_columns_the_values_of_five_parameters_can_be_read() -> None:
    values = {"learning_rate": 12.54, "max_grad_norm": 0.3423, "laplacian_sigma": 1.704, "smoothing_radius": 18.51,
              "weight_decay": 0.0001184}  # fmt: skip
    live = make(console(terminal=True, width=80, height=30), searched=tuple(values))
    with live:
        live.trial_started(view(0, parameters=values))
    seen = shown(live.render(), 80, 30, terminal=True)
    for value in values.values():
        assert format_value(value) in seen
    assert max(map(len, seen.splitlines())) <= 80


def test_the_time_that_is_left_follows_the_share_of_the_steps() -> None:
    now, spent = [0.0], [0]
    live = make(console(terminal=True), budget_view=lambda: budget(spent=spent[0]), clock=lambda: now[0])
    with live:
        assert "0 min so far " in shown(live.render(), terminal=True)
        now[0], spent[0] = 600.0, 250
        assert "10 min so far, at most about 30 min left" in shown(live.render(), terminal=True)
        now[0], spent[0] = 2400.0, 1000
        assert "left" not in shown(live.render(), terminal=True).split("░")[0]


class Counted:
    """A budget that counts its readings, and can be out of reach."""

    def __init__(self) -> None:
        self.readings = 0
        self.broken = False

    def __call__(self) -> object:
        if self.broken:
            raise LedgerError("ledger-busy", "locked")
        self.readings += 1
        return budget(spent=self.readings)


def test_the_table_reads_the_budget_at_most_every_two_seconds() -> None:
    now = [100.0]
    ledger = Counted()
    live = make(console(terminal=False), budget_view=ledger, clock=lambda: now[0])
    with live:
        assert ledger.readings == 1
        for now[0] in (100.0, 101.0, 101.9):
            assert "spent 1 " in shown(live.render(), terminal=True)
        now[0] = 102.0
        assert "spent 2 " in shown(live.render(), terminal=True), "steps are leased between reports"
        live.trial_started(view(0))
        assert "spent 3 " in shown(live.render(), terminal=True), "the next drawing shows what happens"
        now[0] = 103.9
        assert "spent 3 " in shown(live.render(), terminal=True), "the two seconds begin again"


def test_at_the_end_the_budget_is_read_once_more() -> None:
    ledger = Counted()
    with make(console(terminal=True), budget_view=ledger, clock=lambda: 0.0):
        assert ledger.readings == 1
    assert ledger.readings == 2


def test_a_ledger_out_of_reach_leaves_the_last_budget_and_is_said() -> None:
    now = [0.0]
    ledger = Counted()
    live = make(console(terminal=True), budget_view=ledger, clock=lambda: now[0])
    with live:
        now[0] = 10.0
        ledger.broken = True
        seen = shown(live.render(), terminal=True)
        assert "spent 1 " in seen
        assert "LedgerError" in seen
        live.trial_started(view(0))
        now[0] = 20.0
        ledger.broken = False
        assert "cannot be read" not in shown(live.render(), terminal=True)


def test_a_ledger_that_cannot_be_read_at_the_start_is_an_error() -> None:
    ledger = Counted()
    ledger.broken = True
    with pytest.raises(LedgerError), make(console(terminal=True), budget_view=ledger):
        pass


def test_names_are_printed_as_they_are() -> None:
    """Rich would take [bold] in a name for markup."""
    target = console(terminal=False)
    with make(target, searched=["schedule"]) as live:
        live.trial_started(view(0, parameters={"schedule": "[bold]x[/bold]"}))
    assert "schedule=[bold]x[/bold]" in text(target)
    assert "[bold]x[/bold]" in shown(live.render(), terminal=True)


def test_lines_say_a_finding_when_it_changes() -> None:
    target, line = console(terminal=False), [""]
    with LiveView(name="s", trials=4, metric="m", console=target, claim="c", finding=lambda: line[0]) as live:
        for number, found in enumerate(["", "R: no value excluded yet", "R: no value excluded yet", "R: best above 3"]):
            line[0] = found
            live.trial_finished(view(number, TrialStatus.COMPLETE, step=100, last_score=0.5))
    said = [each for each in text(target).splitlines() if each.startswith("R: ")]
    assert said == ["R: no value excluded yet", "R: best above 3"]


def test_an_error_inside_leaves_the_table_and_shows_the_cursor_again() -> None:
    target = console(terminal=True)

    def run(live: LiveView) -> None:
        with live:
            play(live)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make(target))
    assert re.findall(r"\x1b\[\?25[hl]", text(target))[-1] == "\x1b[?25h"
    assert "best 0.82 (trial 1)" in text(target)


def test_a_resumed_sweep_begins_with_the_trials_of_before_and_its_best_is_that_of_all() -> None:
    earlier = tuple(
        view(number, state, step=100, last_score=score, best_score=score)
        for number, (state, score) in enumerate(
            [(TrialStatus.COMPLETE, 0.5), (TrialStatus.COMPLETE, 0.9), (TrialStatus.PRUNED, 0.95)]
        )
    )
    target = console(terminal=False)
    with make(target, earlier=earlier) as live:
        seen = shown(live.render(), terminal=True)
        live.trial_finished(view(3, TrialStatus.COMPLETE, step=100, last_score=0.7, best_score=0.7))
    assert "3/4" in seen
    assert "★ 1" in seen, "a pruned trial is never the best"
    assert "3 of them ended before the resume" in text(target)
    assert "4/4 trials" in text(target)
    assert "BEST" not in text(target), "0.7 is below what was reached before"


DRAWS = """
import os, sys
from pathlib import Path
from tuner.report.text import console, view_console
from trainables.wall import behind
with view_console() as view:
    usual = console()
    print(view.is_terminal, view.size == usual.size, view.width)
    behind(Path(sys.argv[1]), lambda: (view.print("the view"), usual.print("all else"), view.print(view.width)))
"""


def test_the_view_draws_while_records_are_behind_the_wall(tmp_path: Path) -> None:
    """Its thread goes on, so it has a descriptor of its own, and the size of the terminal is asked of that one."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 97, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-c", DRAWS, str(tmp_path / "log")]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=slave, env=environment, check=True, timeout=60)
    os.close(slave)
    said = os.read(master, 10_000).decode()
    os.close(master)
    assert said.splitlines()[0] == "True True 97"
    assert "the view" in said
    assert said.count("97") == 2
    assert "all else" not in said
    assert "all else" in (tmp_path / "log").read_text()
