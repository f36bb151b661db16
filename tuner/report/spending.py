"""What a search has spent for the best score it found, and what it would have spent had no trial been stopped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.report.sweep_report import TrialRow, count, format_value
from tuner.study.best import is_better

__all__ = ["Spending", "SpendingRow", "spending"]

EpsilonOf = Callable[[Mapping[str, int]], float | None]


@dataclass(frozen=True, kw_only=True)
class SpendingRow:
    """Where the search stood after a trial and all before it.

    Attributes:
        trial: its number.
        best: the best score so far of a complete trial; None while there is none.
        steps: taken by all trials so far.
        whole_steps: of the same trials, each run to its end; in the last row with those that never started.
        epsilon: of `steps`, an odometer reading; None where it is not known.
        whole_epsilon: of `whole_steps`, as if they had been taken; None where it is not known.
    """

    trial: int
    best: float | None
    steps: int
    whole_steps: int
    epsilon: float | None = None
    whole_epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Steps, and ε, against the best score.

    Attributes:
        rows: after every trial that was better than all before it, and after the last one.
        trials: how many were drawn: started, or excluded before they started.
        stopped: how many of them were stopped early.
        excluded: how many of them never started.
        cap: the guarantee's ε; None where nothing is charged.
        delta: of every ε here.
    """

    rows: tuple[SpendingRow, ...]
    trials: int
    stopped: int
    excluded: int
    cap: float | None = None
    delta: float | None = None

    @property
    def with_epsilon(self) -> bool:
        """Whether every row has both ε: else steps are shown."""
        return all(row.epsilon is not None and row.whole_epsilon is not None for row in self.rows)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is seen."""
        last = self.rows[-1]
        spent, whole = count(last.steps, "step"), count(last.whole_steps, "step")
        if self.with_epsilon:
            spent += f", ε {format_value(last.epsilon)}"
            whole += f", ε {format_value(last.whole_epsilon)} by the same accountant"
        stopped = f"{self.stopped} stopped early" if self.stopped else ""
        refused = f"{self.excluded} never started" if self.excluded else ""
        words = ", ".join(part for part in (stopped, refused) if part)
        trials = f"{count(self.trials, 'trial')}{f' ({words})' if words else ''}"
        saved = last.whole_steps > last.steps
        said = [f"Spent so far: {spent}."]
        if saved:
            said[0] += f" The same {trials}, each run to its end, would have taken {whole}."
        if self.with_epsilon and self.cap is not None and self.delta is not None:
            said.append(
                f"{'These are readings' if saved else 'This is a reading'} of an odometer, not a guarantee: the "
                f"guarantee is the cap, ε = {self.cap:.10g} at δ = {self.delta:.10g}."
            )
            if saved and last.whole_epsilon is not None and last.whole_epsilon > self.cap:
                said.append("The cap would not have held them all.")
        if self.stopped:
            said.append("What the stopped trials would have scored at their end is not known.")
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
    """Counted in the order of the trials' numbers.

    Args:
        trials: those that started, by number.
        mode: ``max`` or ``min``.
        charged: steps that a trial was charged, by its id; its own steps where nothing is charged.
        epsilon_of: ε of so many steps of each trial; each costs about a tenth of a second. None where nothing is
            charged.
        excluded: candidates that never started.
        whole: steps that each of them would have taken.
        cap: the guarantee's ε.
        delta: of the guarantee.

    Returns:
        None where there is no trial.
    """
    taken: dict[str, int] = {}
    to_end: dict[str, int] = {}
    rows: list[SpendingRow] = []
    best: float | None = None
    for trial in trials:
        steps = trial.step if charged is None else charged(trial.id)
        taken[trial.id] = steps
        # What a crash made a trial repeat it would have repeated all the same.
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
