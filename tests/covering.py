"""Covering arrays: few rows in which every two values of two axes meet, instead of the full product."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any


def pairs(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows with one value of each axis, chosen greedily until every pair of values occurs in some row."""
    columns = list(combinations(range(len(axes)), 2))
    left = {(i, a, j, b) for i, j in columns for a in range(len(axes[i])) for b in range(len(axes[j]))}
    rows = []
    while left:
        i, a, j, b = min(left)
        row = {i: a, j: b}
        for axis in range(len(axes)):
            if axis not in row:
                row[axis] = max(range(len(axes[axis])), key=lambda value: len(left & _met({**row, axis: value})))
        left -= _met(row)
        rows.append(tuple(values[row[axis]] for axis, values in enumerate(axes)))
    return rows


def _met(row: dict[int, int]) -> set[tuple[int, int, int, int]]:
    return {(i, row[i], j, row[j]) for i, j in combinations(sorted(row), 2)}
