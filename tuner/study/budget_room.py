"""Room in the privacy budget for further trials, as the driver sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.errors import BudgetRefusedError
from tuner.study.types import Ask, BudgetGate, TrialShape, Unleased

__all__ = ["BudgetRoom"]


class BudgetRoom:
    """Room in the budget: reserve for a trial, extend, settle.

    Args:
        budget: the gate, or None for a sweep without privacy, where there is always room.
    """

    def __init__(self, budget: BudgetGate | None) -> None:
        self._budget = budget

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget at all."""
        return self._budget is not None

    def holds_any(self, shapes: Sequence[TrialShape]) -> bool:
        """Return whether a trial of at least one of these shapes would fit now."""
        return self._budget is None or any(self._budget.fits(shape.ask) for shape in shapes)

    def whole(self, shapes: Sequence[TrialShape], *, at_most: int) -> int:
        """Return how many trials of the smallest of these shapes would fit together now.

        Args:
            shapes: at least one where there is a budget.
            at_most: upper limit of the count, and the result without a budget.
        """
        return max((self._whole(shape.ask, at_most) for shape in shapes), default=0) if self._budget else at_most

    def _whole(self, ask: Ask, at_most: int) -> int:
        fits, too_many = 0, at_most + 1
        while too_many - fits > 1:
            number = (fits + too_many) // 2
            together = Ask(ask.steps * number, ask.sample_rate, ask.noise_multiplier, ask.releases * number)
            enough = self._budget is None or self._budget.fits(together)
            fits, too_many = (number, too_many) if enough else (fits, number)
        return fits

    def reserve(self, trial_id: str, ask: Ask) -> bool:
        """Reserve all of it, or return False."""
        if self._budget is None:
            return True
        if not self._budget.fits(ask):
            return False
        try:
            self._budget.reserve(trial_id, ask)
        except BudgetRefusedError:  # another process took the room between the two calls
            return False
        return True

    def extend(self, trial_id: str, remaining: Ask) -> bool:
        """Reserve what `remaining` exceeds the trial's reservation by: repeated steps are charged again."""
        held = self.outstanding().get(trial_id)
        steps = max(remaining.steps - (held.steps if held else 0), 0)
        releases = max(remaining.releases - (held.releases if held else 0), 0)
        if self._budget is None or (steps == 0 and releases == 0):
            return True
        return self.reserve(trial_id, Ask(steps, remaining.sample_rate, remaining.noise_multiplier, releases))

    def settle(self, trial_id: str, steps_taken: int) -> None:
        """End the reservations of a trial."""
        if self._budget is not None:
            self._budget.settle(trial_id, steps_taken)

    def holds(self, trial_id: str) -> bool:
        """Return whether the trial has reservations that are not settled; always True without a budget."""
        return self._budget is None or trial_id in self._budget.outstanding()

    def outstanding(self) -> Mapping[str, Unleased]:
        """Return what is reserved for each trial and not yet leased."""
        return {} if self._budget is None else self._budget.outstanding()
