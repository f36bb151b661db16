"""Public records on which the prior is measured: training parts only, scaled by public constants."""

from __future__ import annotations

import csv
import hashlib
import io
import lzma
import re
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from trainables.data import DATASETS, data_folder
from trainables.data.loading import read_arrays
from trainables.data.text import public_vocabulary

Arrays = tuple[np.ndarray, np.ndarray]

OWN_FILES = {
    "kddcup": (
        "kddcup.data_10_percent.xz",
        "e661b70349d6b4595aebd2b8b38300e7d4d10ce95d6426c4bd52411431250a5b",
    ),
    "creditcard_984": (
        "creditcard_984_seed0.csv.xz",
        "0927d4ece8cc50e29586a72de1c7452bdd6d4d1c75b9922f92bc9340d268172b",
    ),
    "cifar100_features": (
        "cifar100_10k2k_mobilenetv2_feats_u8sqrt.npz",
        "fc0fe0021d13683b862ca37af04a53df02ac291a83101d22eebb02ed1acc8588",
    ),
    "genres": ("brown_tokens.npz", "639a85f2288c9a4e93e6fc70f2be14bdc0bc763d7778b25288f9cddec363a09a"),
    "speakers": ("state_union.zip", "366c1dc82b2abf896f42b2ec50ba802a0141a29f75d29ca48a7a243ce5bfbe8d"),
}
"""Data sets that are not in the product's registry: file and sha256."""

FITTED = (
    "digits",
    "iris",
    "breast_cancer",
    "breast_cancer_wisconsin",
    "adult",
    "bank",
    "kddcup",
    "mnist",
    "fashion_mnist",
    "cifar10_10k2k",
)
"""Data sets on which the prior is fitted."""

SET_ASIDE = ("cifar100_features", "creditcard_984")
"""Data sets that were chosen before the first measurement. They are never fitted, and looked at once, at the end."""

_WORDS = 2000  # most frequent words of the Brown corpus
_LEAST_WORDS = 15  # of a paragraph
_PASSAGE, _PASSAGES = 100, 4000  # words of a passage, and the number of passages
_LARGEST = 40_000  # records of a data set that are used


def checksums() -> dict[str, str]:
    """Return the sha256 of every data set: of the file, or of the arrays for data sets of the registry."""
    own = {name: digest for name, (_, digest) in OWN_FILES.items()}
    return {name: own.get(name) or DATASETS[name].content_sha256 for name in (*FITTED, *SET_ASIDE)}


@lru_cache
def training_records(name: str, data_dir: str | None) -> Arrays:
    """Return inputs (float32; images as (n, channels, height, width), tables as (n, d)) and labels (int64).

    Raises:
        ValueError: a file differs from the one that was measured.
    """
    folder = data_folder(data_dir)
    if name in OWN_FILES:
        x, y = _own(name, folder)
    else:
        arrays = read_arrays(DATASETS[name], folder)
        x, y = arrays["x_train"], arrays["y_train"]
        if x.dtype == np.uint8:
            x = x.reshape(len(x), *DATASETS[name].input_shape)
            x = x / np.float32(255) if x.shape[1] == 1 else x / np.float32(127.5) - np.float32(1)
    chosen = np.random.default_rng(0).permutation(len(y))[:_LARGEST]
    return np.ascontiguousarray(x[chosen], np.float32), y[chosen].astype(np.int64)


def _own(name: str, folder: Path) -> Arrays:
    file, digest = OWN_FILES[name]
    raw = (folder / file).read_bytes()
    if hashlib.sha256(raw).hexdigest() != digest:
        raise ValueError(f"{folder / file} is not the file that was measured")
    if name == "cifar100_features":
        with np.load(io.BytesIO(raw)) as arrays:
            scaled = (arrays["q_train"].astype(np.float32) / 255) ** 2 * 6
            return scaled, arrays["y_train"].astype(np.int64)
    if name == "genres":
        return _genres(raw)
    if name == "speakers":
        return _speakers(raw, public_vocabulary(folder / "brown_tokens.npz"))
    rows = list(csv.reader(io.StringIO(lzma.decompress(raw).decode())))
    return _credit_card(rows[1:]) if name == "creditcard_984" else _kddcup(rows)


def _speakers(raw: bytes, vocabulary: Mapping[str, int]) -> Arrays:
    """Return which frequent words of a PUBLIC vocabulary are in each paragraph, and which president said it."""
    inputs, speakers = [], []
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for name in sorted(archive.namelist()):
            if (speech := re.search(r"\d{4}-([A-Za-z]+)", name)) is None:
                continue
            for paragraph in archive.read(name).decode("latin-1").lower().split("\n"):
                words = re.findall("[a-z]+", paragraph)
                if len(words) >= _LEAST_WORDS:
                    inputs.append(np.zeros(_WORDS, np.float32))
                    inputs[-1][[number - 1 for word in words if 0 < (number := vocabulary.get(word, 0)) <= _WORDS]] = 1
                    speakers.append(speech[1])
    return np.stack(inputs), np.unique(speakers, return_inverse=True)[1].astype(np.int64)


def _genres(raw: bytes) -> Arrays:
    """Return which frequent words are in each of 4 000 passages of 100 words, and the genre of the passage's text."""
    with np.load(io.BytesIO(raw)) as corpus:
        ids, document, genres = corpus["ids"], corpus["doc"], np.unique(corpus["cats"], return_inverse=True)[1]
    ends = len(ids) // _PASSAGE * _PASSAGE
    passages, documents = ids[:ends].reshape(-1, _PASSAGE), document[:ends].reshape(-1, _PASSAGE)
    (whole,) = np.nonzero(documents[:, 0] == documents[:, -1])
    chosen = np.random.default_rng(0).permutation(whole)[:_PASSAGES]
    inputs = np.zeros((len(chosen), _WORDS + 1), np.float32)  # the last column is of all other words
    np.put_along_axis(inputs, np.minimum(passages[chosen], _WORDS).astype(np.int64), 1.0, axis=1)
    return inputs[:, :_WORDS], genres[documents[chosen, 0]].astype(np.int64)


def _credit_card(rows: list[list[str]]) -> Arrays:
    table = np.array(rows, dtype=np.float64)
    time, components, amount = table[:, :1] / 172_800, table[:, 1:29] / 10, np.log1p(table[:, 29:30]) / 10
    return np.hstack([time, components.clip(-1, 1), amount]).astype(np.float32), table[:, 30].astype(np.int64)


def _kddcup(rows: list[list[str]]) -> Arrays:
    chosen = np.random.default_rng(0).permutation(len(rows))[:_LARGEST]
    table = [rows[row] for row in chosen]
    columns = []
    for place in range(41):
        cells = [row[place] for row in table]
        if place in (1, 2, 3):  # protocol, service and flag
            words = sorted({row[place] for row in rows})
            columns.append(np.array([[cell == word for word in words] for cell in cells], np.float32))
        else:
            numbers = np.array(cells, np.float64)[:, None]
            columns.append(np.minimum(np.log1p(numbers) / 10, 1).astype(np.float32))
    return np.hstack(columns), np.array([row[41] != "normal." for row in table], np.int64)
