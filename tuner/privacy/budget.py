"""The budget of one search, as the driver and the trials hold it: a search bound to its ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tuner.privacy.accounting import epsilon
from tuner.privacy.ledger import Ledger

__all__ = ["BudgetView", "LedgerCharge", "SearchBudget"]


@dataclass(frozen=True, kw_only=True)
class BudgetView:
    """What is spent, promised and left, for the budget bar.

    Attributes:
        spent_steps: leased by all trials.
        reserved_steps: promised and not yet leased.
        left_steps: neither.
        step_cap: all three together.
        epsilon_spent: ODOMETER: ε of `spent_steps` at `delta`. Not a guarantee; label it so.
        epsilon_cap: the guarantee.
        delta: of both.
    """

    spent_steps: int
    reserved_steps: int
    left_steps: int
    step_cap: int
    epsilon_spent: float
    epsilon_cap: float
    delta: float


class SearchBudget:
    """One search's budget.

    Args:
        ledger: opened ledger.
        search: a search that is in it.

    Raises:
        LedgerError: the search is not in the ledger.
    """

    def __init__(self, ledger: Ledger, search: str) -> None:
        self._ledger = ledger
        self.search = search
        ledger.search_state(search)

    def fits(self, steps: int) -> bool:
        """Whether `steps` more could be reserved now. Only `reserve` decides; another process may be faster."""
        return steps <= self._ledger.search_state(self.search).left_steps

    def reserve(self, trial: str, steps: int) -> None:
        """Promise steps to a trial. Raises `BudgetRefusedError` when they do not fit."""
        self._ledger.reserve(self.search, trial, steps)

    def settle(self, trial: str, steps_taken: int) -> None:
        """End a trial; what it reserved and never leased returns."""
        self._ledger.settle(self.search, trial, steps_taken)

    def charge_for(self, trial: str) -> LedgerCharge:
        """What a trial's training leases its steps from; picklable."""
        return LedgerCharge(self._ledger.url, self.search, trial)

    def outstanding(self) -> dict[str, int]:
        """Of every trial that is reserved and not settled: the steps reserved and not yet leased (maybe 0)."""
        trials = self._ledger.search_state(self.search).trials
        return {name: trial.outstanding for name, trial in trials.items() if not trial.settled}

    def charged_steps(self, trial: str) -> int:
        """Steps leased by a trial so far, all its attempts together."""
        known = self._ledger.search_state(self.search).trials.get(trial)
        return known.leased if known else 0

    def trial_epsilon(self, steps: int) -> float:
        """ε of a single run of `steps` steps at the search's δ, as if it were alone: not the claim."""
        state = self._ledger.search_state(self.search)
        return epsilon(state.mechanism, steps, state.delta)

    def view(self) -> BudgetView:
        """Where the budget stands; a new number of steps costs about a tenth of a second."""
        state = self._ledger.search_state(self.search)
        return BudgetView(
            spent_steps=state.leased_steps,
            reserved_steps=state.reserved_steps,
            left_steps=state.left_steps,
            step_cap=state.step_cap,
            epsilon_spent=epsilon(state.mechanism, state.leased_steps, state.delta),
            epsilon_cap=state.epsilon,
            delta=state.delta,
        )


class LedgerCharge:
    """Leases steps for one trial: implements `trainables.training.Charge` over a ledger on this machine.

    Picklable, and safe after a fork: each process opens the ledger for itself, and never creates one.

    Args:
        url: of the ledger, absolute.
        search: name of the search.
        trial: id of the trial.
    """

    def __init__(self, url: str, search: str, trial: str) -> None:
        self.url, self.search, self.trial = url, search, trial
        self._opened: tuple[int, Ledger] | None = None

    def lease(self, steps: int) -> None:
        """Durably charge `steps` before they are taken. Raises when refused; then no step may be taken."""
        self._ledger().lease(self.search, self.trial, steps)

    def leased(self) -> int:
        """Steps leased for this trial so far, all attempts together."""
        trial = self._ledger().search_state(self.search).trials.get(self.trial)
        return trial.leased if trial else 0

    def _ledger(self) -> Ledger:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), Ledger.open(self.url, create=False))
        return self._opened[1]

    def __getstate__(self) -> dict[str, str]:
        return {"url": self.url, "search": self.search, "trial": self.trial}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.url, self.search, self.trial = state["url"], state["search"], state["trial"]
        self._opened = None
