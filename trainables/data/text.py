"""Next-word prediction with a PUBLIC vocabulary: a few word numbers are the input, the next one is the label."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from trainables.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np

    from trainables.data.images import Arrays

__all__ = ["CONTEXT", "VOCABULARY", "public_vocabulary", "read_speeches", "windows"]

CONTEXT = 4
"""Number of words from which the next one is predicted."""

VOCABULARY = 1000
"""Number of words in the vocabulary, numbered from 1; 0 is every other word."""

_WORD = r"[a-z]+(?:'[a-z]+)*|[.,;:?!]"
_TOKEN = re.compile(rf"{_WORD}|\w+")
_SPEECH = re.compile(r"\d{4}-([A-Za-z]+)(?:-\d)?\.txt")


def public_vocabulary(corpus: Path) -> dict[str, int]:
    """Return the most frequent words of the public Brown corpus with their numbers: 1 is the most frequent.

    A vocabulary counted from the private text would reveal its words, which no noise covers.

    Args:
        corpus: `brown_tokens.npz` with `ids` and `vocab`.

    Raises:
        DatasetError: the file cannot be read.
    """
    import numpy as np

    try:
        with np.load(corpus, allow_pickle=False) as file:
            words, ids = bytes(file["vocab"]).decode().split("\n"), file["ids"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(
            "dataset-damaged", f"{corpus} does not hold the Brown corpus as numbers ({type(error).__name__})."
        ) from error
    counts: Counter[str] = Counter()
    for word, count in zip(words, np.bincount(ids, minlength=len(words)).tolist(), strict=True):
        if re.fullmatch(_WORD, word.lower()):
            counts[word.lower()] += count
    ranked = sorted(counts, key=lambda word: (-counts[word], word))  # equally frequent words in alphabetical order
    return {word: number for number, word in enumerate(ranked[:VOCABULARY], start=1)}


def windows(text: str, vocabulary: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return all windows of CONTEXT words, shape (n, CONTEXT), and the next word of each, shape (n,), as numbers.

    Args:
        text: of one document.
        vocabulary: number of each known word.
    """
    import numpy as np

    numbers = np.array([vocabulary.get(word, 0) for word in _TOKEN.findall(text.lower())], np.uint16)
    if len(numbers) <= CONTEXT:
        return np.zeros((0, CONTEXT), np.uint16), np.zeros(0, np.int64)
    rows = np.lib.stride_tricks.sliding_window_view(numbers, CONTEXT + 1)
    return rows[:, :-1].copy(), rows[:, -1].astype(np.int64)


def read_speeches(speeches: Path, corpus: Path) -> Arrays:
    """Return the State of the Union addresses: a record is a window, a user is a speaker, named by the file.

    Args:
        speeches: the zip of NLTK's `state_union`.
        corpus: see `public_vocabulary`.

    Returns:
        x of shape (n, CONTEXT), y and user of shape (n,), the speeches in the order of their names.

    Raises:
        DatasetError: a file cannot be read.
    """
    import numpy as np

    vocabulary = public_vocabulary(corpus)
    try:
        with zipfile.ZipFile(speeches) as archive:
            found = {PurePosixPath(name).name: name for name in archive.namelist()}
            named = {name: match[1] for name in sorted(found) if (match := _SPEECH.fullmatch(name))}
            texts = [archive.read(found[name]).decode("latin-1") for name in named]
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(
            "dataset-damaged", f"{speeches} is not the zip of the addresses ({type(error).__name__})."
        ) from error
    pairs = [windows(text, vocabulary) for text in texts]
    speakers = [np.full(len(y), speaker) for speaker, (_, y) in zip(named.values(), pairs, strict=True)]
    x, y = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return {"x": x, "y": y, "user": np.concatenate(speakers)}
