"""Rules for the file of a custom data set: its arrays, their types and shapes, and its PUBLIC test records.

The rules use the headers of the training arrays and never a training record, so no refusal depends on a record. They
show no length of a training array, because the number of training records is private.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol

import numpy as np

from trainables.data.images import KEYS, Arrays
from trainables.errors import DatasetError
from trainables.suggestions import meant, near_files
from trainables.tasks import BINARY, CLASSIFICATION, REGRESSION

__all__ = [
    "BLOCK",
    "MOST_CLASSES",
    "USERS",
    "Header",
    "changed",
    "classes_of",
    "content_of",
    "header_problems",
    "labels_are_numbers",
    "problems_of_test",
    "read_arrays_of",
    "read_headers",
    "refuse",
    "signed",
]

USERS = ("user_train", "user_test")
"""Names of the arrays with the users of the records."""

BLOCK = "block_train"
"""Name of the array with the block of each training record."""

MOST_CLASSES = 100_000  # a model with one output for each class would not fit into memory
_SALT = 32  # hexadecimal digits
_LABEL_FIX = {
    "f": "For a regression, choose the task `regression`. If the numbers name classes, convert them with .astype(int).",
    "b": "Convert the labels with .astype(int).",
    "U": "Number the classes from 0.",
    "S": "Number the classes from 0.",
}


class _Typed(Protocol):
    """Array, or the header of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""


@dataclass(frozen=True)
class Header:
    """Shape and dtype of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype


def content_of(path: Path) -> str:
    """Return a checksum of the file with a new random salt, for `read_arrays_of`.

    Raises:
        DatasetError: as `read_headers`.
    """
    with _opened(path) as file:
        return _checksum(file, secrets.token_hex(_SALT // 2))


def _checksum(file: BufferedReader, salt: str) -> str:
    file.seek(0)
    found = hashlib.file_digest(file, lambda: hashlib.blake2b(key=salt.encode(), digest_size=32))
    file.seek(0)
    return salt + found.hexdigest()


def changed(path: Path) -> DatasetError:
    """Return the error of a file whose content is not the one that was checked."""
    return DatasetError(
        "own-file-changed",
        f"{path} was written to after it was checked. Start or resume again, and it is checked anew. If its records "
        "have changed, restore it first.",
    )


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Open the file. Every error while reading becomes a DatasetError."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        found = meant(near_files(path, kinds=(".npz",)))
        raise DatasetError("own-file-missing", f"There is no file {path}.{found} Correct the path.") from error
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        # Only the error's class is reported, because the message may quote the private file.
        table = "" if path.suffix == ".npz" else ' From a table: x_train=table[columns].to_numpy("float32").'
        raise DatasetError(
            "own-file-format",
            f"{path} must be an npz file of arrays, without pickled objects (got {type(error).__name__} while "
            f"reading it). Write the file with numpy.savez, and texts with .astype(str).{table}",
        ) from error


def read_headers(path: Path, needed: Sequence[str] = KEYS) -> dict[str, Header]:
    """Return the header of every array in the file, by name. No array is read.

    Raises:
        DatasetError: the file is missing, damaged or no npz file, has pickled objects, or lacks a needed array.
    """
    with _opened(path) as opened, zipfile.ZipFile(opened) as file:
        found = {}
        for entry in file.infolist():
            with file.open(entry) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(stream)
                if dtype.hasobject or entry.file_size - stream.tell() != math.prod(shape) * dtype.itemsize:
                    raise ValueError
                found[entry.filename.removesuffix(".npy")] = Header(shape, dtype)
    if missing := [key for key in needed if key not in found]:
        raise DatasetError(
            "own-file-format",
            f"{path} has no {', '.join(missing)}. Write the file with numpy.savez(path, "
            f"{', '.join(f'{key}=...' for key in needed)}).",
        )
    return found


def read_arrays_of(path: Path, keys: Sequence[str], *, content: str = "") -> Arrays:
    """Return the arrays named in `keys` that the file has.

    With `content`, a result of `content_of`, the file that is read must have this content from the first to the last
    byte that is read. It stays open meanwhile, so that no other file can take its place.

    Raises:
        DatasetError: as `read_headers`, or the content is another one.
    """
    with _opened(path) as opened:
        before = _written(opened)
        if content and _checksum(opened, content[:_SALT]) != content:
            raise changed(path)
        with np.load(opened, allow_pickle=False) as file:
            arrays = {key: file[key] for key in keys if key in file.files}
        if content and _written(opened) != before:
            raise changed(path)
    return arrays


def _written(file: BufferedReader) -> tuple[int, int, int]:
    """Return what differs after the file was written to, renamed or given other rights."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def labels_are_numbers(path: Path) -> bool:
    """Return whether the header of the public test labels has a type with fractions, as only a regression may have."""
    return read_headers(path)["y_test"].dtype.kind == "f"


def refuse(path: Path, problems: Sequence[str]) -> None:
    """Raise one DatasetError with all problems of a file, or return if there is none."""
    if problems:
        raise DatasetError("own-file-arrays", "\n".join(f"{path}: {problem}" for problem in problems))


def header_problems(
    arrays: Mapping[str, _Typed], *, users: bool, blocks: bool = False, task: str = CLASSIFICATION
) -> list[str]:
    """Return the rules that types and shapes break, one sentence each.

    With `users`, users are protected. With `blocks`, the training records are used by blocks. `task` is that of the
    labels.
    """
    found = []
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if task == REGRESSION:
            if len(y.shape) != 1 or y.dtype.kind not in "fiu":
                found.append(f"`y_{part}` must be a vector of numbers, one for each record (got {_type(y)}).")
        elif len(y.shape) != 1 or y.dtype.kind not in "iu":
            fix = _LABEL_FIX.get(y.dtype.kind, "") if len(y.shape) == 1 else "Write one label for each record."
            rule = f"`y_{part}` must be a vector of integer labels, which start at 0 (got {_type(y)})."
            found.append(f"{rule} {fix}".rstrip())
        if len(x.shape) < 2 or x.dtype.kind not in "fiub" or 0 in x.shape[1:]:
            found.append(
                f"`x_{part}` must contain numbers, with one row for each record and at least one column (got "
                f"{_type(x)})."
            )
        found += _lengths(f"x_{part}", x, f"y_{part}", y)
        found += _name_problems(f"user_{part}", arrays, f"y_{part}") if users else []
    found += _name_problems(BLOCK, arrays, "y_train") if blocks else []
    shapes = [arrays[key].shape[1:] for key in ("x_train", "x_test")]
    if shapes[0] != shapes[1]:
        found.append(
            f"`x_train` and `x_test` must have records of the same shape (got {shapes[0]} and {shapes[1]}). Give "
            "both the same columns in the same order."
        )
    declared = arrays.get("classes")
    if declared is not None and (declared.shape != () or declared.dtype.kind not in "iu"):
        found.append(
            f"`classes` must be a single integer of at least 2 (got {_type(declared)}). Write for example classes=10."
        )
    return found


def _name_problems(name: str, arrays: Mapping[str, _Typed], labels: str) -> list[str]:
    names = arrays.get(name)
    if names is None:
        return []  # user_test is optional, and `read_headers` asks for the others
    if len(names.shape) != 1 or names.dtype.kind not in "iuU":
        return [f"`{name}` must be a vector of integers or strings, one for each record (got {_type(names)})."]
    return _lengths(name, names, labels, arrays[labels])


def _lengths(name: str, one: _Typed, other_name: str, other: _Typed) -> list[str]:
    if one.shape[:1] == other.shape[:1]:
        return []
    shown = "they differ" if name.endswith("train") else f"got {one.shape[:1]} and {other.shape[:1]}"
    return [
        f"`{name}` and `{other_name}` must have the same length ({shown}). `tune data check FILE` shows the lengths to "
        "the operator."
    ]


def _type(array: _Typed) -> str:
    """Return an array's dtype and the shape of its rows, without its length and that of its longest text."""
    rows = f"{len(array.shape)} axes" if len(array.shape) < 2 else f"rows of shape {array.shape[1:]}"
    kind = "text" if array.dtype.kind in "US" else array.dtype.name
    return f"{kind}, {rows.replace('1 axes', '1 axis')}"


def classes_of(arrays: Arrays, task: str = CLASSIFICATION) -> int:
    """Return the declared number of classes. If it is not declared, count the classes of the public TEST labels.

    A binary task has 2, and a regression 1.
    """
    if task != CLASSIFICATION:
        return 2 if task == BINARY else 1
    declared = arrays.get("classes")
    if declared is not None:
        return int(declared)
    labels = arrays["y_test"]
    return max(2, int(labels.max()) + 1) if labels.size else 2


def signed(labels: np.ndarray) -> bool:
    """Return whether the PUBLIC test labels of a binary task are −1 and 1. Otherwise they are 0 and 1."""
    return bool((labels == -1).any())


def problems_of_test(arrays: Arrays, inputs: np.ndarray, task: str = CLASSIFICATION) -> list[str]:
    """Return the rules that the test records break, one sentence each. `header_problems` must have found nothing.

    Args:
        arrays: `y_test`, and `classes` if it is declared.
        inputs: test inputs as a model would get them.
        task: task of the labels.
    """
    labels, classes = arrays["y_test"], classes_of(arrays, task)
    if task != CLASSIFICATION:
        return [*_other_labels(labels, task), *_not_finite(inputs)]
    if not 2 <= classes <= MOST_CLASSES:
        where = "`classes`" if "classes" in arrays else "the number of classes, which is the largest test label + 1,"
        return [f"{where} must be between 2 and {MOST_CLASSES} (got {classes}). Number the classes from 0."]
    found = []
    if not labels.size:
        found.append("`y_test` must have at least one record (got none).")
    elif labels.min() < 0 or labels.max() >= classes:
        worst = labels.min() if labels.min() < 0 else labels.max()
        found.append(
            f"`y_test` must contain only labels from 0 to {classes - 1} (got {worst}). Store classes=... in the file "
            "if some classes have no test record."
        )
    return [*found, *_not_finite(inputs)]


def _other_labels(labels: np.ndarray, task: str) -> list[str]:
    """Return what is wrong with the test labels of a binary task or a regression."""
    if not labels.size:
        return ["`y_test` must have at least one record (got none)."]
    if task == REGRESSION:
        with np.errstate(all="ignore"):
            bad = int((~np.isfinite(labels.astype(np.float32))).sum())
        return [f"`y_test` must contain only finite float32 numbers (got {bad} other values)."] if bad else []
    if not np.isin(labels, (-1, 1) if signed(labels) else (0, 1)).all():
        return ["`y_test` of a binary task must contain only −1 and 1, or only 0 and 1."]
    return []


def _not_finite(inputs: np.ndarray) -> list[str]:
    if bad := int((~np.isfinite(inputs)).sum()):
        return [
            f"`x_test` must contain only finite float32 numbers (got {bad} other values). Replace missing values by "
            "a constant."
        ]
    return []
