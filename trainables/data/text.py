"""Records for next-word prediction. An input has the numbers of CONTEXT words. Its label is the next word's number.

The vocabulary, which assigns a number to each word, is PUBLIC, and so are CONTEXT and the rule that cuts a text.

A record is a window of CONTEXT + 1 words in a row. The windows of a paragraph do not overlap, and none goes beyond its
paragraph, so no word of a text is in two records: a change inside one paragraph changes the windows of this paragraph
alone. The words after the last whole window of a paragraph are left out.

Let w = CONTEXT + 1, and let a search be (ε, δ)-DP for one window. If one paragraph of at most L words, before and
after, is changed, added or removed, at most k = 2⌊L/w⌋ windows differ. If none of them validates without protection,
group privacy gives (kε, δ·(e^(kε) − 1)/(e^ε − 1)), because the other windows keep their side of the split, a public
hash of their content. A sentence of L words that occurs once crosses at most ⌈(L − 1)/w⌉ borders of windows, so it is
in at most ⌈(L − 1)/w⌉ + 1 windows.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np

from trainables.data.files import reading
from trainables.data.images import Arrays
from trainables.data.registry import CONTEXT, LEAST_COUNT

__all__ = ["documents", "public_vocabulary", "read_speeches", "windows"]

_WORD = r"[a-z]+(?:'[a-z]+)*|[.,;:?!]"
_TOKEN = re.compile(rf"{_WORD}|\w+")
_SPEECH = re.compile(r"\d{4}-([A-Za-z]+)(?:-\d)?\.txt")


def _read_corpus(corpus: Path) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Return the words of each entry of the corpus' own list, and for each token the entry and the document."""
    with reading(corpus, "the Brown corpus as numbers"), np.load(corpus, allow_pickle=False) as file:
        entries, ids, document = bytes(file["vocab"]).decode().split("\n"), file["ids"], file["doc"]
    return [_TOKEN.findall(entry.lower()) for entry in entries], ids, document


def public_vocabulary(corpus: Path, *, least: int = LEAST_COUNT) -> dict[str, int]:
    """Return the number of each word that the public Brown corpus has at least `least` times.

    Words are in lower case. Punctuation marks are words. The most frequent word has the number 1; all that has no
    number is 0. A vocabulary of the private text would reveal the words in it, and no noise would hide them.
    """
    entries, ids, _ = _read_corpus(corpus)
    counts: Counter[str] = Counter()
    for words, count in zip(entries, np.bincount(ids, minlength=len(entries)).tolist(), strict=True):
        for word in words:
            counts[word] += count
    frequent = [word for word, count in counts.items() if count >= least and re.fullmatch(_WORD, word)]
    ranked = sorted(frequent, key=lambda word: (-counts[word], word))  # equally frequent words in alphabetical order
    return {word: number for number, word in enumerate(ranked, start=1)}


def documents(corpus: Path, vocabulary: dict[str, int]) -> list[np.ndarray]:
    """Return the word numbers of each document of the Brown corpus, uint16, in the order of the corpus."""
    entries, ids, document = _read_corpus(corpus)
    numbers = [[vocabulary.get(word, 0) for word in words] for words in entries]
    texts = np.split(ids, np.flatnonzero(np.diff(document)) + 1)
    return [np.array([number for token in text.tolist() for number in numbers[token]], np.uint16) for text in texts]


def windows(numbers: np.ndarray) -> np.ndarray:
    """Return the whole windows of a paragraph, one after the other, shape (n, CONTEXT + 1)."""
    whole = len(numbers) // (CONTEXT + 1)
    return numbers[: whole * (CONTEXT + 1)].reshape(whole, CONTEXT + 1)


def read_speeches(speeches: Path, corpus: Path, *, least: int = LEAST_COUNT) -> Arrays:
    """Return the State of the Union addresses: x, shape (n, CONTEXT), y and user, shape (n,).

    A user is a speaker, whose name is in the file name in NLTK's `state_union`. The speeches are sorted by file name. A
    paragraph is a line.
    """
    vocabulary = public_vocabulary(corpus, least=least)
    with reading(speeches, "the zip file of the addresses"), zipfile.ZipFile(speeches) as archive:
        found = {PurePosixPath(name).name: name for name in archive.namelist()}
        named = {name: match[1] for name in sorted(found) if (match := _SPEECH.fullmatch(name))}
        texts = [archive.read(found[name]).decode("latin-1") for name in named]
    rows = [np.concatenate([windows(_numbers(line, vocabulary)) for line in text.split("\n")]) for text in texts]
    whole = np.concatenate(rows)
    user = np.repeat(list(named.values()), [len(each) for each in rows])
    return {"x": whole[:, :-1].copy(), "y": whole[:, -1].astype(np.int64), "user": user}


def _numbers(text: str, vocabulary: dict[str, int]) -> np.ndarray:
    return np.array([vocabulary.get(word, 0) for word in _TOKEN.findall(text.lower())], np.uint16)
