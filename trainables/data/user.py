"""Reader of custom data sets: an npz file with x_train, y_train, x_test and y_test.

The file may also have ``classes``, the number of classes. If users are protected, it must have ``user_train``, the user
of each training record, and may have ``user_test``, the user of each test record. If the table is used by blocks, it
must have ``block_train``, the block of each training record. A record's block must depend on that record alone.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from trainables.data.images import KEYS, Arrays
from trainables.data.requests import COUNTS, DatasetInfo, DatasetRequest
from trainables.errors import DatasetError

__all__ = ["read_raw", "read_user", "user_info"]

_USERS = ("user_train", "user_test")
_BLOCK = ("block_train",)


def _read(path: Path, keys: tuple[str, ...], *, needed: tuple[str, ...] = KEYS) -> Arrays:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DatasetError(
                "own-file-format", f"{path} must be an npz file (got a single array). Write it with numpy.savez."
            )
        with loaded as file:
            missing = [key for key in needed if key not in file.files]
            if missing:
                raise DatasetError(
                    "own-file-format",
                    f"{path} has no {', '.join(missing)}. "
                    f"Write it with numpy.savez(path, {', '.join(f'{key}=...' for key in needed)}).",
                )
            return {key: file[key] for key in keys if key in file.files}
    except FileNotFoundError as error:
        raise DatasetError("own-file-missing", f"There is no file {path}. Correct dataset.path.") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # Only the error's class is reported, because numpy's message may quote the private file.
        raise DatasetError(
            "own-file-format",
            f"{path} must be an npz file of arrays, without pickled objects (got {type(error).__name__} while reading "
            "it). Write it with numpy.savez.",
        ) from error


def _classes(path: Path, arrays: Arrays) -> int:
    """Return the declared number of classes. If it is not declared, count the classes of the public TEST labels."""
    declared = arrays.get("classes")
    if declared is not None:
        if declared.shape != () or declared.dtype.kind not in "iu" or not int(declared) >= 2:
            raise _wrong(path, "`classes` must be a single integer of at least 2, for example classes=10.")
        return int(declared)
    labels = arrays["y_test"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size == 0:
        raise _wrong(path, "`y_test` must be a vector of integer labels, which start at 0.")
    return max(2, int(labels.max()) + 1)


def user_info(request: DatasetRequest, file: str) -> DatasetInfo:
    """Return the public facts about the data set in `file`, from its test records and the declared sizes."""
    users = request.public_users if request.unit == "user" else None
    size = request.public_size
    if size is None and users is not None:
        size = users * request.records_per_user
    if size is None or not COUNTS.allows(size):
        raise DatasetError(
            "public-size-missing",
            f"`dataset.public_size` of {request.name} must be a PUBLIC number of training records and at "
            f"least 1 (got {size}). It sets the sample rate. The exact number in the file is private.",
        )
    path = Path(file).expanduser().absolute()
    needed = (*KEYS, *(() if users is None else ("user_train",)), *(("block_train",) if request.blocks else ()))
    arrays = _read(path, ("x_test", "y_test", "classes"), needed=needed)
    return DatasetInfo(
        name=request.name,
        public_train_size=size,
        test_size=len(arrays["y_test"]) if arrays["y_test"].ndim else 0,
        input_shape=tuple(arrays["x_test"].shape[1:]),
        classes=_classes(path, arrays),
        provenance="a file of the user's own",
        licence="the user's own",
        budget_owner=request.name,
        path=str(path),
        users=users,
        blocks=request.blocks,
    )


def read_raw(info: DatasetInfo) -> Arrays:
    """Return the arrays of a custom data set as stored, including `user_train` and `user_test` if present."""
    return _of_blocks(info, _read(Path(info.path or ""), (*KEYS, *_USERS, *_BLOCK)))


def read_user(info: DatasetInfo) -> Arrays:
    """Return the arrays of a custom data set: inputs as float32 and labels as int64. Bytes are divided by 255.

    If users are protected, the arrays include `user_train`. An invalid TRAINING record causes no error, because an
    error would reveal the record to analysts. Instead, values that are not finite become 0. A record is dropped if its
    label is out of range or its user is in `user_test`.
    """
    path = Path(info.path or "")
    arrays = _of_blocks(info, _read(path, (*KEYS, *_BLOCK) if info.users is None else (*KEYS, *_USERS, *_BLOCK)))
    users, others = _users(path, arrays) if info.users is not None else (None, None)
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if y.ndim != 1 or y.dtype.kind not in "iu":
            raise _wrong(path, f"`y_{part}` must be a vector of integer labels, which start at 0.")
        if x.ndim < 2 or x.dtype.kind not in "fiub" or len(x) != len(y) or tuple(x.shape[1:]) != info.input_shape:
            raise _wrong(path, f"`x_{part}` must have one numeric array of shape {info.input_shape} for each label.")
        x, labelled = _inputs(x), (y >= 0) & (y < info.classes)
        finite = np.isfinite(x)
        if part == "train":
            kept = labelled
            if users is not None and others is not None:
                kept = labelled & ~np.isin(users.astype(str), others.astype(str))
            x, y = np.where(finite, x, np.float32(0))[kept], y[kept]
            if users is not None:
                arrays["user_train"] = users[kept]
        elif not labelled.all():
            fix = "Declare classes=... in the file if the test labels do not have all classes."
            raise _wrong(path, f"`y_test` must contain only labels from 0 to {info.classes - 1}. {fix}")
        elif not finite.all():
            raise _wrong(path, "`x_test` must contain only finite numbers. Replace missing values by a constant.")
        arrays[f"x_{part}"], arrays[f"y_{part}"] = x, y.astype(np.int64)
    return arrays


def _of_blocks(info: DatasetInfo, arrays: Arrays) -> Arrays:
    """Return the arrays with only the training records of the requested blocks, and without `block_train`.

    Whether a record is used depends on its own block alone, so records of other blocks change nothing.
    """
    blocks = arrays.pop("block_train", None)
    if not info.blocks:
        return arrays
    if blocks is None or blocks.dtype.kind not in "iuU" or blocks.shape != arrays["y_train"].shape[:1]:
        raise _wrong(
            Path(info.path or ""),
            "`block_train` must be a vector of strings or integers, one for each training record.",
        )
    if len(arrays["x_train"]) != len(blocks):
        raise _wrong(Path(info.path or ""), "`x_train` and `block_train` must have the same length.")
    used = np.isin(blocks.astype(str), np.asarray(info.blocks))
    return {name: array[used] if name.endswith("_train") else array for name, array in arrays.items()}


def _users(path: Path, arrays: Arrays) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (users of the training records, users of the test records or None)."""
    for part in ("train", "test"):
        users = arrays.get(f"user_{part}")
        if users is None and part == "test":
            continue
        if users is None or users.dtype.kind not in "iuU" or users.shape != arrays[f"y_{part}"].shape[:1]:
            raise _wrong(path, f"`user_{part}` must be a vector of integers or strings, one for each label.")
    return arrays["user_train"], arrays.get("user_test")


def _wrong(path: Path, rule: str) -> DatasetError:
    return DatasetError("own-file-arrays", f"{path}: {rule}")


def _inputs(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / (np.float32(255) if x.dtype == np.uint8 else np.float32(1))
