"""State of a sweep, derived from its records: running trials, the best trial, and whether the sweep has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.recorder.spool import read_spool
from tuner.study.best import best_of

__all__ = ["History", "read_history"]


@dataclass
class History:
    """Summary of a sweep's records, to which further records can be added."""

    last_tick: int = 0  # the latest timestamp, in milliseconds since 1970
    steps: int = 0  # the largest step number in any record
    started: bool = False
    ended: bool = False  # and not resumed since
    _open: dict[str, None] = field(default_factory=dict)  # an ordered set
    _finished: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the last record of each ended trial

    def apply(self, record: Mapping[str, Any]) -> None:
        """Update the summary with one record."""
        self.last_tick = max(self.last_tick, record.get("t", 0))
        self.steps = max(self.steps, record.get("step", 0))
        match record["kind"]:
            case "sweep_started":
                self.started, self.ended = True, False
            case "sweep_finished":
                self.ended = True
            case "trial_started":
                self._open[record["trial"]] = None
                self._finished.pop(record["trial"], None)
            case "trial_finished":
                self._open.pop(record["trial"], None)
                self._finished[record["trial"]] = record

    def open_trials(self) -> tuple[str, ...]:
        """Return the trials that were started and have not ended."""
        return tuple(self._open)

    def ended_trials(self) -> tuple[str, ...]:
        """Return the trials that have ended, in the order of their ends."""
        return tuple(self._finished)

    def counts(self) -> dict[str, int]:
        """Return the number of ended trials by state, and their total as ``done``. A committed run is no trial."""
        trials = (each for each in self._finished.values() if not each.get("tags", {}).get("committed"))
        states = Counter(record["state"] for record in trials)
        ended = {state: states[state] for state in ("complete", "pruned", "failed", "lost")}
        return {**ended, "done": sum(ended.values())}

    def best(self, mode: str) -> tuple[str, float] | None:
        """Return the id and the final score of the best complete trial, or None if no trial is complete.

        A complete committed run is the best, whatever it scored, because its model is released.
        """
        complete = [record for record in self._finished.values() if record["state"] == "complete"]
        committed = [record for record in complete if record.get("tags", {}).get("committed")]
        best = best_of(
            committed or complete, score=lambda each: each["score"], mode=mode, tie=lambda each: -each["number"]
        )
        return None if best is None else (best["trial"], best["score"])


def read_history(path: Path) -> History:
    """Return the summary of all records in a spool."""
    history = History()
    for line in read_spool(path):
        history.apply(line.record)
    return history
