"""Facts of one trial for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.study.best import best_of

if TYPE_CHECKING:
    from tuner.study.types import TrialView

__all__ = ["CUT_OFF", "TrialRow", "best_row", "varying_parameters"]

CUT_OFF = "cut off"
"""State of a trial that was running when its sweep ended. `tune resume` continues the trial."""


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """Facts of one trial."""

    number: int  # counted from 0
    state: str  # "running", "paused", "complete", "pruned", "failed", "lost", or `CUT_OFF`
    parameters: Mapping[str, object] = field(default_factory=dict)  # flat, fixed ones included
    step: int = 0
    steps_planned: int = 0
    score: float | None = None  # the last score; None if it is not finite
    reason: str = ""  # why the trial was pruned, failed or was lost
    curve: tuple[tuple[int, float], ...] = ()  # (step, score) of every report
    epsilon: float | None = None  # of the trial's own steps
    id: str = ""  # in the ledger and in the sweep's folder
    committed: bool = False  # whether it is the committed run, which follows the search

    @classmethod
    def of(cls, trial: TrialView, *, curve: Sequence[tuple[int, float]] = (), epsilon: float | None = None) -> TrialRow:
        """Return the facts of a trial of the search."""
        score = trial.last_score
        return cls(
            number=trial.number,
            state=trial.state.name.lower(),
            parameters=dict(trial.parameters),
            step=trial.step,
            steps_planned=trial.steps_planned,
            score=score if score is not None and math.isfinite(score) else None,
            reason=trial.reason,
            curve=tuple((step, value) for step, value in curve if math.isfinite(value)),
            epsilon=epsilon,
            id=trial.id,
            committed=trial.committed,
        )


def best_row(rows: Iterable[TrialRow], *, mode: str) -> TrialRow | None:
    """Return the complete trial with the best score, or None if no trial is complete.

    A complete committed run is the best, whatever it scored, because its model is released.
    """
    complete = [row for row in rows if row.state == "complete"]
    committed = [row for row in complete if row.committed]
    return best_of(committed or complete, score=lambda row: row.score, mode=mode, tie=lambda row: -row.number)


def varying_parameters(trials: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the parameters that differ between trials, in order of appearance.

    If there is only one trial, return all its parameters.
    """
    rows = list(trials)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) < 2:
        return tuple(names)
    return tuple(name for name in names if len({repr(row.get(name)) for row in rows}) > 1)
