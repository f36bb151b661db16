"""What the same budget buys in each mode: one run, an open search, a sealed one, and one after a public search."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tuner.errors import BudgetRefusedError
from tuner.privacy.accounting import calibrate_noise, epsilon
from tuner.privacy.events import SampledGaussian
from tuner.privacy.laws import RunLaw

if TYPE_CHECKING:
    from tuner.plan import Plan

__all__ = ["ModeRow", "comparison"]


@dataclass(frozen=True, kw_only=True)
class ModeRow:
    """What the same budget buys in one mode.

    Attributes:
        mode: one run, composition, selection or public.
        noise_multiplier: of each run, the smallest that fits; None where none does.
        epsilon_run: of one such run by itself.
        expected_runs: on the private records.
        runs_99: of which it makes no more in 99 of 100 searches.
    """

    mode: str
    noise_multiplier: float | None
    epsilon_run: float | None
    expected_runs: float
    runs_99: int

    def as_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def comparison(plan: Plan) -> tuple[ModeRow, ...]:
    """What the budget of a plan buys in each mode, for runs as long as its dearest one; each noise is exact.

    Args:
        plan: of a private search.
    """
    from tuner.privacy.selection import at_most_for, calibrate_selection

    run = plan.dearest
    rate, steps, target, delta = run.sample_rate, run.longest, plan.epsilon, plan.delta

    def row(mode: str, noise: float | None, expected: float, most: int) -> ModeRow:
        own = None if noise is None else epsilon(SampledGaussian(rate, noise), steps, delta)
        return ModeRow(mode=mode, noise_multiplier=noise, epsilon_run=own, expected_runs=expected, runs_99=most)

    def composed(runs: int) -> float | None:
        try:
            return calibrate_noise(sample_rate=rate, steps=runs * steps, epsilon=target, delta=delta)
        except BudgetRefusedError:
            return None

    single = composed(1)
    rows = [row("one run, no search", single, 1, 1)]
    if plan.trials > 1:
        rows.append(row("composition", composed(plan.trials), plan.trials, plan.trials))
        law = RunLaw(name="geometric", mean=float(plan.trials))
        at_most = at_most_for(law, epsilon=target, delta=delta)
        try:
            noise = calibrate_selection(law, [(rate, steps)], epsilon=target, delta=delta, at_most=at_most)
        except BudgetRefusedError:
            noise = None
        rows.append(row("selection", noise, law.mean, law.quantile(0.99)))
    rows.append(row("public", single, 1, 1))
    return tuple(rows)
