"""A sweep that goes on shows the trials of before in its live table, and its best is the best of all."""

from __future__ import annotations

import io

from command_fakes import Tune
from rich.console import Console

from tuner.report.live import LiveView
from tuner.study.types import TrialStatus, TrialView


def trial(number: int, score: float, state: TrialStatus = TrialStatus.COMPLETE) -> TrialView:
    return TrialView(
        id=f"t{number}",
        number=number,
        parameters={"learning_rate": number + 0.25},
        state=state,
        step=10,
        steps_planned=10,
        last_score=score,
        best_score=score,
    )


def drawn(view: LiveView) -> str:
    console = Console(file=io.StringIO(), width=120, height=40)
    console.print(view.render())
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_table_begins_with_the_trials_of_before() -> None:
    out = io.StringIO()
    earlier = (trial(0, 0.5), trial(1, 0.9), trial(2, 0.95, TrialStatus.PRUNED))
    with LiveView(
        name="s", trials=4, metric="validation_accuracy", earlier=earlier, console=Console(file=out, width=120)
    ) as view:
        table = drawn(view)
        assert all(f"{number}.25" in table for number in range(3))
        assert "3/4" in table
        assert "★ 1" in table, "a pruned trial is never the best"
        view.trial_finished(trial(3, 0.7))
    text = out.getvalue()
    assert "3 ended before" in text
    assert "4/4 trials" in text
    assert "BEST" not in text, "0.7 is below what was reached before"


def test_a_resume_shows_them(tune: Tune) -> None:
    tune("run", tune.write(search__trials=2), "--local", "--quiet")
    said = tune("resume", "tiny", "--local", "--set", "search.trials=3").text
    assert "3 trials planned, 2 ended before" in said
    assert "3/3 trials" in said
