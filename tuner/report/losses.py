"""One line for each loss of a worker or of the driver: the step to which a trial goes back, and what it has lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tuner.errors import LedgerError
from tuner.report.wording import format_value, plural
from tuner.study.types import Observer, TrialView

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import SearchBudget

__all__ = ["LossLines"]


class LossLines(Observer):
    """Observer that says what each loss costs.

    Args:
        budget: the search's budget in the ledger.
        say: prints a line.
        paused: ids of the trials that an earlier process paused. They were not interrupted.
    """

    def __init__(self, budget: SearchBudget, say: Callable[[str], None], *, paused: Iterable[str] = ()) -> None:
        self._budget = budget
        self._say = say
        self._known = set(paused)

    def trial_started(self, trial: TrialView) -> None:
        """Say what a trial has lost that an earlier process left running. New and promoted trials lose nothing."""
        if trial.id not in self._known:
            self._tell(trial, "the sweep was interrupted", always=False)
        self._known.add(trial.id)

    def trial_lost(self, trial: TrialView, why: str) -> None:
        """Say to which step a trial that lost its worker goes back."""
        self._tell(trial, why, always=True)

    def _tell(self, trial: TrialView, why: str, *, always: bool) -> None:
        try:
            charged = self._budget.charged()
            lost = charged.get(trial.id, 0) - trial.step  # in all its interruptions
            if lost > 0:
                without = {**charged, trial.id: trial.step}
                more = self._budget.steps_epsilon(charged) - self._budget.steps_epsilon(without)
                cost = f"{plural(lost, 'charged step')} of it lost so far (ε {format_value(more)}, an estimate)"
            else:
                cost = "no charged step is lost"
        except LedgerError:  # the driver will meet the same error where it matters
            return
        if always or lost > 0:
            self._say(f"trial {trial.number} goes back to step {trial.step}: {cost}. Cause: {why}")
