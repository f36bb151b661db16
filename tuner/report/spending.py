"""Spending of a search against its best score, and what it would have spent if no trial had been stopped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.report.trial_row import TrialRow
from tuner.report.wording import format_value, plural
from tuner.study.best import is_better

__all__ = ["Spending", "SpendingRow", "spending"]

EpsilonOf = Callable[[Mapping[str, int]], float | None]


@dataclass(frozen=True, kw_only=True)
class SpendingRow:
    """State of the search after a trial and all before it.

    Attributes:
        trial: number of the trial.
        best: best score of a complete trial so far; None before the first.
        steps: steps of all trials so far.
        whole_steps: steps of the same trials if each had run to its end; the last row includes excluded candidates.
        epsilon: ε of `steps`, an odometer reading; None if unknown.
        whole_epsilon: ε of `whole_steps`, if they had been taken; None if unknown.
    """

    trial: int
    best: float | None
    steps: int
    whole_steps: int
    epsilon: float | None = None
    whole_epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Steps and ε against the best score.

    Attributes:
        rows: one row after every new best trial, and one after the last trial.
        trials: number of candidates that were drawn, started or not.
        stopped: number of trials that were stopped early.
        excluded: number of candidates that never started.
        cap: ε of the guarantee; None if nothing is charged.
        delta: δ of every ε here.
    """

    rows: tuple[SpendingRow, ...]
    trials: int
    stopped: int
    excluded: int
    cap: float | None = None
    delta: float | None = None

    @property
    def with_epsilon(self) -> bool:
        """Whether every row has both ε; otherwise only steps are shown."""
        return all(row.epsilon is not None and row.whole_epsilon is not None for row in self.rows)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings in words."""
        last = self.rows[-1]
        spent, whole = plural(last.steps, "step"), plural(last.whole_steps, "step")
        if self.with_epsilon:
            spent += f", ε {format_value(last.epsilon)}"
            whole += f", ε {format_value(last.whole_epsilon)} by the same accountant"
        stopped = f"{self.stopped} stopped early" if self.stopped else ""
        refused = f"{self.excluded} never started" if self.excluded else ""
        words = ", ".join(part for part in (stopped, refused) if part)
        trials = f"{plural(self.trials, 'trial')}{f' ({words})' if words else ''}"
        saved = last.whole_steps > last.steps
        said = [f"Spent so far: {spent}."]
        if saved:
            said[0] += f" The same {trials}, each run to its end, would have taken {whole}."
        if self.with_epsilon and self.cap is not None and self.delta is not None:
            said.append(
                "“Spent so far” is an estimate for information (the odometer). The guarantee is the cap: "
                f"ε = {self.cap:.10g} at δ = {self.delta:.10g}."
            )
            if saved and last.whole_epsilon is not None and last.whole_epsilon > self.cap:
                said.append("All of them run to their end would not have fit under the cap.")
        if self.stopped:
            said.append("The final scores of stopped trials are unknown.")
        return tuple(said)


def spending(
    trials: Sequence[TrialRow],
    *,
    mode: str,
    charged: Callable[[str], int] | None = None,
    epsilon_of: EpsilonOf | None = None,
    excluded: int = 0,
    whole: int = 0,
    cap: float | None = None,
    delta: float | None = None,
) -> Spending | None:
    """Return the spending in the order of the trials' numbers; None if there is no trial.

    Args:
        trials: trials that started, in the order of their numbers.
        mode: ``max`` or ``min``.
        charged: returns the steps charged to a trial, by its id; None to count the trial's own steps.
        epsilon_of: ε of a number of steps of each trial (about 0.1 s a call); None if nothing is charged.
        excluded: candidates that never started.
        whole: steps that each excluded candidate would have taken.
        cap: the guarantee's ε.
        delta: of the guarantee.
    """
    taken: dict[str, int] = {}
    to_end: dict[str, int] = {}
    rows: list[SpendingRow] = []
    best: float | None = None
    for trial in trials:
        steps = trial.step if charged is None else charged(trial.id)
        taken[trial.id] = steps
        # Steps repeated after a crash would have been repeated in any case.
        to_end[trial.id] = max(steps, trial.steps_planned)
        last = trial is trials[-1]
        if last:
            to_end |= {f"never started {number}": whole for number in range(excluded)}
        improved = trial.state == "complete" and is_better(trial.score, best, mode=mode)
        if improved:
            best = trial.score
        if improved or last:
            rows.append(
                SpendingRow(
                    trial=trial.number,
                    best=best,
                    steps=sum(taken.values()),
                    whole_steps=sum(to_end.values()),
                    epsilon=_finite(epsilon_of, taken),
                    whole_epsilon=_finite(epsilon_of, to_end),
                )
            )
    if not rows:
        return None
    stopped = sum(trial.state == "pruned" for trial in trials)
    return Spending(
        rows=tuple(rows), trials=len(trials) + excluded, stopped=stopped, excluded=excluded, cap=cap, delta=delta
    )


def _finite(epsilon_of: EpsilonOf | None, steps: Mapping[str, int]) -> float | None:
    found = None if epsilon_of is None else epsilon_of(steps)
    return found if found is not None and math.isfinite(found) else None
