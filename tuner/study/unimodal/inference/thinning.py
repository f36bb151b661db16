"""Thinning: few records for many, because the cost of the model is cubic in their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from tuner.study.unimodal.inference.records import Context, Record, Seen

__all__ = ["MOST", "thinned"]

MOST: Final = 250
"""Largest number of records that a model is fitted to."""

_CELLS: Final = 48
"""Cells of the axis: the steps between the points of a curve."""

_BEST: Final = 0.6
"""Share of the best among the kept records, where merging by cells is not enough."""


def thinned(records: Sequence[Record], most: int = MOST, keep: Collection[int] = ()) -> tuple[Record, ...]:
    """Return at most `most` records.

    Records of one rung and one context in one cell of the axis are merged into their mean, with their count. Where this
    leaves too many, because trials differ in much else, the records of the latest rungs with the best scores are kept,
    and an even share of the others, from the best to the worst.

    Args:
        records: any number, sorted as in `Seen`, so that the same trials give the same result.
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
    """Merge records of one rung into one; its trial number names the cell, whose rungs share their trials."""
    count = sum(record.count for record in group)
    place = sum(record.count * record.place for record in group) / count
    score = sum(record.count * record.score for record in group) / count
    return Record(place, group[0].fraction, score, number, group[0].context, count)
