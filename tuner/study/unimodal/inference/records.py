"""Records: scores at rungs, of trials at places on an axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALONE", "Context", "Record", "Seen", "Standing"]

Array = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Context:
    """Other parameters of a trial, besides the one of the axis.

    Attributes:
        values: of the other searched parameters, sorted by name: from 0 to 1 where they are numbers, else their words.
        low: least place on the axis that a trial with these can take; above 0 where they scale the parameter.
        high: largest such place.
    """

    values: tuple[tuple[str, float | str], ...] = ()
    low: float = 0.0
    high: float = 1.0


ALONE = Context()
"""Context of every trial where nothing else is searched."""


@dataclass(frozen=True, order=True)
class Record:
    """Score of a trial at a rung.

    Attributes:
        place: place of the trial on its axis, 0 to 1.
        fraction: share of the steps taken, above 0, at most 1.
        score: larger is better.
        trial: number of the trial.
        context: other parameters of the trial.
        count: number of trials of which it is the mean; see `thinning`.
    """

    place: float
    fraction: float
    score: float
    trial: int
    context: Context = ALONE
    count: int = 1

    def __hash__(self) -> int:
        """Hash what distinguishes records: those of a large study are looked up at every decision."""
        return hash((self.place, self.fraction, self.score, self.trial))


@dataclass(frozen=True, order=True)
class Standing:
    """Trial that was started.

    Attributes:
        place: place on its axis.
        trial: number.
        state: running, complete or pruned; a failed trial is left out.
        context: other parameters of the trial.
        audit: whether it was started where nothing was known, to look for another peak.
    """

    place: float
    trial: int
    state: str
    context: Context = ALONE
    audit: bool = False

    def __hash__(self) -> int:
        """Hash what distinguishes trials, as for a record."""
        return hash((self.place, self.trial, self.state))


@dataclass(frozen=True)
class Seen:
    """All records and trials, in an order that does not depend on time.

    Attributes:
        records: sorted.
        trials: sorted.
    """

    records: tuple[Record, ...]
    trials: tuple[Standing, ...]

    @classmethod
    def of(cls, records: Iterable[Record], trials: Iterable[Standing]) -> Seen:
        """Create it from records and trials in any order."""
        by_place = sorted(records, key=lambda r: (r.place, r.fraction, r.score, r.trial))
        return cls(tuple(by_place), tuple(sorted(trials, key=lambda t: (t.place, t.trial))))

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """Places, fractions, scores and trial numbers, each of shape (records,)."""
        rows = np.array([(r.place, r.fraction, r.score, r.trial) for r in self.records]).reshape(-1, 4)
        return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]

    def standing(self, state: str) -> tuple[Standing, ...]:
        """Return the trials in a state."""
        return tuple(trial for trial in self.trials if trial.state == state)
