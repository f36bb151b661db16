"""State of a sweep, derived from its records: running trials, the best trial, and whether the sweep has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.recorder.spool import read_spool
from tuner.study.best import best_of

__all__ = ["History", "read_history"]


@dataclass(frozen=True)
class _Finished:
    trial: str
    number: int
    state: str
    score: float | None


@dataclass
class History:
    """Summary of a sweep's records, to which further records can be added.

    Attributes:
        last_tick: the latest timestamp, in milliseconds since 1970.
        steps: the largest step number in any record.
        started: whether the sweep has started.
        ended: whether the sweep has ended and was not resumed since.
    """

    last_tick: int = 0
    steps: int = 0
    started: bool = False
    ended: bool = False
    _open: dict[str, None] = field(default_factory=dict)  # an ordered set
    _finished: dict[str, _Finished] = field(default_factory=dict)

    def apply(self, record: Mapping[str, object]) -> None:
        """Update the summary with one record."""
        tick, step = record.get("t"), record.get("step")
        if isinstance(tick, int):
            self.last_tick = max(self.last_tick, tick)
        if isinstance(step, int):
            self.steps = max(self.steps, step)
        trial = str(record.get("trial", ""))
        match record.get("kind"):
            case "sweep_started":
                self.started, self.ended = True, False
            case "sweep_finished":
                self.ended = True
            case "trial_started":
                self._open[trial] = None
                self._finished.pop(trial, None)
            case "trial_finished":
                score, number = record.get("score"), record.get("number")
                self.trial_finished(
                    trial,
                    number=number if isinstance(number, int) else 0,
                    state=str(record.get("state", "")),
                    score=score if isinstance(score, float) else None,
                )

    def trial_finished(self, trial: str, *, number: int, state: str, score: float | None) -> None:
        """Update the summary with the end of a trial. A second call changes nothing."""
        self._open.pop(trial, None)
        self._finished[trial] = _Finished(trial, number, state, score)

    def open_trials(self) -> tuple[str, ...]:
        """Return the trials that were started and have not ended."""
        return tuple(self._open)

    def counts(self) -> dict[str, int]:
        """Return the number of ended trials by state, and their total as ``done``."""
        states = Counter(each.state for each in self._finished.values())
        ended = {state: states[state] for state in ("complete", "pruned", "failed")}
        return {**ended, "done": sum(ended.values())}

    def best(self, mode: str) -> tuple[str, float] | None:
        """Return the id and the final score of the best complete trial, or None if no trial is complete."""
        complete = (each for each in self._finished.values() if each.state == "complete")
        best = best_of(complete, score=lambda each: each.score, mode=mode, tie=lambda each: -each.number)
        return None if best is None or best.score is None else (best.trial, best.score)


def read_history(path: Path) -> History:
    """Return the summary of all records in a spool."""
    history = History()
    for line in read_spool(path):
        history.apply(line.record)
    return history
