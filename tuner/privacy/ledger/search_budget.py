"""The budget of one search, as the driver and the trials hold it: a search bound to its ledger."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import expm1
from typing import Protocol

from tuner.errors import LedgerError
from tuner.privacy.accountant.filters import CouponBook, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.odometer import Reading, read_search, read_steps
from tuner.privacy.ledger.state import TRAINING, VALIDATION, PoolState, SearchState, TrialState

__all__ = ["Asked", "BudgetView", "LedgerCharge", "Outstanding", "SearchBudget"]


class Asked(Protocol):
    """What a trial asks for before it starts, or before it goes on."""

    @property
    def steps(self) -> int:
        """Training steps; 0 when only scores are asked for."""

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
class Outstanding:
    """What a trial has reserved and not yet leased."""

    steps: int
    releases: int = 0


@dataclass(frozen=True, kw_only=True)
class BudgetView:
    """What is spent, promised and left, for the budget bar.

    The three shares are of the allowance, and sum to 1. Of a cap on total steps: steps. Of a filter at a fixed order:
    Rényi divergence. Of a coupon book: coupons, each weighted by what it adds to the variance of the privacy loss where
    there are many, q²(e^(1/σ²) − 1) (Bu et al. 2020). Of a sealed search: nothing before it begins, then all.

    Attributes:
        spent: share that is leased by all trials.
        reserved: share that is promised and not yet leased.
        left: the rest.
        spent_steps: leased.
        reserved_steps: promised and not yet leased.
        left_steps: neither; None where it depends on the mechanism.
        step_cap: all three together; None where there is none.
        epsilon_spent: ODOMETER at `delta`. Not a guarantee. Finite.
        epsilon_cap: the guarantee.
        delta: of both.
        validation: the same of the released validation scores; None where they are outside the guarantee.
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

    def fits(self, ask: Asked) -> bool:
        """Whether a new trial could reserve this now. Only `reserve` decides; another process may be faster."""
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

    def charge_for(self, trial: str) -> LedgerCharge:
        """What a trial's training leases its steps and scores from; picklable."""
        return LedgerCharge(self._ledger.url, self.search, trial)

    def hold(self, trial: str, *, sample_rate: float, noise_multiplier: float, score_noise: float | None) -> None:
        """Hold what a trial is about to train against what was promised to it: another step was never paid for.

        Raises:
            LedgerError: it would take steps of another mechanism, or release scores with other noise.
        """
        state = self._ledger.search_state(self.search)
        wanted = {TRAINING: SampledGaussian(sample_rate, noise_multiplier)}
        if score_noise is not None:
            wanted[VALIDATION] = SampledGaussian(1.0, score_noise)
        for pool, states in state.pools.items():
            promised = states.trials[trial].mechanism if trial in states.trials else None
            if promised != wanted.get(pool):
                raise LedgerError(
                    f"a trial must train what was reserved for it: {trial!r} of {self.search!r} has {promised!r} in "
                    f"the pool {pool}, and would take {wanted.get(pool)!r}. Please report this as a bug."
                )
        if wanted.keys() - state.pools.keys():
            raise LedgerError(
                f"scores of {self.search!r} are outside its guarantee in the ledger, and inside it in trial {trial!r}. "
                "Please report this as a bug."
            )

    def outstanding(self) -> dict[str, Outstanding]:
        """Of every trial that is reserved and not settled: what it has reserved and not yet leased (maybe 0)."""
        state = self._ledger.search_state(self.search)
        found: dict[str, Outstanding] = {}
        for name, trial in state.training.trials.items():
            if not trial.settled:
                found[name] = Outstanding(trial.outstanding)
        for name, trial in state.validation.trials.items() if state.validation else ():
            if not trial.settled:
                found[name] = Outstanding(found[name].steps if name in found else 0, trial.outstanding)
        return found

    def charged_steps(self, trial: str) -> int:
        """Training steps leased by a trial so far, all its attempts together."""
        known = self._ledger.search_state(self.search).trials.get(trial)
        return known.leased if known else 0

    def trial_epsilon(self, trial: str, steps: int) -> float:
        """ε of a run of `steps` of a trial's steps at the search's δ, as if it were alone: not the claim.

        Args:
            trial: with a reservation, or any where the search has one mechanism.
            steps: at least 0.

        Returns:
            ε; at most the search's for steps that were leased, `math.inf` where double precision cannot tell.

        Raises:
            LedgerError: the trial is unknown, and its mechanism with it.
        """
        require_steps(steps, minimum=0)
        state = self._ledger.search_state(self.search)
        known = state.trials.get(trial)
        mechanism = known.mechanism if known and known.mechanism else state.mechanism
        found = epsilon(mechanism, steps, state.delta)
        return min(found, state.epsilon) if known and steps <= known.leased else found

    def steps_epsilon(self, steps: Mapping[str, int]) -> float:
        """ε at the search's δ of so many training steps of each trial, had they been fixed in advance: not the claim.

        Args:
            steps: by trial; of trials with a reservation, or of any where the search has one mechanism.

        Returns:
            ε; `math.inf` where double precision cannot tell.

        Raises:
            LedgerError: a trial is unknown, and its mechanism with it.
        """
        state = self._ledger.search_state(self.search)
        parts: Counter[SampledGaussian] = Counter()
        for trial, taken in steps.items():
            require_steps(taken, minimum=0)
            known = state.trials.get(trial)
            parts[known.mechanism if known and known.mechanism else state.mechanism] += taken
        return read_steps(parts, state.delta).epsilon

    def view(self) -> BudgetView:
        """Where the budget stands; a new number of steps costs about a tenth of a second."""
        state = self._ledger.search_state(self.search)
        read = read_search(state)
        validation = None
        if state.validation is not None and state.validation_claim is not None and read.validation is not None:
            validation = _view(state, state.validation, state.validation_claim, read.validation)
        return _view(state, state.training, (state.epsilon, state.delta), read.training, validation)


class LedgerCharge:
    """Leases for one trial: implements `trainables.training.Charge` over a ledger.

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
        return self._trial(TRAINING).leased

    def restarts(self) -> int:
        """How often this trial was cut off after it had leased, and reserved what it repeats."""
        return self._trial(TRAINING).restarts

    def release(self, count: int = 1) -> None:
        """Durably charge `count` scores before they are drawn. Raises when refused; then none may be shown."""
        self._ledger().lease(self.search, self.trial, count, pool=VALIDATION)

    def released(self) -> int:
        """Scores charged for this trial so far, all attempts together."""
        return self._trial(VALIDATION).leased

    def _trial(self, pool: str) -> TrialState:
        found = self._ledger().search_state(self.search).pools.get(pool)
        trial = found.trials.get(self.trial) if found else None
        return trial or TrialState()

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
    menu = pool.allowance.mechanisms
    if mechanism is None and len(menu) == 1:
        mechanism = menu[0]
    return pool.left(mechanism) if mechanism is not None else 0


def _view(
    state: SearchState,
    pool: PoolState,
    claim: tuple[float, float],
    read: Reading,
    validation: BudgetView | None = None,
) -> BudgetView:
    step_cap: int | None = None
    match pool.allowance:
        case TotalSteps(step_cap=step_cap):
            spent, reserved = pool.leased_steps / step_cap, pool.reserved_steps / step_cap
        case FixedOrder(budget=budget):
            spent, reserved = pool.leased_units / budget, pool.reserved_units / budget
        case CouponBook(quotas=quotas):
            whole = sum(steps * _weight(mechanism) for mechanism, steps in quotas)
            spent, reserved = (
                sum(steps * _weight(mechanism) for mechanism, steps in part.items()) / whole
                for part in (pool.leased, pool.reserved)
            )
            step_cap = sum(steps for _, steps in quotas)
        case Sealed():
            spent, reserved = float(state.begun), 0.0
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


def _weight(mechanism: SampledGaussian) -> float:
    return max(mechanism.sample_rate**2 * expm1(min(mechanism.noise_multiplier**-2, 300.0)), 1e-300)
