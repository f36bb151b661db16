"""Records of the scores of trials at their rungs, and a reduction to few enough records for the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["ALONE", "Context", "Record", "Seen", "Standing", "thinned"]

_MOST: Final = 250
"""Maximum number of records to which a model is fitted. The cost of fitting is cubic in the number of records."""

_CELLS: Final = 48
"""Number of equal cells into which the axis is divided. There is one cell between neighbouring grid points."""

_BEST: Final = 0.6
"""Fraction of the result that consists of the best records, if merging leaves too many records (see `thinned`)."""


@dataclass(frozen=True, order=True)
class Context:
    """Values of a trial's other searched parameters, which are all parameters except the one on the axis.

    Attributes:
        values: pairs (name, value), sorted by name. Numbers are scaled to [0, 1]. Other values are text.
        low: smallest position on the axis that a trial with these values can have. It can exceed 0 if some of the
            values multiply the parameter on the axis.
        high: largest position on the axis that a trial with these values can have.
    """

    values: tuple[tuple[str, float | str], ...] = ()
    low: float = 0.0
    high: float = 1.0


ALONE = Context()
"""Context of all trials if no other parameter is searched."""


@dataclass(frozen=True, order=True)
class Record:
    """Score of a trial, or mean score of merged trials, at a rung.

    Attributes:
        place: position of the trial on the axis, from 0 to 1.
        fraction: fraction of the trial's steps at the rung, above 0 and at most 1.
        score: score of the trial, negated if smaller scores are better.
        trial: number of the trial.
        context: values of the trial's other parameters.
        count: number of trials that were merged into this record (see `thinned`).
    """

    place: float
    fraction: float
    score: float
    trial: int
    context: Context = ALONE
    count: int = 1

    def __hash__(self) -> int:
        """Hash only a few fields, for speed. A large study looks up all its records at every decision."""
        return hash((self.place, self.fraction, self.score, self.trial))


@dataclass(frozen=True, order=True)
class Standing:
    """State of a running, complete or pruned trial. Failed trials have no `Standing`.

    Attributes:
        place: position of the trial on the axis.
        trial: number of the trial.
        state: ``running``, ``complete`` or ``pruned``.
        context: values of the trial's other parameters.
    """

    place: float
    trial: int
    state: str
    context: Context = ALONE

    def __hash__(self) -> int:
        """Hash only a few fields, for speed."""
        return hash((self.place, self.trial, self.state))


@dataclass(frozen=True)
class Seen:
    """Records and trials of a study, in an order that does not depend on when trials reported.

    Attributes:
        records: scores of the trials.
        trials: the trials.
        unexplored: contexts spread over the ranges of the other searched parameters, whether a trial had them or not.
    """

    records: tuple[Record, ...]
    trials: tuple[Standing, ...]
    unexplored: tuple[Context, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Record], trials: Iterable[Standing], unexplored: Iterable[Context] = ()) -> Seen:
        """Return the sorted records and trials."""
        by_place = sorted(records, key=lambda r: (r.place, r.fraction, r.score, r.trial))
        return cls(tuple(by_place), tuple(sorted(trials, key=lambda t: (t.place, t.trial))), tuple(unexplored))

    def standing(self, state: str) -> tuple[Standing, ...]:
        """Return the trials with this state."""
        return tuple(trial for trial in self.trials if trial.state == state)


def thinned(records: Sequence[Record], most: int = _MOST) -> tuple[Record, ...]:
    """Reduce the records to at most `most` records.

    Records with the same rung, context and cell of the axis are merged into their mean. If too many records remain,
    they are sorted by rung, latest first, and then by score, best first. The first records of this order are selected.
    The other records of the result are chosen evenly among the remaining records.

    Args:
        records: records sorted as in `Seen`, so that the same trials give the same result.
        most: maximum number of records, at least 1.
    """
    if len(records) <= most:
        return tuple(records)
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
    """Merge records of one rung into their mean. `number` is the trial number of the merged record."""
    count = sum(record.count for record in group)
    place = sum(record.count * record.place for record in group) / count
    score = sum(record.count * record.score for record in group) / count
    return Record(place, group[0].fraction, score, number, group[0].context, count)
