"""One line for each loss, with what is lost so far."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from report_fakes import root_of

from tuner.errors import LedgerError
from tuner.report.losses import LossLines
from tuner.study.types import TrialView


def lines_of(charged: dict[str, int] | None, *, paused: tuple[str, ...] = ()) -> tuple[LossLines, list[str]]:
    def read() -> dict[str, int]:
        if charged is None:
            raise LedgerError("ledger-unavailable", "gone")
        return charged

    said: list[str] = []
    return LossLines(SimpleNamespace(charged=read, steps_epsilon=root_of), said.append, paused=paused), said  # type: ignore[arg-type]


def test_a_loss_says_where_the_trial_continues_and_what_is_lost_so_far() -> None:
    lines, said = lines_of({"a": 144, "b": 256})
    lines.trial_lost(TrialView(id="a", number=3, step=100), "its worker was lost")
    (line,) = said
    for fact in ("trial 3 ", "back to step 100", "its worker was lost", "44 charged steps", f"{20 - 356**0.5:.4g}"):
        assert fact in line


@pytest.mark.parametrize("charged", [{"a": 100}, None], ids=["nothing lost", "no ledger"])
def test_a_start_of_a_trial_that_lost_nothing_says_nothing(charged: dict[str, int] | None) -> None:
    lines, said = lines_of(charged)
    lines.trial_started(TrialView(id="a", number=3, step=100))
    assert said == []


def test_a_resumed_trial_says_what_it_has_lost() -> None:
    lines, said = lines_of({"a": 101})
    lines.trial_started(TrialView(id="a", number=0, step=100))
    assert "1 charged step of it lost" in said[0]
    assert "interrupted" in said[0]


def test_a_promoted_trial_does_not_say_again_what_it_has_lost() -> None:
    """Neither after a pause in this process nor after one in an earlier process."""
    lines, said = lines_of({"a": 116, "b": 116}, paused=("b",))
    for trial, step in (("a", 0), ("a", 100), ("b", 100)):
        lines.trial_started(TrialView(id=trial, number=0, step=step))
    assert len(said) == 1
