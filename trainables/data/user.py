"""Reader of custom data sets: an npz file with x_train, y_train, x_test and y_test.

The file may also have ``classes``, the number of classes. If users are protected, it must have ``user_train``, the user
of each training record, and may have ``user_test``, the user of each test record. If the table is used by blocks, it
must have ``block_train``, the block of each training record. A record's block must depend on that record alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.data import user_file
from trainables.data.images import KEYS, Arrays
from trainables.data.requests import COUNTS, DatasetInfo, DatasetRequest
from trainables.errors import DatasetError
from trainables.tasks import BINARY, CLASSIFICATION, REGRESSION

__all__ = ["check_own_file", "read_raw", "read_user", "user_info"]


def user_info(request: DatasetRequest, file: str) -> DatasetInfo:
    """Check the data set in `file`, and return the public facts, from its test records and the declared sizes."""
    users = request.public_users if request.unit == "user" else None
    size = request.public_size
    if size is None and users is not None:
        size = users * request.records_per_user
    if size is None or not COUNTS.allows(size):
        raise DatasetError(
            "public-size-missing",
            f"`dataset.public_size` of {request.name} must be a PUBLIC number of training records, at least 1 (got "
            f"{size}). This number sets the sample rate. The exact number in the file is private.",
        )
    path = Path(file).expanduser().absolute()
    arrays = check_own_file(path, users=users is not None, blocks=bool(request.blocks), task=request.task)
    return DatasetInfo(
        name=request.name,
        public_train_size=size,
        test_size=len(arrays["y_test"]),
        input_shape=tuple(arrays["x_test"].shape[1:]),
        classes=user_file.classes_of(arrays, request.task),
        provenance="the user's own file",
        licence="the user's own",
        budget_owner=request.name,
        path=str(path),
        users=users,
        blocks=request.blocks,
        task=request.task,
        content=request.content,
    )


def check_own_file(path: Path, *, users: bool, blocks: bool = False, task: str = CLASSIFICATION) -> Arrays:
    """Check the types and shapes of all arrays, and the test records. Return the test arrays and `classes`.

    No training record is read. A file that passes causes no error in `read_user`.

    Args:
        path: the npz file.
        users: whether users are protected.
        blocks: whether the training records are used by blocks.
        task: task of the labels.

    Raises:
        DatasetError: the file cannot be read, or breaks a rule. The error lists all broken rules.
    """
    needed = (*KEYS, *user_file.USERS[:1] * users, *[user_file.BLOCK] * blocks)
    headers = user_file.read_headers(path, needed)
    user_file.refuse(path, user_file.header_problems(headers, users=users, blocks=blocks, task=task))
    arrays = user_file.read_arrays_of(path, ("x_test", "y_test", "classes"))
    user_file.refuse(path, user_file.problems_of_test(arrays, _inputs(arrays["x_test"]), task))
    return arrays


def read_raw(info: DatasetInfo) -> Arrays:
    """Return the arrays of a custom data set as stored, including `user_train` and `user_test` if present."""
    names = (*KEYS, *user_file.USERS, user_file.BLOCK)
    return _of_blocks(info, user_file.read_arrays_of(Path(info.path or ""), names, content=info.content))


def read_user(info: DatasetInfo) -> Arrays:
    """Return the arrays of a custom data set: inputs as float32 and labels as int64. Bytes are divided by 255.

    The labels of a regression are float32, and −1 is 0 in a binary task with the labels −1 and 1.

    If users are protected, the arrays include `user_train`. An invalid TRAINING record causes no error, because an
    error would reveal the record to analysts. Instead, values that are not finite become 0. A record is dropped if its
    label is out of range or not finite, or its user is in `user_test`.
    """
    path = Path(info.path or "")
    by_user, blocks = info.users is not None, bool(info.blocks)
    names = (*KEYS, "classes", *(user_file.USERS if by_user else ()), user_file.BLOCK)
    arrays = user_file.read_arrays_of(path, names, content=info.content)
    # The file may have changed since it was checked.
    user_file.refuse(path, user_file.header_problems(arrays, users=by_user, blocks=blocks, task=info.task))
    arrays = _of_blocks(info, arrays)
    if arrays["x_train"].shape[1:] != info.input_shape or user_file.classes_of(arrays, info.task) != info.classes:
        raise user_file.changed(path)
    signed = user_file.signed(arrays["y_test"])
    users, others = arrays.get("user_train"), arrays.get("user_test")
    for part in ("train", "test"):
        x, y = _inputs(arrays[f"x_{part}"]), _labels(arrays[f"y_{part}"], info.task, signed=signed)
        if part == "train":
            kept = np.isfinite(y) if info.task == REGRESSION else (y >= 0) & (y < info.classes)
            if users is not None and others is not None:
                kept &= ~np.isin(users.astype(str), others.astype(str))
            x, y = np.where(np.isfinite(x), x, np.float32(0))[kept], y[kept]
            if users is not None:
                arrays["user_train"] = users[kept]
        else:
            user_file.refuse(path, user_file.problems_of_test(arrays, x, info.task))
        arrays[f"x_{part}"], arrays[f"y_{part}"] = x, y
    arrays.pop("classes", None)
    return arrays


def _labels(y: np.ndarray, task: str, *, signed: bool) -> np.ndarray:
    """Return labels as training takes them. A label that training cannot use becomes −1, or a number not finite."""
    if task == REGRESSION:
        with np.errstate(all="ignore"):
            return np.asarray(y.astype(np.float32) + np.float32(0))  # as `_inputs`
    if task == BINARY and signed:
        return np.where(y == -1, 0, np.where(y == 1, 1, -1)).astype(np.int64)
    return np.where((y >= 0) & (y < 2**31), y, -1).astype(np.int64)


def _of_blocks(info: DatasetInfo, arrays: Arrays) -> Arrays:
    """Return the arrays with only the training records of the requested blocks, and without `block_train`.

    Whether a record is used depends on its own block alone, so records of other blocks change nothing.
    """
    blocks = arrays.pop(user_file.BLOCK, None)
    if not info.blocks:
        return arrays
    if blocks is None:
        raise user_file.changed(Path(info.path or ""))
    used = np.isin(blocks.astype(str), np.asarray(info.blocks))
    return {name: array[used] if name.endswith("_train") else array for name, array in arrays.items()}


def _inputs(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # 1e300 becomes infinite, without a warning that would tell of the record
        scaled = x.astype(np.float32) / (np.float32(255) if x.dtype == np.uint8 else np.float32(1))
    # -0.0 becomes 0.0, as in a fingerprint. The split hashes the bytes, and equal fingerprints must have equal splits.
    return np.asarray(scaled + np.float32(0))
