"""Few records for many: what a model whose cost is cubic is given of a large study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from tuner.study.unimodal.records import Context, Record, Seen

__all__ = ["MOST", "thinned"]

MOST: Final = 250
"""Records that a model is fitted to."""

_CELLS: Final = 48
"""Into which the axis is divided: the steps between the points at which curves are drawn."""

_BEST: Final = 0.6
"""Share of what is kept that the best take, where cells are not enough."""


def thinned(records: Sequence[Record], most: int = MOST, keep: Collection[int] = ()) -> tuple[Record, ...]:
    """At most `most` records.

    Records of one rung and one context that lie in one cell of the axis become one: their mean, counted as so many.
    Where trials differ in so much else that this leaves too many, those that got furthest and scored best are kept,
    and of the others an even share, from the best to the worst.

    Args:
        records: any number, sorted as `Seen` has them: so the same trials give the same.
        most: at least 1.
        keep: numbers of trials whose records stay as they are, as long as they are less than half of all that is kept.
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
    """One record for several of one rung; the number names the cell, whose rungs share their trials."""
    count = sum(record.count for record in group)
    place = sum(record.count * record.place for record in group) / count
    score = sum(record.count * record.score for record in group) / count
    return Record(place, group[0].fraction, score, number, group[0].context, count)
