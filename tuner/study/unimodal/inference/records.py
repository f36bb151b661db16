"""Records: scores at rungs, of trials at places on an axis; and their thinning to a number that a model can fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALONE", "Context", "Record", "Seen", "Standing", "thinned"]

Array = NDArray[np.float64]

_MOST: Final = 250
"""Largest number of records that a model is fitted to: its cost is cubic in their number."""

_CELLS: Final = 48
"""Number of cells of the axis, one between two points of a curve."""

_BEST: Final = 0.6
"""Share of the records that are kept for their scores if merging by cells leaves too many."""


@dataclass(frozen=True, order=True)
class Context:
    """Parameters of a trial other than the one of the axis.

    Attributes:
        values: names and values of the other searched parameters, sorted by name. A number is scaled to [0, 1], any
            other value is text.
        low: least place on the axis that a trial with these values can take; above 0 if they scale the parameter.
        high: largest such place.
    """

    values: tuple[tuple[str, float | str], ...] = ()
    low: float = 0.0
    high: float = 1.0


ALONE = Context()
"""Context of every trial if nothing else is searched."""


@dataclass(frozen=True, order=True)
class Record:
    """Score of a trial at a rung.

    Attributes:
        place: place of the trial on its axis, 0 to 1.
        fraction: share of the steps taken, above 0, at most 1.
        score: score whose sign makes larger values better.
        trial: number of the trial.
        count: number of trials whose mean it is; see `thinned`.
    """

    place: float
    fraction: float
    score: float
    trial: int
    context: Context = ALONE
    count: int = 1

    def __hash__(self) -> int:
        """Hash few fields only: a large study looks up all its records at every decision."""
        return hash((self.place, self.fraction, self.score, self.trial))


@dataclass(frozen=True, order=True)
class Standing:
    """Trial that was started.

    Attributes:
        trial: number of the trial.
        state: running, complete or pruned; failed trials are left out.
        audit: whether the trial was placed far from all others, to look for another peak.
    """

    place: float
    trial: int
    state: str
    context: Context = ALONE
    audit: bool = False

    def __hash__(self) -> int:
        """Hash few fields only, as for a record."""
        return hash((self.place, self.trial, self.state))


@dataclass(frozen=True)
class Seen:
    """Records and trials, sorted in an order that does not depend on time."""

    records: tuple[Record, ...]
    trials: tuple[Standing, ...]

    @classmethod
    def of(cls, records: Iterable[Record], trials: Iterable[Standing]) -> Seen:
        """Sort records and trials."""
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


def thinned(records: Sequence[Record], most: int = _MOST, keep: Collection[int] = ()) -> tuple[Record, ...]:
    """Return at most `most` records.

    Records of one rung, one context and one cell of the axis are merged into their mean. If this leaves too many
    because trials differ in other parameters, the records of the latest rungs with the best scores are kept, and the
    others are sampled evenly from the best to the worst.

    Args:
        records: sorted as in `Seen`, so that the same trials give the same result.
        most: at least 1.
        keep: numbers of trials whose records are not merged, if they are less than half of all kept records.
    """
    if len(records) <= most:
        return tuple(records)
    whole = [record for record in records if record.trial in keep]
    if 0 < len(whole) < most / 2:
        others = [record for record in records if record.trial not in keep]
        return Seen.of((*whole, *thinned(others, most - len(whole))), ()).records
    cells: dict[tuple[Context, int, float], list[Record]] = defaultdict(list)
    for record in records:
        cells[record.context, min(int(record.place * _CELLS), _CELLS - 1), record.fraction].append(record)
    numbers = {key[:2]: -1 - number for number, key in enumerate(sorted({key[:2] for key in cells}))}
    merged = [_mean(group, numbers[key[:2]]) for key, group in cells.items()]
    if len(merged) <= most:
        return Seen.of(merged, ()).records
    ranked = sorted(merged, key=lambda record: (-record.fraction, -record.score, record.place, record.trial))
    best = round(_BEST * most)
    rest = ranked[best:]
    spread = [rest[number * len(rest) // (most - best)] for number in range(most - best)]
    return Seen.of((*ranked[:best], *spread), ()).records


def _mean(group: Sequence[Record], number: int) -> Record:
    """Merge records of one rung into one. Its trial number is that of the cell, the same at every rung."""
    count = sum(record.count for record in group)
    place = sum(record.count * record.place for record in group) / count
    score = sum(record.count * record.score for record in group) / count
    return Record(place, group[0].fraction, score, number, group[0].context, count)
