"""Remaining privacy budget of a sweep, and the reservations of its trials."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.errors import BudgetRefusedError
from tuner.study.types import Ask, BudgetGate, TrialShape, Unleased

__all__ = ["BudgetRoom"]


class BudgetRoom:
    """Remaining privacy budget of a sweep, from which trials reserve steps and scores.

    For a sweep without privacy, `budget` is None, and every reservation succeeds. `committed` is the request of a
    committed run, whose scores no other trial may reserve. Its steps have a quota of their own.

    Attributes:
        refusal: why the ledger refused the last reservation, if not the search's own cap did; otherwise "".
    """

    def __init__(self, budget: BudgetGate | None, *, committed: Ask | None = None) -> None:
        self._budget = budget
        self._committed = committed
        self.refusal = ""

    @property
    def is_limited(self) -> bool:
        """Whether the sweep has a privacy budget."""
        return self._budget is not None

    def holds_any(self, shapes: Sequence[TrialShape]) -> bool:
        """Return whether at least one of these trial shapes fits the remaining budget."""
        return self._budget is None or any(self._budget.fits(self._beside(shape.ask)) for shape in shapes)

    def holds_all(self, *asks: Ask) -> bool:
        """Return whether all of these requests fit the remaining budget together."""
        return self._budget is None or self._budget.fits(*asks)

    def beyond(self, trial_id: str, needed: Ask) -> Ask:
        """Return the part of `needed` that a trial has not reserved yet."""
        held = self.outstanding().get(trial_id)
        steps = max(needed.steps - (held.steps if held else 0), 0)
        releases = max(needed.releases - (held.releases if held else 0), 0)
        return Ask(steps, needed.sample_rate, needed.noise_multiplier, releases)

    def whole(self, shapes: Sequence[TrialShape], *, at_most: int) -> int:
        """Return how many trials fit the remaining budget if all have the cheapest of these shapes.

        The result is at most `at_most`.
        """
        if self._budget is None:
            return at_most
        return max((self._most_that_fit(self._budget, shape.ask, at_most) for shape in shapes), default=0)

    def reserve(self, trial_id: str, ask: Ask, *, rung: bool = False) -> bool:
        """Reserve all requested steps and scores, and return True. If they do not fit the budget, only return False.

        `rung` is described in `BudgetGate.reserve`.
        """
        if self._budget is None:
            return True
        self.refusal = ""
        if not self._budget.fits(self._beside(ask)):
            return False
        try:
            self._budget.reserve(trial_id, ask, rung=rung)
        except BudgetRefusedError as error:
            # Another process reserved the budget between the two calls, or the owner changed a cap or a share.
            self.refusal = "" if error.code == "cap-exceeded" else error.message
            return False
        return True

    def extend(self, trial_id: str, remaining: Ask, *, rung: bool = False) -> bool:
        """Extend a trial's reservation so that the trial can finish. Return whether the budget allows this.

        `remaining` is the budget that the trial still needs. The unleased (not yet charged) part of the existing
        reservation is used first, and only the difference is reserved. Steps that a trial repeats after an interruption
        are charged again, because leased steps are never reused.
        """
        missing = self.beyond(trial_id, remaining)
        if self._budget is None or (missing.steps == 0 and missing.releases == 0):
            return True
        return self.reserve(trial_id, missing, rung=rung)

    def settle(self, trial_id: str, steps_taken: int) -> None:
        """End the reservations of a trial, and give its unleased steps and scores back to the budget."""
        if self._budget is not None:
            self._budget.settle(trial_id, steps_taken)

    def forfeit(self, trial_id: str, steps_taken: int, rungs: Sequence[int]) -> None:
        """End the reservations of a trial, and charge all that it had not yet leased."""
        if self._budget is not None:
            self._budget.forfeit(trial_id, steps_taken, rungs)

    def holds(self, trial_id: str) -> bool:
        """Return whether the trial has reservations that are not settled. For a sweep without privacy, return True."""
        return self._budget is None or trial_id in self._budget.outstanding()

    def outstanding(self) -> Mapping[str, Unleased]:
        """Return, for each trial that is not settled, its reserved steps and scores that are not leased yet."""
        return {} if self._budget is None else self._budget.outstanding()

    def _beside(self, ask: Ask) -> Ask:
        """Return the request with the scores added that must be left for the committed run."""
        kept = self._committed
        if kept is None or ask.noise_multiplier == kept.noise_multiplier:
            return ask
        return replace(ask, releases=ask.releases + kept.releases)

    def _most_that_fit(self, budget: BudgetGate, ask: Ask, at_most: int) -> int:
        """Return how many trials with this request fit the budget together. The result is at most `at_most`.

        A binary search keeps the number of ledger queries low.
        """

        def is_too_many(number: int) -> bool:
            together = replace(ask, steps=ask.steps * number, releases=ask.releases * number)
            return not budget.fits(self._beside(together))

        return bisect_left(range(1, at_most + 1), x=True, key=is_too_many)
