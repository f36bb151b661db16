"""A user's own data: one npz file with x_train, y_train, x_test, y_test and, if wanted, the number of ``classes``."""

from __future__ import annotations

import logging
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data.requests import DatasetInfo, DatasetRequest
from trainables.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np

    from trainables.data.images import Arrays

__all__ = ["read_raw", "read_user", "user_info"]

log = logging.getLogger(__name__)

_KEYS = ("x_train", "y_train", "x_test", "y_test")


def _read(path: Path, keys: tuple[str, ...]) -> Arrays:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DatasetError(f"{path}: must be an npz file, got a single array. Write it with numpy.savez.")
        with loaded as file:
            missing = [key for key in _KEYS if key not in file.files]
            if missing:
                raise DatasetError(
                    f"{path}: must hold the arrays {', '.join(_KEYS)}, got no {', '.join(missing)}. "
                    "Write it with numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)."
                )
            return {key: file[key] for key in keys if key in file.files}
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: must be an npz file, got no file there. Mend dataset.path.") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # numpy's own text may quote the file, which is private: only its kind is passed on.
        raise DatasetError(
            f"{path}: must be an npz file of plain arrays without pickled objects, could not be read "
            f"({type(error).__name__}). Write it with numpy.savez."
        ) from error


def _classes(path: Path, arrays: Arrays) -> int:
    """Number of labels: as declared in the file, else from the TEST labels, which are public in this version."""
    declared = arrays.get("classes")
    if declared is not None:
        if declared.shape != () or declared.dtype.kind not in "iu" or not int(declared) >= 2:
            raise DatasetError(f"{path}: classes must be one integer of at least 2. Write classes=10 in numpy.savez.")
        return int(declared)
    labels = arrays["y_test"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size == 0:
        raise DatasetError(f"{path}: y_test must be a vector of integer labels counting from 0")
    return max(2, int(labels.max()) + 1)


def user_info(request: DatasetRequest) -> DatasetInfo:
    """Return what is public about the user's file: shapes, and the size that the request declares.

    Raises:
        DatasetError: no file, another format, or no public size.
    """
    if request.path is None:
        raise DatasetError(f"data set {request.name} needs dataset.path, got none")
    size = request.public_size
    if isinstance(size, bool) or not isinstance(size, int) or not size >= 1:
        raise DatasetError(
            f"data set {request.name} needs dataset.public_size, a PUBLIC number of training records, got {size}. "
            "It sets the sample rate; the exact size of the file is private and is not used."
        )
    path = Path(request.path).expanduser().absolute()
    arrays = _read(path, ("x_test", "y_test", "classes"))
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
    )


def read_raw(info: DatasetInfo) -> Arrays:
    """Return the four arrays of the user's file as they are stored.

    Raises:
        DatasetError: no file, or another format.
    """
    return _read(Path(info.path or ""), _KEYS)


def read_user(info: DatasetInfo) -> Arrays:
    """Return the four arrays of the user's file: inputs float32 as given (bytes divided by 255), labels int64.

    A TRAINING record that no model could take must not decide whether the trials run, which analysts see, so it is
    mended by itself: what is not finite becomes 0, and a record whose label is out of range is left out. The operator
    is told.

    Raises:
        DatasetError: shapes or types that no model could take, or a test record like that.
    """
    import numpy as np

    path = Path(info.path or "")
    arrays = _read(path, _KEYS)
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if y.ndim != 1 or y.dtype.kind not in "iu":
            raise DatasetError(f"{path}: y_{part} must be a vector of integer labels counting from 0")
        if x.ndim < 2 or x.dtype.kind not in "fiub" or len(x) != len(y) or tuple(x.shape[1:]) != info.input_shape:
            raise DatasetError(
                f"{path}: x_{part} must be numbers, one row for each of y_{part}, rows of shape {info.input_shape}"
            )
        x, labelled = _inputs(x), (y >= 0) & (y < info.classes)
        finite = np.isfinite(x)
        if part == "train":
            if not (labelled.all() and finite.all()):
                log.warning("%s: some training records are not as they must be and were mended or left out", path)
            x, y = np.where(finite, x, np.float32(0))[labelled], y[labelled]
        elif not labelled.all():
            raise DatasetError(
                f"{path}: the labels of y_test must lie in 0 to {info.classes - 1}. Declare classes=... in the file "
                "when the test labels do not show all of them."
            )
        elif not finite.all():
            raise DatasetError(f"{path}: x_test must hold finite numbers. Fill in what is missing with a constant.")
        arrays[f"x_{part}"], arrays[f"y_{part}"] = x, y.astype(np.int64)
    return arrays


def _inputs(x: np.ndarray) -> np.ndarray:
    import numpy as np

    return x.astype(np.float32) / (np.float32(255) if x.dtype == np.uint8 else np.float32(1))
