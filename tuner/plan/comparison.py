"""Comparison of the accounting modes: the noise and the number of runs that each mode allows for the same budget."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from tuner.errors import BudgetRefusedError
from tuner.privacy.accountant.filters import steps_of_runs
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon
from tuner.privacy.accountant.run_laws import RunLaw

if TYPE_CHECKING:
    from tuner.plan.plan import Plan

__all__ = ["ModeRow", "comparison"]


@dataclass(frozen=True, kw_only=True)
class ModeRow:
    """The noise and the number of runs that one accounting mode allows for the budget."""

    mode: str  # name of the mode, or "one run, no search"
    noise_multiplier: float | None  # the smallest noise with which the search fits the budget; None if none fits
    epsilon_run: float | None  # ε of a single run with this noise
    expected_runs: float  # expected number of runs on the private records
    runs_99: int  # 99 % of searches have at most this many runs
    refused: str = ""  # why the file cannot use this mode; empty if it can


def comparison(plan: Plan, *, full_runs: float | None = None) -> tuple[ModeRow, ...]:
    """Compare the modes. Each run is as long as the plan's most expensive run, and each noise is calibrated exactly.

    If the plan's noise was calibrated, the row of the plan's own mode shows this noise. All other rows assume one
    mechanism for all runs and, in a sealed search, a geometric number of runs. The plan may
    use other mechanisms or another distribution. `full_runs` adds a row for an open search of so many whole runs of
    steps. It must be given if the plan is of such a search. A committed run has a row of its own.
    """
    rate, steps, target, delta = plan.dearest.sample_rate, plan.dearest.longest, plan.epsilon, plan.delta
    own = plan.accounting if plan.noise_source == "calibrated" and plan.commit is None else ""

    def row(mode: str, noise: float | None, expected: float, most: int) -> ModeRow:
        one = None if noise is None else epsilon(SampledGaussian(rate, noise), steps, delta)
        return ModeRow(mode=mode, noise_multiplier=noise, epsilon_run=one, expected_runs=expected, runs_99=most)

    def composed(runs: float) -> float | None:
        try:
            return calibrate_noise(sample_rate=rate, steps=steps_of_runs(runs, steps), epsilon=target, delta=delta)
        except BudgetRefusedError:
            return None

    single = composed(1)
    rows = [row("one run, no search", single, 1, 1)]
    if plan.commit is not None:
        rows.append(row("this search, committed run", plan.commit.noise_multiplier, 1, 1))
    if plan.trials > 1:
        whole = own == "composition" and plan.full_runs is None
        noise = plan.nominal.noise_multiplier if whole else composed(plan.trials)
        rows.append(row("composition", noise, plan.trials, plan.trials))
        if full_runs is not None:
            planned = own == "composition" and plan.full_runs == full_runs
            noise = plan.nominal.noise_multiplier if planned else composed(full_runs)
            rows.append(row(f"full_runs: {full_runs:g}", noise, full_runs, ceil(full_runs)))
        if plan.selection is not None and own == "selection":
            noise = plan.nominal.noise_multiplier
            rows.append(row("selection", noise, plan.trials, plan.selection.quantiles["99"]))
        else:
            rows.append(_sealed(plan, row))
    rows.append(row("public", plan.nominal.noise_multiplier if own == "public" else single, 1, 1))
    return tuple(rows)


def _sealed(plan: Plan, row: Callable[[str, float | None, float, int], ModeRow]) -> ModeRow:
    """Return the row of a sealed search whose mean number of runs is the plan's number of trials."""
    from tuner.privacy.accountant.selection import at_most_for, calibrate_selection

    run, target, delta = plan.dearest, plan.epsilon, plan.delta
    law = RunLaw(name="geometric", mean=float(plan.trials))
    most = law.quantile(0.99)
    if plan.validation is not None:
        # The number of released scores would show the number of runs.
        return replace(row("selection", None, law.mean, most), refused="refused with protected scores")
    at_most = at_most_for(law, epsilon=target, delta=delta)
    noise = None
    with suppress(BudgetRefusedError):
        noise = calibrate_selection(law, [(run.sample_rate, run.longest)], epsilon=target, delta=delta, at_most=at_most)
    return row("selection", noise, law.mean, most)
