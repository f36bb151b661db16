"""Budget of one search, for its driver and its trials."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.errors import LedgerError
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.odometer import Reading, read_search, read_steps
from tuner.privacy.ledger.state import TRAINING, VALIDATION, PoolState, SearchState, TrialAccount

__all__ = ["Asked", "BudgetView", "LedgerCharge", "Reserved", "SearchBudget"]


class Asked(Protocol):
    """What a trial asks for before it starts, or before it resumes."""

    @property
    def steps(self) -> int:
        """Training steps; 0 where only scores are asked for."""

    @property
    def sample_rate(self) -> float | None:
        """Of the steps; None for the trial's own or the search's only mechanism."""

    @property
    def noise_multiplier(self) -> float | None:
        """Of the steps; None with `sample_rate`."""

    @property
    def releases(self) -> int:
        """Protected validation scores."""


@dataclass(frozen=True)
class Reserved:
    """Steps and scores that a trial has reserved and not yet leased."""

    steps: int
    releases: int = 0


@dataclass(frozen=True, kw_only=True)
class BudgetView:
    """What is spent, reserved and left, for the budget bar.

    The three shares are of the filter (`Filter.share`), and sum to 1. A sealed search has spent nothing before it
    begins, and then everything.

    Attributes:
        spent: share that is leased by all trials.
        reserved: share that is promised and not yet leased.
        left: the rest.
        spent_steps: steps that are leased.
        reserved_steps: steps that are promised and not yet leased.
        left_steps: the other steps; None where their number depends on the mechanism.
        step_cap: all steps together; None where there is no such cap.
        epsilon_spent: ODOMETER at `delta`. Not a guarantee. Finite.
        epsilon_cap: the guarantee.
        delta: of both.
        validation: the same for released validation scores; None where they are outside the guarantee.
    """

    spent: float
    reserved: float
    left: float
    spent_steps: int
    reserved_steps: int
    left_steps: int | None
    step_cap: int | None
    epsilon_spent: float
    epsilon_cap: float
    delta: float
    validation: BudgetView | None = None


class SearchBudget:
    """Budget of one search in its ledger.

    Args:
        ledger: an open ledger.
        search: name of a search that is in it.

    Raises:
        LedgerError: the search is not in the ledger.
    """

    def __init__(self, ledger: Ledger, search: str) -> None:
        self._ledger = ledger
        self.search = search
        ledger.search_state(search)

    def fits(self, ask: Asked) -> bool:
        """Return whether a new trial could reserve this now. Only `reserve` decides: another process may be faster."""
        state = self._ledger.search_state(self.search)
        return all(
            steps <= _left(state.pools.get(pool), mechanism)
            for pool, steps, mechanism in (
                (TRAINING, ask.steps, _mechanism(ask)),
                (VALIDATION, ask.releases, None),
            )
            if steps
        )

    def reserve(self, trial: str, ask: Asked) -> None:
        """Promise steps and scores to a trial, all or nothing.

        Raises:
            BudgetRefusedError: they do not fit; nothing was promised.
        """
        asked = {TRAINING: ask.steps, VALIDATION: ask.releases}
        self._ledger.reserve_together(self.search, trial, asked, mechanism=_mechanism(ask))

    def settle(self, trial: str, steps_taken: int) -> None:
        """End a trial; what it reserved and never leased returns."""
        self._ledger.settle(self.search, trial, steps_taken)

    def check_scores(self, *, protected: bool) -> None:
        """Refuse a trial whose scores are protected although the search's are not in the ledger, or the reverse.

        A lease names its mechanism, so the ledger refuses other noise; but a trial that draws scores without noise asks
        for no lease at all.

        Raises:
            LedgerError: the trial and the ledger disagree.
        """
        if (self._ledger.search_state(self.search).validation is not None) != protected:
            raise LedgerError(
                "mechanism-not-reserved",
                f"Scores of {self.search!r} are {'outside' if protected else 'inside'} its guarantee in the ledger, "
                f"and {'inside' if protected else 'outside'} it in a trial. Please report this as a bug.",
            )

    def check_mechanism(self, trial: str, mechanism: SampledGaussian) -> None:
        """Refuse a trial that is about to train with another mechanism than it reserved, before anything starts.

        The ledger refuses such a lease too; here the whole search stops, instead of one trial that fails.

        Raises:
            LedgerError: the trial reserved another mechanism, or nothing.
        """
        known = self._ledger.search_state(self.search).trials.get(trial)
        reserved = None if known is None else known.mechanism
        if reserved != mechanism:
            raise LedgerError(
                "mechanism-not-reserved",
                f"Trial {trial!r} of {self.search!r} reserved {reserved!r} and would train {mechanism!r}. Please "
                "report this as a bug.",
            )

    def charge_for(self, trial: str) -> LedgerCharge:
        """Return the charge from which the training of a trial leases its steps and scores; picklable."""
        return LedgerCharge(self._ledger.url, self.search, trial)

    def outstanding(self) -> dict[str, Reserved]:
        """Return what every trial that is reserved and not settled has reserved and not yet leased (maybe 0)."""
        state = self._ledger.search_state(self.search)
        found: dict[str, Reserved] = {}
        for name, trial in state.training.trials.items():
            if not trial.settled:
                found[name] = Reserved(trial.outstanding)
        for name, trial in state.validation.trials.items() if state.validation else ():
            if not trial.settled:
                found[name] = Reserved(found[name].steps if name in found else 0, trial.outstanding)
        return found

    def charged_steps(self, trial: str) -> int:
        """Return the training steps that a trial has leased so far, by all its attempts together."""
        known = self._ledger.search_state(self.search).trials.get(trial)
        return known.leased if known else 0

    def trial_epsilon(self, trial: str, steps: int) -> float:
        """Return ε of `steps` steps of a trial at the search's δ, as if it were the only one: not the claim.

        Args:
            trial: one with a reservation, or any where the search has only one mechanism.
            steps: at least 0.

        Returns:
            ε; at most the search's for steps that were leased, `math.inf` where double precision is too coarse.

        Raises:
            LedgerError: the trial is unknown, and so is its mechanism.
        """
        require_steps(steps, minimum=0)
        state = self._ledger.search_state(self.search)
        known = state.trials.get(trial)
        mechanism = known.mechanism if known and known.mechanism else state.mechanism
        found = epsilon(mechanism, steps, state.delta)
        return min(found, state.epsilon) if known and steps <= known.leased else found

    def steps_epsilon(self, steps: Mapping[str, int]) -> float:
        """Return ε at the search's δ of these training steps, had they been fixed in advance: not the claim.

        Args:
            steps: by trial; of trials with a reservation, or of any where the search has only one mechanism.

        Returns:
            ε; `math.inf` where double precision is too coarse.

        Raises:
            LedgerError: a trial is unknown, and so is its mechanism.
        """
        state = self._ledger.search_state(self.search)
        parts: Counter[SampledGaussian] = Counter()
        for trial, taken in steps.items():
            require_steps(taken, minimum=0)
            known = state.trials.get(trial)
            parts[known.mechanism if known and known.mechanism else state.mechanism] += taken
        return read_steps(parts, state.delta).epsilon

    def view(self) -> BudgetView:
        """Return what is spent, reserved and left; each new number of steps takes about a tenth of a second."""
        state = self._ledger.search_state(self.search)
        read = read_search(state)
        validation = None
        if state.validation is not None and state.validation_claim is not None and read.validation is not None:
            validation = _view(state, state.validation, state.validation_claim, read.validation)
        return _view(state, state.training, (state.epsilon, state.delta), read.training, validation)


class LedgerCharge:
    """Charge of one trial that leases from a ledger.

    Picklable, and safe after a fork: each process opens the ledger for itself, and never creates one.

    Args:
        url: of the ledger, absolute.
        search: name of the search.
        trial: id of the trial.
    """

    def __init__(self, url: str, search: str, trial: str) -> None:
        self.url, self.search, self.trial = url, search, trial
        self._opened: tuple[int, Ledger] | None = None

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Durably charge `steps` before they are taken.

        Raises:
            BudgetRefusedError: they are not reserved; then none of them may be taken.
            LedgerError: another mechanism is reserved, or the ledger cannot be written; the same holds.
        """
        self._ledger().lease(self.search, self.trial, steps, SampledGaussian(sample_rate, noise_multiplier))

    def leased(self) -> int:
        """Return the steps leased for this trial so far, by all its attempts together."""
        return self._trial(TRAINING).leased

    def restarts(self) -> int:
        """Return how often this trial was interrupted after it had leased, and reserved again what it repeats."""
        return self._trial(TRAINING).restarts

    def release(self, count: int = 1, *, noise: float) -> None:
        """Durably charge `count` scores before they are computed.

        Raises:
            BudgetRefusedError: they are not reserved; then none of them may be computed.
            LedgerError: other noise is reserved, or the ledger cannot be written; the same holds.
        """
        self._ledger().lease(self.search, self.trial, count, SampledGaussian(1.0, noise), pool=VALIDATION)

    def released(self) -> int:
        """Return the scores charged for this trial so far, by all its attempts together."""
        return self._trial(VALIDATION).leased

    def _trial(self, pool: str) -> TrialAccount:
        found = self._ledger().search_state(self.search).pools.get(pool)
        trial = found.trials.get(self.trial) if found else None
        return trial or TrialAccount()

    def _ledger(self) -> Ledger:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), Ledger.open(self.url, create=False))
        return self._opened[1]

    def __getstate__(self) -> dict[str, str]:
        return {"url": self.url, "search": self.search, "trial": self.trial}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.url, self.search, self.trial = state["url"], state["search"], state["trial"]
        self._opened = None


def _mechanism(ask: Asked) -> SampledGaussian | None:
    if ask.sample_rate is None or ask.noise_multiplier is None:
        return None
    return SampledGaussian(ask.sample_rate, ask.noise_multiplier)


def _left(pool: PoolState | None, mechanism: SampledGaussian | None) -> int:
    if pool is None:
        return 0
    mechanism = mechanism or pool.filter.only_mechanism
    return 0 if mechanism is None else pool.left(mechanism)


def _view(
    state: SearchState,
    pool: PoolState,
    claim: tuple[float, float],
    read: Reading,
    validation: BudgetView | None = None,
) -> BudgetView:
    filter, step_cap = pool.filter, pool.filter.most_steps
    spent = float(state.begun) if filter.charged_whole else filter.share(pool.leased, units=pool.leased_units)
    reserved = filter.share(pool.reserved, units=pool.reserved_units)
    return BudgetView(
        spent=spent,
        reserved=reserved,
        left=max(1.0 - spent - reserved, 0.0),
        spent_steps=pool.leased_steps,
        reserved_steps=pool.reserved_steps,
        left_steps=None if step_cap is None else step_cap - pool.leased_steps - pool.reserved_steps,
        step_cap=step_cap,
        epsilon_spent=read.epsilon,
        epsilon_cap=claim[0],
        delta=claim[1],
        validation=validation,
    )
