"""Shared code: pairs of places with six equal lines or more."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from benchmarks.house.tree import Source

__all__ = ["Pair", "shared_pairs"]

_LEAST = 6


class Pair(NamedTuple):
    """Two places with equal code, each as path:line; `area` is 'across' if they are in different areas."""

    lines: int
    places: list[str]
    area: str


@dataclass(frozen=True)
class _Code:
    """The lines of a file that are compared, and their numbers."""

    source: Source
    lines: tuple[str, ...]
    numbers: tuple[int, ...]

    def place(self, line: int) -> str:
        """Return path:line of a compared line."""
        return f"{self.source.path}:{self.numbers[line]}"


def shared_pairs(sources: list[Source]) -> list[Pair]:
    """Return the pairs of places that share six lines or more, the longest first.

    Blank lines, comments, docstrings, imports, `__all__`, lines of punctuation alone, and space within a line do not
    count. Two places in one file do not overlap. Code that is in three places makes three pairs.
    """
    windows: dict[tuple[str, ...], list[tuple[_Code, int]]] = defaultdict(list)
    for code in map(_code, sources):
        for start in range(len(code.lines) - _LEAST + 1):
            windows[code.lines[start : start + _LEAST]].append((code, start))
    found = []
    for places in windows.values():
        for (one, first), (other, second) in combinations(places, 2):
            length = _length(one, first, other, second)
            if length >= _LEAST:
                area = one.source.area if one.source.area == other.source.area else "across"
                found.append(Pair(length, [one.place(first), other.place(second)], area))
    return sorted(found, key=lambda pair: (-pair.lines, pair.places))


def _length(one: _Code, first: int, other: _Code, second: int) -> int:
    """Return the number of equal lines from two places on; 0 if the lines before them are equal too."""
    if first and second and one.lines[first - 1] == other.lines[second - 1]:
        return 0
    length = 0
    for left, right in zip(one.lines[first:], other.lines[second:], strict=False):
        if left != right:
            break
        length += 1
    return min(length, second - first) if one is other else length


def _code(source: Source) -> _Code:
    lines = source.text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in source.nodes:
        if isinstance(node, ast.stmt) and _is_ignored(node):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[number - 1] = ""
    kept = [(" ".join(line.split()), at) for at, line in enumerate(lines, start=1) if any(map(str.isalnum, line))]
    return _Code(source, tuple(line for line, _ in kept), tuple(at for _, at in kept))


def _is_ignored(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False
