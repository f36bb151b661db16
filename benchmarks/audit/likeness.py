"""One exact test of whether searches on D and on D′ show outputs of one law, over all outputs at once.

Each output becomes columns of a table with one row a search: for words, whether they are this text; for a number, its
rank and its distance from the middle rank. The statistic is the largest standardised difference of a column between the
two groups. If all rows have one law, every division of the rows into groups is as likely, so the share of random
divisions with a statistic as large is a p-value, however the columns depend on each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from benchmarks.audit.shown import KINDS, Shown

__all__ = ["law_p", "unlike"]

Search = Mapping[str, Shown]
"""All that one search showed, by kind of output."""

_FIRST, _MORE, _CHUNK = 1000, 200_000, 4000
_LOOK_CLOSER = 0.02


def unlike(here: Sequence[Search], one: Search) -> dict[str, str]:
    """Return the kinds in which a search shows words, or a number that is not random, that none on D showed.

    Args:
        here: searches on D.
        one: a search on D′.

    Returns:
        kind → an example of what differs.
    """
    found = {}
    for kind in KINDS:
        shown = one.get(kind, Shown())
        alike = [each for each in (search.get(kind, Shown()) for search in here) if each.words == shown.words]
        if not alike:
            found[kind] = _first_other_line(here[0].get(kind, Shown()), shown)
            continue
        known = np.array([each.numbers for each in alike])
        fixed = ~np.array(shown.charged, dtype=bool) & (known == known[0]).all(axis=0)
        others = fixed & (known[0] != np.array(shown.numbers))
        if others.any():
            place = int(np.flatnonzero(others)[0])
            found[kind] = f"{shown.names[place]} {shown.numbers[place]:g} instead of {known[0][place]:g}"
    return found


def _first_other_line(here: Shown, there: Shown) -> str:
    known = Counter(here.lines)
    new = [line for line in there.lines if line not in known]
    gone = [line for line in here.lines if line not in set(there.lines)]
    return f"shows {new[0]!r}" if new else f"does not show {gone[0]!r}" if gone else "another order of lines"


def law_p(here: Sequence[Search], there: Sequence[Search], draw: np.random.Generator) -> float:
    """Return the p-value of the test for two groups of searches; 1 if nothing varies.

    A small p-value of 1 000 divisions is replaced by that of 200 000 further ones. So a p-value at or below any level
    under 0.02 has at most the probability of that level.
    """
    rows = [*here, *there]
    columns = [column for column in _columns(rows) if np.ptp(column) > 0]
    if not columns:
        return 1.0
    table = np.array(columns).T
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    group = np.array([0.0] * len(here) + [1.0] * len(there))
    seen = float(np.abs(group @ table).max())

    def share(divisions: int) -> float:
        as_far = 0
        for begun in range(0, divisions, _CHUNK):
            groups = draw.permuted(np.tile(group, (min(_CHUNK, divisions - begun), 1)), axis=1)
            as_far += int((np.abs(groups @ table).max(axis=1) >= seen * (1 - 1e-9)).sum())
        return (1 + as_far) / (1 + divisions)

    first = share(_FIRST)
    return first if first > _LOOK_CLOSER else share(_MORE)


def _columns(rows: Sequence[Search]) -> Iterator[np.ndarray]:
    for kind in KINDS:
        shown = [row.get(kind, Shown()) for row in rows]
        texts = Counter(each.words for each in shown)
        for text in texts:
            has = np.array([each.words == text for each in shown])
            yield has.astype(float)
            if has.sum() < 2:
                continue
            numbers = np.array([each.numbers for each in shown if each.words == text])
            for values in numbers[:, np.ptp(numbers, axis=0) > 0].T:
                rank = np.full(len(rows), (has.sum() + 1) / 2)  # a search without this number is in the middle
                rank[has] = rankdata(values)
                yield rank
                yield np.abs(rank - (has.sum() + 1) / 2)
