"""Budget of one search in the ledger, the durable record of charges."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainables.charge import leases_to_the_end
from tuner.errors import LedgerError
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.odometer import Reading, read_search, read_steps
from tuner.privacy.ledger.state import TRAINING, VALIDATION, PoolState, SearchState, TrialAccount

__all__ = ["Asked", "BudgetReading", "BudgetView", "LedgerCharge", "Reserved", "SearchBudget"]


class Asked(Protocol):
    """Steps and scores that a trial requests before it starts or resumes."""

    @property
    def steps(self) -> int:
        """Number of training steps; may be 0."""

    @property
    def sample_rate(self) -> float | None:
        """Sample rate of the steps. None means the rate that the trial has reserved, or else the search's only rate."""

    @property
    def noise_multiplier(self) -> float | None:
        """Noise multiplier of the steps; None if `sample_rate` is None."""

    @property
    def releases(self) -> int:
        """Number of protected validation scores."""


@dataclass(frozen=True)
class Reserved:
    """Steps and scores that a trial has reserved and not yet leased."""

    steps: int
    releases: int = 0


@dataclass(frozen=True, kw_only=True)
class BudgetView:
    """Spent, reserved and remaining budget of a search. The budget bar shows it.

    A sealed search has spent nothing before it begins. From then on it has spent its whole budget.

    Attributes:
        spent: fraction of the filter's budget that is leased, from 0 to 1 (`Filter.share`).
        reserved: fraction of the filter's budget that is reserved and not yet leased.
        left: remaining fraction of the filter's budget.
        spent_steps: number of leased steps.
        reserved_steps: number of steps that are reserved and not yet leased.
        left_steps: number of remaining steps; None if it depends on the mechanism.
        step_cap: total number of steps that the filter allows; None if there is no fixed number.
        epsilon_spent: ε that the odometer reads at `delta`. This estimate is not a guarantee.
        epsilon_cap: ε of the claim, which is the guarantee.
        delta: δ of `epsilon_spent` and `epsilon_cap`.
        validation: budget for released validation scores; None if the guarantee does not cover the scores.
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
    """Budget of one search. The constructor raises `LedgerError` if the search is not in the ledger."""

    def __init__(self, ledger: Ledger, search: str) -> None:
        _OPENED.pop((os.getpid(), ledger.url), None)  # a run that starts may have another file at this place
        self._ledger = ledger
        self.search = search
        ledger.search_state(search)

    def fits(self, *asks: Asked) -> bool:
        """Return whether all of `asks` can be reserved now, each by a trial of its own.

        Another process may still reserve the budget first.
        """
        pools = dict(self._ledger.search_state(self.search).pools)
        for number, ask in enumerate(asks):
            for name, steps, named in ((TRAINING, ask.steps, _mechanism(ask)), (VALIDATION, ask.releases, None)):
                if not steps:
                    continue
                pool = pools.get(name)
                mechanism = None if pool is None else named or pool.filter.only_mechanism
                if pool is None or mechanism is None or steps > pool.left(mechanism):
                    return False
                asked = TrialAccount(mechanism, reserved=steps, price=pool.filter.price(mechanism))
                pools[name] = pool.with_trial(f"asked {number}", asked)
        return True

    def reserve(self, trial: str, ask: Asked, *, rung: bool = False) -> None:
        """Reserve all requested steps and scores for a trial, or raise `BudgetRefusedError` if they do not fit.

        `rung` says that the trial has taken all that it had reserved, and reserves its next rung.
        """
        asked = {TRAINING: ask.steps, VALIDATION: ask.releases}
        self._ledger.reserve_together(self.search, trial, asked, mechanism=_mechanism(ask), rung=rung)

    def settle(self, trial: str, steps_taken: int) -> None:
        """End a trial, and free the steps and scores that it reserved but never leased."""
        self._ledger.settle(self.search, trial, steps_taken)

    def forfeit(self, trial: str, steps_taken: int, rungs: Sequence[int]) -> None:
        """End a trial, and charge all that it had reserved, with the leases that it would still have asked for.

        Afterwards no count of the ledger, not even the number of its entries, tells when the trial stopped.
        """
        state = self._ledger.search_state(self.search)
        account = state.training.account(trial)
        leases = [(TRAINING, n) for n in leases_to_the_end(account.outstanding, rungs, restarts=account.restarts)]
        if state.validation is not None:
            leases += [(VALIDATION, 1)] * state.validation.account(trial).outstanding
        self._ledger.settle(self.search, trial, steps_taken, leases=leases)

    def check_scores(self, *, protected: bool) -> None:
        """Raise `LedgerError` unless `protected` says correctly whether the search has a budget for protected scores.

        The ledger alone would not notice a trial that releases scores without noise, because such a trial leases no
        score.
        """
        if (self._ledger.search_state(self.search).validation is not None) != protected:
            raise LedgerError(
                "mechanism-not-reserved",
                f"A trial of search {self.search!r} {'protects' if protected else 'does not protect'} its scores, but "
                "the search expects the opposite. Please report this as a bug.",
            )

    def check_mechanism(self, trial: str, mechanism: SampledGaussian) -> None:
        """Raise `LedgerError` if a trial would train with a mechanism that it has not reserved.

        The ledger also refuses the lease of such a trial, but then only the trial fails. This error stops the search.
        """
        reserved = self._ledger.search_state(self.search).training.account(trial).mechanism
        if reserved != mechanism:
            raise LedgerError(
                "mechanism-not-reserved",
                f"Trial {trial!r} of search {self.search!r} reserved {reserved!r} but would train with {mechanism!r}. "
                "Please report this as a bug.",
            )

    def charge_for(self, trial: str) -> LedgerCharge:
        """Return the object with which a trial leases its steps and scores. It can be pickled."""
        return LedgerCharge(self._ledger.url, self.search, trial)

    def outstanding(self) -> dict[str, Reserved]:
        """Return the steps and scores that each unsettled trial has reserved and not yet leased.

        A trial is listed even if both numbers are 0.
        """
        state = self._ledger.search_state(self.search)
        found: dict[str, Reserved] = {}
        for name, trial in state.training.trials.items():
            if not trial.settled:
                found[name] = Reserved(trial.outstanding)
        for name, trial in state.validation.trials.items() if state.validation else ():
            if not trial.settled:
                found[name] = Reserved(found[name].steps if name in found else 0, trial.outstanding)
        return found

    def read(self) -> BudgetReading:
        """Return the budget as it is now, from one transaction of the ledger."""
        return BudgetReading(self._ledger.search_state(self.search))

    def charged_steps(self, trial: str) -> int:
        """Return the number of training steps that all attempts of a trial together have leased."""
        return self.read().charged_steps(trial)

    def charged(self) -> dict[str, int]:
        """Return `charged_steps` of every trial."""
        return {name: trial.leased for name, trial in self._ledger.search_state(self.search).training.trials.items()}

    def trial_epsilon(self, trial: str, steps: int) -> float:
        """Return ε of a trial's first `steps` steps; see `BudgetReading.trial_epsilon`."""
        return self.read().trial_epsilon(trial, steps)

    def steps_epsilon(self, steps: Mapping[str, int]) -> float:
        """Return what the odometer would read at the search's δ if each trial took the given number of steps.

        This ε is not a claim. `steps` has the number of training steps of each trial. Errors and infinite results are
        as in `trial_epsilon`.
        """
        state = self._ledger.search_state(self.search)
        parts: Counter[SampledGaussian] = Counter()
        for trial, taken in steps.items():
            require_steps(taken, minimum=0)
            parts[_mechanism_of(state, trial)] += taken
        return read_steps(parts, state.delta).epsilon

    def view(self, *, live: bool = False, compose: bool = True) -> BudgetView:
        """Return the spent, reserved and remaining budget. The options are those of `odometer.read_search`."""
        return self.read().view(live=live, compose=compose)


@dataclass(frozen=True)
class BudgetReading:
    """Budget of one search at one moment."""

    state: SearchState

    def charged_steps(self, trial: str) -> int:
        """Return the number of training steps that all attempts of a trial together have leased."""
        return self.state.training.account(trial).leased

    def shares(self, trials: Sequence[str]) -> list[float]:
        """Return, after each trial, the share of the filter's budget that it and all trials before it have leased."""
        so_far, found = PoolState(filter=self.state.training.filter, claim=self.state.training.claim), []
        for trial in trials:
            so_far = so_far.with_trial(trial, self.state.training.account(trial))
            found.append(so_far.filter.share(so_far.leased, units=so_far.leased_units))
        return found

    def trial_epsilon(self, trial: str, steps: int) -> float:
        """Return ε of a trial's first `steps` steps at the search's δ, as if no other trial existed.

        This ε is not a claim. If the steps are leased, ε is at most the search's ε. ε is `math.inf` if double precision
        is not enough. Raise `LedgerError` if the trial has reserved nothing and the search has several mechanisms.
        """
        require_steps(steps, minimum=0)
        found = epsilon(_mechanism_of(self.state, trial), steps, self.state.delta)
        return min(found, self.state.epsilon) if steps <= self.charged_steps(trial) else found

    def view(self, *, live: bool = False, compose: bool = True) -> BudgetView:
        """Return the spent, reserved and remaining budget. The options are those of `odometer.read_search`."""
        state, read = self.state, read_search(self.state, live=live, compose=compose)
        validation = None
        if state.validation is not None and read.validation is not None:
            validation = _view(state, state.validation, read.validation)
        return _view(state, state.training, read.training, validation)


class LedgerCharge:
    """Object with which one trial charges its steps and scores to a ledger.

    It can be pickled and used after a fork, because each process opens the existing ledger by its absolute URL.
    """

    def __init__(self, url: str, search: str, trial: str) -> None:
        self.url, self.search, self.trial = url, search, trial

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Charge `steps` steps durably, before the trial takes them. After an error the trial may not take them.

        Raises:
            BudgetRefusedError: the trial has not reserved that many steps.
            LedgerError: the trial has reserved another mechanism, or writing to the ledger failed.
        """
        self._ledger().lease(self.search, self.trial, steps, SampledGaussian(sample_rate, noise_multiplier))

    def leased(self) -> int:
        """Return the number of steps that all attempts of this trial together have leased."""
        return self._trial(TRAINING).leased

    def restarts(self) -> int:
        """Return how often this trial was interrupted after a lease and then reserved the lost steps again."""
        return self._trial(TRAINING).restarts

    def release(self, count: int = 1, *, noise: float) -> None:
        """Charge `count` scores durably, before the trial computes them. Errors are as in `lease`."""
        self._ledger().lease(self.search, self.trial, count, SampledGaussian(1.0, noise), pool=VALIDATION)

    def released(self) -> int:
        """Return the number of scores that all attempts of this trial together have leased."""
        return self._trial(VALIDATION).leased

    def _trial(self, pool: str) -> TrialAccount:
        found = self._ledger().search_state(self.search).pools.get(pool)
        return found.account(self.trial) if found else TrialAccount()

    def _ledger(self) -> Ledger:
        return _opened(self.url)

    def __reduce__(self) -> tuple[type[LedgerCharge], tuple[str, str, str]]:
        return type(self), (self.url, self.search, self.trial)


_OPENED: dict[tuple[int, str], tuple[Ledger, float]] = {}
_VERIFYING = 0.01  # share of the time in which open ledgers are verified anew


def _opened(url: str) -> Ledger:
    """Return the ledger that all charges of this process share, opened anew when that takes a small share of the time.

    Opening verifies all entries, which takes longer with each trial. A read verifies the new entries alone, so only a
    new opening notices that an old entry was changed.
    """
    ledger, due = _OPENED.get((os.getpid(), url), (None, 0.0))
    now = time.monotonic()
    if ledger is None or now >= due:
        ledger = Ledger.open(url, create=False)
        took = time.monotonic() - now
        _OPENED[os.getpid(), url] = ledger, now + took / _VERIFYING
    return ledger


def _mechanism(ask: Asked) -> SampledGaussian | None:
    if ask.sample_rate is None or ask.noise_multiplier is None:
        return None
    return SampledGaussian(ask.sample_rate, ask.noise_multiplier)


def _mechanism_of(state: SearchState, trial: str) -> SampledGaussian:
    """Return the mechanism that a trial has reserved, or else the search's only mechanism."""
    return state.training.account(trial).mechanism or state.mechanism


def _view(state: SearchState, pool: PoolState, read: Reading, validation: BudgetView | None = None) -> BudgetView:
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
        epsilon_cap=pool.claim[0],
        delta=pool.claim[1],
        validation=validation,
    )
