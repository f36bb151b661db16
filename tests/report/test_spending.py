"""What a search spent, counted after each better trial and for the same trials run to their end."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from report_fakes import SPENT_TRIALS, root_of, row, spending_of

from tuner.errors import LedgerError
from tuner.report.spending import spending


def test_it_is_counted_after_each_better_trial_and_at_the_end() -> None:
    found = spending_of(SPENT_TRIALS)
    rows = [(each.trial, each.best, each.steps, each.whole_steps) for each in found.rows]
    assert rows == [(0, 0.80, 100, 100), (2, 0.85, 220, 300), (4, 0.85, 260, 500)]
    assert [each.epsilon for each in found.rows] == pytest.approx([10.0, 220**0.5, 260**0.5])
    assert [each.whole_epsilon for each in found.rows] == pytest.approx([10.0, 300**0.5, 500**0.5])
    assert (found.trials, found.stopped, found.excluded) == (5, 1, 1)
    said = " ".join(found.sentences)
    for fact in ("260 steps, ε 16.12", "5 trials", "1 stopped early", "1 never started", "500 steps", "ε = 20"):
        assert fact in said


def test_steps_that_were_charged_twice_would_have_been_so_in_any_search() -> None:
    found = spending_of(SPENT_TRIALS, charged={"t0": 130, "t1": 100, "t2": 100, "t4": 100})
    assert (found.rows[-1].steps, found.rows[-1].whole_steps) == (430, 430 + 100)


def test_what_was_paid_twice_is_said_and_a_failed_trial_repeated_nothing() -> None:
    charged = {"t0": 130, "t1": 20, "t2": 100, "t4": 100}
    found = spending_of(SPENT_TRIALS, charged=charged)
    assert found.twice == 30, "the steps of a running trial since its last report are not repeated"
    assert found.twice_epsilon == pytest.approx(350**0.5 - 320**0.5)
    assert "30 steps were paid twice" in " ".join(found.sentences)
    trials = (row(0, 0.80, "failed", step=20, id="t0"), *SPENT_TRIALS[1:])
    assert spending_of(trials, charged=charged).twice == 0
    assert "twice" not in " ".join(spending_of(SPENT_TRIALS).sentences)


@pytest.mark.parametrize("epsilon", [float("inf"), float("nan")])
def test_an_epsilon_that_is_not_finite_is_not_shown(epsilon: float) -> None:
    assert not spending_of(SPENT_TRIALS, steps_epsilon=lambda _steps: epsilon).with_epsilon


def test_the_noise_of_what_never_started_is_in_no_ledger_and_its_epsilon_is_not_shown() -> None:
    def refuse(steps: Mapping[str, int]) -> float:
        if any(trial.startswith("never started") for trial in steps):
            raise LedgerError("mechanism-not-single", "one mechanism")
        return root_of(steps)

    found = spending_of(SPENT_TRIALS, steps_epsilon=refuse)
    assert found.rows[-1].epsilon == pytest.approx(260**0.5)
    assert not found.with_epsilon


def test_the_last_epsilon_is_the_odometers_own() -> None:
    found = spending_of(SPENT_TRIALS, odometer=0.5)
    assert [each.epsilon for each in found.rows] == pytest.approx([10.0, 220**0.5, 0.5])


def test_where_nothing_is_charged_the_steps_of_the_trials_count() -> None:
    found = spending(SPENT_TRIALS, mode="max", budget=None)
    assert found is not None
    assert (found.rows[-1].steps, found.with_epsilon, found.cap) == (260, False, None)
    assert spending([], mode="max", budget=None) is None


def test_where_less_is_better_the_least_is_the_best() -> None:
    found = spending_of((row(0, 0.8), row(1, 0.9), row(2, 0.7)), mode="min")
    assert [each.trial for each in found.rows] == [0, 2]
