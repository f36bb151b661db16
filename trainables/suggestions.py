"""Suggestions for a mistyped name: the known names that differ from it by a few letters."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["edit_distance", "meant", "near", "near_files"]

_SHARE = 3  # letters of a name for each letter that may be wrong
_MOST_WRONG = 3
_MOST_NAMES = 3


def edit_distance(one: str, other: str) -> int:
    """Return how many letters must be inserted, removed, replaced or swapped with the next to make the words equal.

    This is the distance of optimal string alignment (Damerau 1964).
    """
    before: list[int] = []
    above, row = before, list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        before, above, row = above, row, [i]
        for j, wanted in enumerate(other, start=1):
            costs = [above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted)]
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                costs.append(before[j - 2] + 1)
            row.append(min(costs))
    return row[-1]


def near(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are near a word, the nearest first; none if all of them are other words.

    A name that begins with the word is near too, if the word has three letters or more.
    """
    word, at_most = word.lower(), min(_MOST_WRONG, len(word) // _SHARE)
    found = [(edit_distance(word, name.lower()), name) for name in dict.fromkeys(known)]
    return [
        name for distance, name in sorted(found) if distance <= at_most or (at_most and name.lower().startswith(word))
    ][:_MOST_NAMES]


def near_files(path: Path, *, kinds: Iterable[str]) -> list[str]:
    """Return the files in the folder of a missing file that have a name near it, as the user would write them.

    `kinds` are the endings that such a file may have. They do not count as letters of a name.
    """
    endings = tuple(kinds)
    try:
        there = {each.name: each for each in path.parent.iterdir() if each.name.endswith(endings) and each.is_file()}
    except OSError:
        return []
    stems: dict[str, list[str]] = {}
    for name, each in sorted(there.items()):
        stems.setdefault(_stem(name, endings), []).append(str(each))
    return [each for stem in near(_stem(path.name, endings), stems) for each in stems[stem]][:_MOST_NAMES]


def meant(names: Iterable[str]) -> str:
    """Return a question about suggested names, with a space before it: `` Did you mean 'a' or 'b'?``; or nothing."""
    quoted = [repr(name) for name in names]
    return f" Did you mean {' or '.join(quoted)}?" if quoted else ""


def _stem(name: str, endings: tuple[str, ...]) -> str:
    return next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
