"""Plan of a search with a committed run: short, noisy trials, then one run whose model is released.

Two mechanisms share one cap. The trials have a quota of steps with much noise, and the committed run has a quota with
little noise. Both quotas are composed exactly (`CouponBook`), so neither part can use steps of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import expm1, log1p, sqrt
from typing import TYPE_CHECKING, Literal

from tuner.errors import InputError
from tuner.plan.shapes import Choice, Choices, steps_per_trial
from tuner.privacy.accountant.filters import CouponBook
from tuner.privacy.accountant.initial_guess import (
    FIVE_DIGITS,
    found_noise,
    guess_gdp,
    guess_noise,
    guess_on_coarse_grid,
    least_noise,
)
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon_composed
from tuner.study.rungs import scaled_rungs
from tuner.study.types import TrialShape

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.experiment.sections import CommitSection

__all__ = ["SAVES", "CommitPlan", "plan_commit"]

_LEAST_NOISE = 0.2
"""Smallest noise multiplier of the committed run. No grid of privacy losses suits a smaller noise and a larger one."""

SAVES = 25
"""Number of checkpoints of a run that has no spare steps: an interruption shortens it by what it loses."""

_MOST_NOISE = 1e5
"""Largest noise multiplier of a trial, which is that of `calibrate_noise`."""


@dataclass(frozen=True, kw_only=True)
class CommitPlan:
    """The committed run of a search, whose model is released.

    Attributes:
        share: share of the squared privacy loss (μ²) that the trials of the search may use.
        length: steps of a trial, as a fraction of the steps of the committed run.
        start: weights from which the committed run starts, ``scratch`` or ``best_trial``.
        steps: steps of the committed run.
        search_steps: steps of all trials of the search together.
        batch_size: expected batch size, which is that of the trials.
        sample_rate: sample rate, which is that of the trials.
        noise_multiplier: noise of the committed run.
        noise_alone: noise of one run of the same length that has the whole budget and no search before it.
    """

    share: float
    length: float
    start: Literal["scratch", "best_trial"]
    steps: int
    search_steps: int
    batch_size: int
    sample_rate: float
    noise_multiplier: float
    noise_alone: float

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step of the committed run."""
        return SampledGaussian(self.sample_rate, self.noise_multiplier)

    @property
    def choice(self) -> Choice:
        """Batch size, noise and steps of the committed run."""
        return Choice(
            batch_size=self.batch_size,
            sample_rate=self.sample_rate,
            noise=self.noise_multiplier,
            longest=self.steps,
            shortest=self.steps,
        )

    def shape(self, rungs: tuple[int, ...], *, released: bool) -> TrialShape:
        """Return the shape of the committed run. `rungs` are those of a trial; the run reports at the same fractions.

        If `released`, the scores are protected, and each rung releases one.
        """
        own = tuple(scaled_rungs(rungs, self.steps))
        return TrialShape(
            batch_size=self.batch_size,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            rungs=own,
            releases=len(own) if released else 0,
            save_every=max(self.steps // SAVES, 1),
        )

    def filter(self, search: SampledGaussian, *, search_steps: int | None = None) -> CouponBook:
        """Return the coupon book of both parts. `search` is the mechanism of the trials.

        `search_steps` is the quota of the trials, and the planned number if it is None.
        """
        return CouponBook(((search, search_steps or self.search_steps), (self.mechanism, self.steps)))


def plan_commit(
    experiment: Experiment, asked: CommitSection, choices: Choices
) -> tuple[CouponBook, Choices, CommitPlan]:
    """Return the filter of both parts, the choices with the noise of the trials, and the plan of the committed run.

    `asked` is `search.commit` of the experiment.

    The noise of both parts is the smallest with which the two quotas fit (ε, δ) and the trials have their share.

    Raises:
        BudgetRefusedError: no noise multiplier fits the budget.
        InputError: the share is so small that the trials would have more noise than any accountant is used for.
    """
    privacy = experiment.privacy
    (trial,) = choices.menu
    steps = steps_per_trial(
        epochs=experiment.trainable.epochs, train_size=choices.train_size, batch_size=trial.batch_size
    )
    # A search that plans for fewer steps than all trials whole (`full_runs`) changes this number and nothing else.
    search_steps = experiment.search.trials * trial.longest
    rate, target, delta = trial.sample_rate, privacy.epsilon, privacy.delta
    odds = asked.share / (1 - asked.share) * steps / search_steps

    def book(noise: float) -> CouponBook:
        searching = _search_noise(noise, odds)
        return CouponBook(((SampledGaussian(rate, searching), search_steps), (SampledGaussian(rate, noise), steps)))

    def cost(noise: float, coarser: int = 1) -> float:
        return epsilon_composed(book(noise).parts, delta, coarser=coarser)

    first = max(guess_noise(rate * sqrt(steps / (1 - asked.share)), guess_gdp(target, delta)), _LEAST_NOISE)
    guess, slope = guess_on_coarse_grid(cost, target, first)
    found = least_noise(cost, target, guess=guess, slope=slope, low=_LEAST_NOISE)
    what = f"{search_steps} steps of trials and {steps} steps of a committed run"
    noise = found_noise(found, what, epsilon=target, delta=delta)
    searching = _search_noise(noise, odds)
    if searching > _MOST_NOISE:
        raise InputError(
            "commit-share-too-small",
            f"`search.commit.share` of {asked.share:g} gives the trials a noise multiplier of {searching:.4g}, but "
            f"the maximum is {_MOST_NOISE:g}. Raise the share, or plan fewer trials.",
        )
    plan = CommitPlan(
        share=asked.share,
        length=asked.length,
        start=asked.start,
        steps=steps,
        search_steps=search_steps,
        batch_size=trial.batch_size,
        sample_rate=rate,
        noise_multiplier=noise,
        noise_alone=calibrate_noise(sample_rate=rate, steps=steps, epsilon=target, delta=delta),
    )
    return book(noise), replace(choices, noise=searching), plan


def _search_noise(committed: float, odds: float) -> float:
    """Return the noise of the trials for a noise of the committed run, rounded UP to five significant digits.

    A step's squared loss is proportional to e^(1/σ²) − 1 in the limit of many steps (Bu et al. 2020). `odds` is the
    squared loss of a trial's step divided by that of a step of the committed run. The division is no claim: the exact
    composition of both quotas is. The two noises always differ, because the ledger tells the parts apart by them.
    """
    found = FIVE_DIGITS.create_decimal_from_float(1 / sqrt(log1p(odds * expm1(committed**-2))))
    return float(FIVE_DIGITS.next_plus(found) if float(found) == committed else found)
