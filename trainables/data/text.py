"""Records for next-word prediction. An input has the numbers of a few words. Its label is the next word's number.

The vocabulary, which assigns a number to each word, is PUBLIC.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np

from trainables.data.files import reading
from trainables.data.images import Arrays
from trainables.data.registry import CONTEXT, VOCABULARY

__all__ = ["public_vocabulary", "read_speeches", "windows"]

_WORD = r"[a-z]+(?:'[a-z]+)*|[.,;:?!]"
_TOKEN = re.compile(rf"{_WORD}|\w+")
_SPEECH = re.compile(r"\d{4}-([A-Za-z]+)(?:-\d)?\.txt")


def public_vocabulary(corpus: Path) -> dict[str, int]:
    """Return the number of each frequent word in the public Brown corpus. The most frequent word has the number 1.

    A vocabulary of the private text would reveal the words in it, and no noise would hide them.
    """
    with reading(corpus, "the Brown corpus as numbers"), np.load(corpus, allow_pickle=False) as file:
        words, ids = bytes(file["vocab"]).decode().split("\n"), file["ids"]
    counts: Counter[str] = Counter()
    for word, count in zip(words, np.bincount(ids, minlength=len(words)).tolist(), strict=True):
        if re.fullmatch(_WORD, word.lower()):
            counts[word.lower()] += count
    ranked = sorted(counts, key=lambda word: (-counts[word], word))  # equally frequent words in alphabetical order
    return {word: number for number, word in enumerate(ranked[:VOCABULARY], start=1)}


def windows(text: str, vocabulary: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the word numbers of all windows, shape (n, CONTEXT), and of the word after each window, shape (n,)."""
    numbers = np.array([vocabulary.get(word, 0) for word in _TOKEN.findall(text.lower())], np.uint16)
    if len(numbers) <= CONTEXT:
        return np.zeros((0, CONTEXT), np.uint16), np.zeros(0, np.int64)
    rows = np.lib.stride_tricks.sliding_window_view(numbers, CONTEXT + 1)
    return rows[:, :-1].copy(), rows[:, -1].astype(np.int64)


def read_speeches(speeches: Path, corpus: Path) -> Arrays:
    """Return the State of the Union addresses: x, shape (n, CONTEXT), y and user, shape (n,).

    A record is a window of words. Its user is the speaker, whose name is in the file name in NLTK's `state_union`. The
    speeches are sorted by file name.
    """
    vocabulary = public_vocabulary(corpus)
    with reading(speeches, "the zip file of the addresses"), zipfile.ZipFile(speeches) as archive:
        found = {PurePosixPath(name).name: name for name in archive.namelist()}
        named = {name: match[1] for name in sorted(found) if (match := _SPEECH.fullmatch(name))}
        texts = [archive.read(found[name]).decode("latin-1") for name in named]
    pairs = [windows(text, vocabulary) for text in texts]
    speakers = [np.full(len(y), speaker) for speaker, (_, y) in zip(named.values(), pairs, strict=True)]
    x, y = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return {"x": x, "y": y, "user": np.concatenate(speakers)}
