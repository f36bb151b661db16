"""Inspection of a custom data set for its operator: exact facts about PRIVATE records, without noise.

Nothing in this module may be recorded, uploaded or shown to analysts. Its caller prints to the operator's terminal.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainables.data import user_file
from trainables.data.images import KEYS, Arrays
from trainables.data.user import check_own_file
from trainables.errors import DatasetError
from trainables.tasks import BINARY, CLASSIFICATION, REGRESSION

__all__ = ["Remark", "inspect_file"]

Progress = Callable[[str, float], None]
"""Function that gets the name of what is being read, and the fraction that is finished."""

_ROWS = 4096  # rows that are converted at a time, to save memory
_LARGE, _WIDE = 10.0, 100.0  # scale of inputs, and ratio of the columns' scales, from which scaling helps training
_RARE = 0.1  # a class with less than this share of an even split is rare


@dataclass(frozen=True)
class Remark:
    """Remark about a data set: its level (``refused``, ``warning`` or ``note``), and its meaning with the fix."""

    level: str
    text: str


@dataclass
class _Part:
    """Facts about the records of one part, gathered in one pass.

    Attributes:
        rows: digest of each record's inputs as they are trained on.
        not_finite: numbers that are not finite, and the records that have one.
        low, high, total, squares, finite: smallest and largest number of each column, sum, sum of squares, and count.
    """

    rows: list[bytes]
    not_finite: tuple[int, int]
    low: np.ndarray
    high: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    finite: np.ndarray


def inspect_file(
    path: Path, *, users: bool | None = None, task: str = CLASSIFICATION, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Return exact facts about the records in a file, and findings: what each means for training, and the fix.

    Args:
        path: the npz file.
        users: whether users are protected; None if they are protected whenever the file has users.
        task: task of the labels.
        progress: function that gets the progress of the reading.

    Raises:
        DatasetError: the file is missing, damaged, or lacks an array. If it only breaks a rule, the rule is a finding.
    """
    headers = user_file.read_headers(path, (*KEYS, *(user_file.USERS[:1] if users else ())))
    by_user = "user_train" in headers if users is None else users
    by_block = user_file.BLOCK in headers
    facts: dict[str, Any] = {
        "arrays": {name: {"dtype": _kind(head), "shape": list(head.shape)} for name, head in headers.items()},
        "unit": "user" if by_user else "record",
    }
    try:
        check_own_file(path, users=by_user, blocks=by_block, task=task)
        broken = []
    except DatasetError as error:
        broken = [Remark("refused", line.removeprefix(f"{path}: ")) for line in error.message.splitlines()]
    unknown = sorted(headers.keys() - {*KEYS, *user_file.USERS, user_file.BLOCK, "classes"})
    notes = [Remark("note", f"these arrays are not used: {', '.join(unknown)}.")] if unknown else []
    if user_file.header_problems(headers, users=by_user, blocks=by_block, task=task):  # nothing more can be computed
        return facts | {"findings": [asdict(each) for each in [*broken, *notes]]}
    named = (*(user_file.USERS if by_user else ()), *([user_file.BLOCK] if by_block else ()))
    arrays = user_file.read_arrays_of(path, (*KEYS, "classes", *named))
    classes = user_file.classes_of(arrays, task)
    if task == BINARY:
        arrays = _with_classes(arrays)
    if task != REGRESSION and not 2 <= classes <= user_file.MOST_CLASSES:  # they could not be counted
        return facts | {"findings": [asdict(each) for each in [*broken, *notes]]}
    parts = {name: _pass(arrays[f"x_{name}"], name, progress) for name in ("train", "test")}
    found = [
        *_records(arrays, classes, facts, task),
        *_finite(parts, facts),
        *(_numbers(arrays, facts) if task == REGRESSION else _labels(arrays, classes, facts)),
        *_columns(arrays, parts, facts),
        *_duplicates(arrays, parts, facts),
        *(_users(arrays, facts) if by_user else ()),
        *(_blocks(arrays, facts) if by_block else ()),
    ]
    return facts | {"findings": [asdict(each) for each in [*broken, *found, *notes]]}


def _kind(head: user_file.Header) -> str:
    return str(head.dtype.str.lstrip("<>|=") if head.dtype.kind in "US" else head.dtype.name)


def _pass(x: np.ndarray, name: str, progress: Progress) -> _Part:
    """Read all rows once, as float32, as a model would get them."""
    width = math.prod(x.shape[1:])
    zeros = np.zeros(width)
    part = _Part([], (0, 0), zeros + np.inf, zeros - np.inf, zeros, zeros, zeros)
    scale = np.float32(255) if x.dtype == np.uint8 else np.float32(1)
    for start in range(0, len(x), _ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            rows = x[start : start + _ROWS].reshape(-1, width).astype(np.float32) / scale
        finite = np.isfinite(rows)
        bad = ~finite
        part.not_finite = (part.not_finite[0] + int(bad.sum()), part.not_finite[1] + int(bad.any(axis=1).sum()))
        part.low = np.minimum(part.low, np.where(finite, rows, np.inf).min(axis=0))
        part.high = np.maximum(part.high, np.where(finite, rows, -np.inf).max(axis=0))
        rows = np.where(finite, rows, np.float32(0)) + np.float32(0)  # -0.0 is 0.0
        exact = rows.astype(np.float64)
        part.total, part.squares = part.total + exact.sum(axis=0), part.squares + (exact**2).sum(axis=0)
        part.finite = part.finite + finite.sum(axis=0)
        part.rows += (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows)
        progress(f"x_{name}", min(1.0, (start + _ROWS) / len(x)))
    return part


def _records(arrays: Arrays, classes: int, facts: dict[str, Any], task: str) -> Iterator[Remark]:
    train, test = len(arrays["y_train"]), len(arrays["y_test"])
    facts["records"] = {"train": train, "test": test}
    if not train:
        yield Remark("warning", "there is no training record, so a model learns only noise.")
    if len({arrays[f"x_{part}"].dtype == np.uint8 for part in ("train", "test")}) > 1:
        yield Remark(
            "warning",
            "only one of x_train and x_test contains bytes (uint8). Bytes are divided by 255 and other numbers are "
            "not, so test scores mean nothing. Store both arrays with the same dtype.",
        )
    if "classes" not in arrays and task == CLASSIFICATION:
        yield Remark(
            "note",
            f"the file does not declare the number of classes, so the public test labels decide it ({classes}). To "
            f"declare it, store classes={classes} with np.savez.",
        )


def _finite(parts: dict[str, _Part], facts: dict[str, Any]) -> Iterator[Remark]:
    facts["not_finite"] = {
        name: {"numbers": part.not_finite[0], "records": part.not_finite[1]} for name, part in parts.items()
    }
    numbers, records = parts["train"].not_finite
    if numbers:
        yield Remark(
            "warning",
            f"{numbers} numbers in {records} training records are NaN, infinite or too large for float32. Training "
            "replaces each by 0 without a message. Replace missing values by a PUBLIC constant.",
        )


def _with_classes(arrays: Arrays) -> Arrays:
    """Return the arrays with the classes 0 and 1 in the place of the labels −1 and 1, if the test labels are these."""
    if not user_file.signed(arrays["y_test"]):
        return arrays
    told = {key: arrays[key] for key in ("y_train", "y_test")}
    return {**arrays, **{key: np.where(y == -1, 0, np.where(y == 1, 1, -1)) for key, y in told.items()}}


def _numbers(arrays: Arrays, facts: dict[str, Any]) -> Iterator[Remark]:
    """Describe the labels of a regression."""
    found: dict[str, Any] = {}
    for part in ("train", "test"):
        with np.errstate(all="ignore"):
            y = arrays[f"y_{part}"].astype(np.float32)
        kept = y[np.isfinite(y)].astype(np.float64)
        found[part] = {
            "lowest": float(kept.min()) if kept.size else None,
            "highest": float(kept.max()) if kept.size else None,
            "outside": len(y) - len(kept),
            "mean": float(kept.mean()) if kept.size else None,
            "deviation": float(kept.std()) if kept.size else None,
        }
    facts["labels"] = found
    if bad := found["train"]["outside"]:
        yield Remark(
            "warning",
            f"{bad} training records have a label that is NaN, infinite or too large for float32. Training leaves "
            "these records out without a message. Correct the labels.",
        )
    if found["train"]["deviation"] is not None:
        yield Remark(
            "note",
            "a model that always answers the mean label has a mean squared error of "
            f"{found['train']['deviation'] ** 2:.3g} on the training records. Only a smaller loss shows learning. "
            "Scale labels by PUBLIC constants only.",
        )


def _labels(arrays: Arrays, classes: int, facts: dict[str, Any]) -> Iterator[Remark]:
    counts: dict[str, Any] = {}
    for part in ("train", "test"):
        y = arrays[f"y_{part}"]
        inside = y[(y >= 0) & (y < classes)].astype(np.int64)
        counts[part] = {
            "lowest": int(y.min()) if y.size else None,
            "highest": int(y.max()) if y.size else None,
            "outside": len(y) - len(inside),
            "counts": np.bincount(inside, minlength=classes).tolist(),
        }
    facts["labels"] = {"classes": classes, **counts}
    outside, each = counts["train"]["outside"], np.asarray(counts["train"]["counts"])
    if outside:
        yield Remark(
            "warning",
            f"{outside} training records have a label outside 0 to {classes - 1}. Training leaves these records out "
            "without a message. Correct the labels, or store classes=... with np.savez.",
        )
    if not each.sum():
        return
    if empty := np.flatnonzero(each == 0).tolist():
        yield Remark(
            "warning",
            f"no training record has the label {_some(empty)}, so the model cannot learn this class. Number the "
            "classes without gaps, or lower `classes` in the file.",
        )
    rare = np.flatnonzero((each > 0) & (each < _RARE * each.sum() / classes)).tolist()
    share = each.max() / each.sum()
    if rare:
        yield Remark(
            "warning",
            f"the labels are unbalanced: class {_some(rare)} has less than a tenth of the mean class size. The noise "
            "hides rare classes first. Merge rare classes, or accept that they are rarely predicted. Class weights "
            "must be PUBLIC.",
        )
    yield Remark(
        "note",
        f"the most frequent class has {share:.1%} of the training records. A model that always answers this class "
        "has this accuracy, so only a higher accuracy shows learning.",
    )


def _columns(arrays: Arrays, parts: dict[str, _Part], facts: dict[str, Any]) -> Iterator[Remark]:
    part, count = parts["train"], np.maximum(parts["train"].finite, 1)
    mean = part.total / count
    std = np.sqrt(np.maximum(part.squares / count - mean**2, 0))
    seen = part.finite > 0
    if not seen.any():
        return
    low, high = part.low[seen], part.high[seen]
    whole = part.total.sum() / part.finite.sum()
    facts["inputs"] = {
        "smallest": float(low.min()),
        "largest": float(high.max()),
        "mean": float(whole),
        "std": float(math.sqrt(max(part.squares.sum() / part.finite.sum() - whole**2, 0.0))),
        "columns": [
            {"smallest": float(a), "largest": float(b), "mean": float(c), "std": float(d)}
            for a, b, c, d in zip(part.low, part.high, mean, std, strict=True)
        ]
        if arrays["x_train"].ndim == 2 and seen.all()
        else None,
    }
    constant = np.flatnonzero(part.low >= part.high).tolist()
    facts["constant_columns"] = constant
    if len(constant) == len(seen):
        yield Remark("warning", "all training records have the same inputs, so nothing can be learned from them.")
    elif constant:
        what = "column" if arrays["x_train"].ndim == 2 else "position"
        yield Remark(
            "warning",
            f"{len(constant)} of {len(seen)} {what}s of x_train are constant ({_some(constant)}). They teach the "
            f"model nothing, and their weights still get noise. Leave these {what}s out.",
        )
    size = np.maximum(np.abs(low), np.abs(high))
    used = size[size > 0]
    if size.max() > _LARGE or (len(used) and used.max() > _WIDE * used.min() and arrays["x_train"].ndim == 2):
        yield Remark(
            "warning",
            f"the largest absolute values of the columns range from {size.min():.4g} to {size.max():.4g}. Large "
            "inputs have large gradients, which are clipped, and the noise hides small inputs. Scale each column to "
            "about -1 to 1 by PUBLIC constants, such as the limits of the sensor or form. The file's own mean or "
            "range is private.",
        )


def _duplicates(arrays: Arrays, parts: dict[str, _Part], facts: dict[str, Any]) -> Iterator[Remark]:
    rows, labels = parts["train"].rows, arrays["y_train"].tolist()
    seen: dict[bytes, set[int]] = {}
    for row, label in zip(rows, labels, strict=True):
        seen.setdefault(row, set()).add(label)
    copies, torn = len(rows) - len(seen), sum(len(each) > 1 for each in seen.values())
    shared = sum(row in seen for row in parts["test"].rows)
    facts["duplicates"] = {"copies_in_train": copies, "same_inputs_other_label": torn, "test_records_in_train": shared}
    if copies:
        yield Remark(
            "warning",
            f"{copies} training records have the same inputs as an earlier training record. A person with several "
            "copies is protected less than ε says. Leave copies out, or protect users (`privacy.unit: user`).",
        )
    if torn:
        yield Remark(
            "warning",
            f"{torn} inputs occur in x_train with more than one label. A model cannot learn all these labels.",
        )
    if shared:
        yield Remark(
            "warning",
            f"{shared} test records have the same inputs as a training record. Test scores are then too good, and "
            "are published without protection of these records. Leave the records out of one part.",
        )


def _blocks(arrays: Arrays, facts: dict[str, Any]) -> Iterator[Remark]:
    names, counts = np.unique(arrays[user_file.BLOCK].astype(str), return_counts=True)
    facts["blocks"] = dict(zip(names.tolist(), counts.tolist(), strict=True))
    yield Remark(
        "note",
        "block_train divides the table into blocks, each with a budget of its own. The block of a record must depend "
        "on that record alone, for example on its date. Otherwise the guarantee does not hold.",
    )


def _users(arrays: Arrays, facts: dict[str, Any]) -> Iterator[Remark]:
    each = np.unique(arrays["user_train"].astype(str), return_counts=True)
    counts = np.sort(each[1])
    others = np.unique(arrays["user_test"].astype(str)) if "user_test" in arrays else None
    both = 0 if others is None else int(np.isin(each[0], others).sum())
    facts["users"] = {
        "train": len(counts),
        "test": None if others is None else len(others),
        "in_both": both,
        "records_per_user": {"fewest": int(counts[0]), "median": float(np.median(counts)), "most": int(counts[-1])}
        if len(counts)
        else None,
    }
    if both:
        yield Remark(
            "warning",
            f"{both} users are in both user_train and user_test. Training leaves out their training records without "
            "a message. Put every user into one part only.",
        )
    if others is None:
        yield Remark(
            "note",
            "user_test is missing, so nobody can tell whether a user has both training and test records. Add "
            "user_test if some users could have both.",
        )
    if len(counts):
        yield Remark(
            "note",
            f"the median user has {np.median(counts):g} records, and the user with the most has {counts[-1]}. Training "
            "uses at most `dataset.records_per_user` records of a user. Choose this number without looking at the "
            "file, for example from the design of the study.",
        )


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
