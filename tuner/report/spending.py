"""Best score of a search as a function of its spending, and the spending if no trial had been stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.errors import LedgerError
from tuner.privacy.ledger.amounts import amount
from tuner.report.trial_row import TrialRow
from tuner.report.wording import format_value, plural
from tuner.study.best import is_better

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import SearchBudget

__all__ = ["Charged", "Spending", "SpendingRow", "charges", "spending"]


@dataclass(frozen=True, kw_only=True)
class Charged:
    """What one trial was charged, and what was charged after it and all trials with lower numbers."""

    trial: int  # number of the trial
    steps: int  # of all its attempts
    total: int  # steps of this trial and all before it
    share: float  # of the search's budget, of this trial and all before it


@dataclass(frozen=True, kw_only=True)
class SpendingRow:
    """State of the search after one trial and all earlier trials."""

    trial: int  # number of the trial
    best: float | None  # best score of a complete trial so far
    steps: int  # of all trials so far
    whole_steps: int  # if each had run to its end; the last row includes excluded candidates
    epsilon: float | None = None  # of `steps`, an odometer reading; None if unknown
    whole_epsilon: float | None = None  # of `whole_steps`, if they had been taken; None if unknown


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Best score as a function of the spent steps and ε."""

    rows: tuple[SpendingRow, ...]  # one after every new best trial, and one after the last trial
    trials: int  # candidates that were drawn, started or not
    stopped: int  # trials that were stopped early
    excluded: int  # candidates that never started
    cap: float | None = None  # ε of the guarantee; None if nothing is charged
    delta: float | None = None  # of every ε here
    twice: int = 0  # steps that were paid twice, because a worker or the driver was lost
    twice_epsilon: float | None = None  # what they added to the odometer; None if unknown

    @property
    def with_epsilon(self) -> bool:
        """Whether ε is known in every row. If not, only steps are shown."""
        return all(row.epsilon is not None and row.whole_epsilon is not None for row in self.rows)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings as sentences."""
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
            said[0] += f" If the same {trials} had all run to their ends, they would have taken {whole}."
        if self.with_epsilon and self.cap is not None and self.delta is not None:
            said.append(
                "“Spent so far” is an estimate for information. The guarantee is the cap: "
                f"ε = {amount(self.cap)} at δ = {amount(self.delta)}."
            )
            if saved and last.whole_epsilon is not None and last.whole_epsilon > self.cap:
                said.append("If all trials had run to their end, they would not have fit under the cap.")
        if self.twice:
            more = "" if self.twice_epsilon is None else f" (ε {format_value(self.twice_epsilon)}, an estimate)"
            said.append(
                f"{plural(self.twice, 'step')} {'was' if self.twice == 1 else 'were'} paid twice{more}: a worker "
                "or the driver was lost, and its trial repeated the steps since its last checkpoint."
            )
        if self.stopped:
            said.append("The final scores of stopped trials are unknown.")
        return tuple(said)


def charges(trials: Sequence[TrialRow], budget: SearchBudget) -> tuple[Charged, ...]:
    """Return what each trial was charged, in the order of their numbers, from one reading of the ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    reading, found, total = budget.read(), [], 0
    for trial, share in zip(trials, reading.shares([trial.id for trial in trials]), strict=True):
        steps = reading.charged_steps(trial.id)
        total += steps
        found.append(Charged(trial=trial.number, steps=steps, total=total, share=share))
    return tuple(found)


def spending(
    trials: Sequence[TrialRow], *, mode: str, budget: SearchBudget | None, excluded: int = 0, whole: int = 0
) -> Spending | None:
    """Return the spending in the order of the trials' numbers, or None if there is no trial.

    If `budget` is None, nothing is charged, and the steps of the trials are counted instead. `excluded` is the number
    of candidates that the pruner excluded; each would have taken `whole` steps. Each ε takes about 0.1 s to compute.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if not trials:
        return None
    view = None if budget is None else budget.view()
    charged = {trial.id: trial.step if budget is None else budget.charged_steps(trial.id) for trial in trials}

    def epsilon_of(steps: Mapping[str, int]) -> float | None:
        if budget is None or view is None:
            return None
        if steps == charged and sum(charged.values()) == view.spent_steps:
            return view.epsilon_spent  # a Rényi filter may have a smaller ε for all of them together
        try:
            found = budget.steps_epsilon(steps)
        except LedgerError:  # a candidate that never started has no noise in the ledger
            return None
        return found if math.isfinite(found) else None

    taken: dict[str, int] = {}
    to_end: dict[str, int] = {}
    rows: list[SpendingRow] = []
    best: float | None = None
    for trial in trials:
        taken[trial.id] = charged[trial.id]
        # Steps repeated after a crash would have been repeated in any case.
        to_end[trial.id] = max(charged[trial.id], trial.steps_planned)
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
                    epsilon=epsilon_of(taken),
                    whole_epsilon=epsilon_of(to_end),
                )
            )
    # What an ended trial was charged beyond its own steps. A failed trial forfeits the rest of its reservation.
    once = {
        trial.id: min(trial.step, charged[trial.id]) if trial.state in ("complete", "pruned") else charged[trial.id]
        for trial in trials
    }
    twice = sum(charged.values()) - sum(once.values())
    all_paid, paid_once = (epsilon_of(charged), epsilon_of(once)) if twice else (None, None)
    return Spending(
        twice=twice,
        twice_epsilon=None if all_paid is None or paid_once is None else all_paid - paid_once,
        rows=tuple(rows),
        trials=len(trials) + excluded,
        stopped=sum(trial.state == "pruned" for trial in trials),
        excluded=excluded,
        cap=None if view is None else view.epsilon_cap,
        delta=None if view is None else view.delta,
    )
