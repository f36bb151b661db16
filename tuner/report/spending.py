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
    """State of the search after a trial and all before it."""

    trial: int  # number of the trial
    best: float | None  # best score of a complete trial so far
    steps: int  # of all trials so far
    whole_steps: int  # if each had run to its end; the last row includes excluded candidates
    epsilon: float | None = None  # of `steps`, an odometer reading; None if unknown
    whole_epsilon: float | None = None  # of `whole_steps`, if they had been taken; None if unknown


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Steps and ε against the best score."""

    rows: tuple[SpendingRow, ...]  # one after every new best trial, and one after the last trial
    trials: int  # candidates that were drawn, started or not
    stopped: int  # trials that were stopped early
    excluded: int  # candidates that never started
    cap: float | None = None  # ε of the guarantee; None if nothing is charged
    delta: float | None = None  # of every ε here

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
        parts = ((self.stopped, "stopped early"), (self.excluded, "never started"))
        words = ", ".join(f"{number} {what}" for number, what in parts if number)
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

    `charged` returns the steps charged to a trial, by its id; without it, the trial's own steps are counted.
    `epsilon_of` returns the ε of the steps of each trial, in about 0.1 s. None of the `excluded` candidates started;
    each would have taken `whole` steps. `cap` and `delta` are the guarantee.
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
    stopped, drawn = sum(trial.state == "pruned" for trial in trials), len(trials) + excluded
    return Spending(rows=tuple(rows), trials=drawn, stopped=stopped, excluded=excluded, cap=cap, delta=delta)


def _finite(epsilon_of: EpsilonOf | None, steps: Mapping[str, int]) -> float | None:
    found = None if epsilon_of is None else epsilon_of(steps)
    return found if found is not None and math.isfinite(found) else None
