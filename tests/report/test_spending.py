"""What a search spent, counted after each better trial and for the same trials run to their end."""

from __future__ import annotations

import pytest
from report_fakes import row, spending_of

from tuner.report.spending import spending

TRIALS = (
    row(0, 0.80, step=100),
    row(1, 0.70, "pruned", step=20),
    row(2, 0.85, step=100),
    row(4, 0.60, "running", step=40),
)


def test_it_is_counted_after_each_better_trial_and_at_the_end() -> None:
    found = spending_of(TRIALS)
    rows = [(each.trial, each.best, each.steps, each.whole_steps) for each in found.rows]
    assert rows == [(0, 0.80, 100, 100), (2, 0.85, 220, 300), (4, 0.85, 260, 500)]
    assert [each.epsilon for each in found.rows] == pytest.approx([10.0, 220**0.5, 260**0.5])
    assert [each.whole_epsilon for each in found.rows] == pytest.approx([10.0, 300**0.5, 500**0.5])
    assert (found.trials, found.stopped, found.excluded) == (5, 1, 1)
    said = " ".join(found.sentences)
    for fact in ("260 steps, ε 16.12", "5 trials", "1 stopped early", "1 never started", "500 steps", "ε = 20"):
        assert fact in said


def test_steps_that_were_charged_twice_would_have_been_so_in_any_search() -> None:
    found = spending_of(TRIALS, charged=lambda trial: 130 if trial == "t0" else 100, excluded=0)
    assert (found.rows[-1].steps, found.rows[-1].whole_steps) == (430, 430)


@pytest.mark.parametrize("epsilon", [None, float("inf"), float("nan")])
def test_an_epsilon_that_is_not_known_or_not_finite_is_not_shown(epsilon: float | None) -> None:
    assert not spending_of(TRIALS, epsilon_of=lambda _steps: epsilon).with_epsilon


def test_nothing_is_counted_of_no_trial() -> None:
    assert spending([], mode="max") is None


def test_where_less_is_better_the_least_is_the_best() -> None:
    found = spending_of((row(0, 0.8), row(1, 0.9), row(2, 0.7)), mode="min")
    assert [each.trial for each in found.rows] == [0, 2]
