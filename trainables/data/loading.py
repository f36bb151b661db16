"""Reading and splitting a data set. Inputs are scaled by published constants (`DatasetInfo.scaling`)."""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable
from importlib.metadata import distribution
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainables.data import images
from trainables.data.files import data_folder, locate, reading
from trainables.data.images import KEYS, Arrays
from trainables.data.registry import KDDCUP_FRACTION, REGRESSIONS, TEST_FRACTION, VOTED
from trainables.data.requests import DatasetInfo, DatasetRequest, Splits
from trainables.data.splits import aside, aside_by_content, aside_by_user, contributions
from trainables.data.tabular import ADULT, BANK, CREDIT_CARD, KDDCUP, WISCONSIN, Table, encode
from trainables.data.text import read_speeches
from trainables.data.user import read_user
from trainables.data.user_file import signed
from trainables.errors import DatasetError
from trainables.tasks import REGRESSION

if TYPE_CHECKING:
    import torch

__all__ = ["content_sha256", "load_splits", "read_arrays", "records_sha256"]

_REGRESSION_SEED = 42  # that of the paper's code, for another generator
_ROWS = 4096  # rows that are converted at a time, to save memory

# File of each set, and the number of its first lines that are no records.
_SCIKIT_LEARN = {"digits": ("digits.csv.gz", 0), "breast_cancer": ("breast_cancer.csv", 1), "iris": ("iris.csv", 1)}

# Ranges of the columns, from the documentation of these public sets.
_IRIS_RANGES = ((4.3, 7.9), (2.0, 4.4), (1.0, 6.9), (0.1, 2.5))
_CANCER_RANGES = (
    *((6.981, 28.11), (9.71, 39.28), (43.79, 188.5), (143.5, 2501.0), (0.053, 0.163)),
    *((0.019, 0.345), (0.0, 0.427), (0.0, 0.201), (0.106, 0.304), (0.05, 0.097)),
    *((0.112, 2.873), (0.36, 4.885), (0.757, 21.98), (6.802, 542.2), (0.002, 0.031)),
    *((0.002, 0.135), (0.0, 0.396), (0.0, 0.053), (0.008, 0.079), (0.001, 0.03)),
    *((7.93, 36.04), (12.02, 49.54), (50.41, 251.2), (185.2, 4254.0), (0.071, 0.223)),
    *((0.027, 1.058), (0.0, 1.252), (0.0, 0.291), (0.156, 0.664), (0.055, 0.208)),
)


def content_sha256(arrays: Arrays) -> str:
    """Return a checksum of the decoded arrays. It ignores the file format, the shape of an input, and the users."""
    digest = hashlib.sha256()
    for key in KEYS:
        array = arrays[key]
        # The length of a row is written out, because -1 would be an error if there is no row.
        array = _labels(array) if key.startswith("y") else array.reshape(len(array), prod(array.shape[1:]))
        digest.update(f"{key}:{array.dtype.str}:{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def records_sha256(arrays: Arrays, *, scaled: bool = False) -> str:
    """Return a checksum of the training records. It ignores their order and the type of their numbers.

    With `scaled`, the records are taken as training on a custom file sees them: bytes are divided by 255, values that
    are not finite are 0, and labels −1 are 0 if all public test labels are −1 or 1.
    Return "" if the arrays have a shape or type that no training can use.
    """
    x, y = arrays["x_train"], arrays["y_train"]
    if y.ndim != 1 or not len(y) or x.ndim < 2 or len(x) != len(y) or {x.dtype.kind, y.dtype.kind} - set("fiub"):
        return ""
    digests: list[bytes] = []
    named = _labels(y)
    test = arrays["y_test"] if scaled else np.empty(0)
    if test.size and np.isin(test, (-1, 1)).all() and signed(test):
        named = np.where(named == -1, 0, named)
    for start in range(0, len(y), _ROWS):
        part = slice(start, start + _ROWS)
        with np.errstate(all="ignore"):  # a warning would tell that the file has a number that single precision lacks
            rows = x[part].reshape(len(x[part]), -1).astype(np.float32)
            labels = named[part]
        if scaled:
            rows[~np.isfinite(rows)] = 0
            rows /= np.float32(255 if x.dtype == np.uint8 else 1)
        rows = rows + np.float32(0)  # -0.0 is 0.0
        digests += (
            hashlib.blake2b(row.tobytes() + label.tobytes(), digest_size=32).digest()
            for row, label in zip(rows, labels, strict=True)
        )
    whole = hashlib.sha256(f"{(len(x), x[0].size)}".encode())
    for digest in sorted(digests):
        whole.update(digest)
    return whole.hexdigest()


def _labels(y: np.ndarray) -> np.ndarray:
    """Return labels for a checksum: whole numbers of any type as int64, and numbers with fractions as float32."""
    with np.errstate(all="ignore"):  # a warning would tell of a record
        whole = y.astype(np.int64)
        return whole if y.dtype.kind != "f" or np.array_equal(whole, y) else y.astype(np.float32) + np.float32(0)


def _text(path: Path) -> str:
    with reading(path, "a text file, plain or compressed with xz"):
        raw = path.read_bytes()
        return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()


def _split_off_test(name: str, x: np.ndarray, y: np.ndarray) -> Arrays:
    test = aside(len(y), fraction=TEST_FRACTION, key=f"test:{name}")
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def _speeches(name: str, paths: tuple[Path, ...]) -> Arrays:
    found = read_speeches(*paths)
    test = aside_by_user(found["user"], fraction=TEST_FRACTION, key=f"test:{name}")
    parts = {"train": ~test, "test": test}
    return {f"{key}_{part}": found[key][rows] for part, rows in parts.items() for key in ("x", "y", "user")}


def _one_table(table: Table) -> Callable[[str, tuple[Path, ...]], Arrays]:
    return lambda name, paths: _split_off_test(name, *encode(table, _text(paths[0])))


def _adult(_name: str, paths: tuple[Path, ...]) -> Arrays:
    (x_train, y_train), (x_test, y_test) = (encode(ADULT, _text(path)) for path in paths)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _kddcup(name: str, paths: tuple[Path, ...]) -> Arrays:
    lines = _text(paths[0]).splitlines()
    chosen = np.flatnonzero(aside(len(lines), fraction=KDDCUP_FRACTION, key=f"rows:{name}"))
    return _split_off_test(name, *encode(KDDCUP, "\n".join(lines[row] for row in chosen)))


def _transfer(_name: str, paths: tuple[Path, ...]) -> Arrays:
    """Return features of a public network over 6, their public bound. The file has the bytes of their square roots."""
    what = "an npz file with the arrays q_train, y_train, q_test and y_test"
    with reading(paths[0], what), np.load(paths[0], allow_pickle=False) as file:
        x = {f"x_{part}": (file[f"q_{part}"] / np.float32(255)) ** 2 for part in ("train", "test")}
        return {**x, **{f"y_{part}": file[f"y_{part}"].astype(np.int64) for part in ("train", "test")}}


def _scikit_learn(name: str, _paths: tuple[Path, ...]) -> Arrays:
    """Return a data set that comes with scikit-learn. Reading its file alone saves the second of importing the package.

    `distribution` finds the file without an import.
    """
    file, header = _SCIKIT_LEARN[name]
    path = distribution("scikit-learn").locate_file(f"sklearn/datasets/data/{file}")
    rows = np.loadtxt(str(path), delimiter=",", skiprows=header)
    x, y = rows[:, :-1], rows[:, -1]
    if name == "digits":
        x = x.reshape(-1, 1, 8, 8) / 16  # pixels are counts from 0 to 16
    else:
        low, high = np.asarray(_IRIS_RANGES if name == "iris" else _CANCER_RANGES).T
        x = (2 * (x - low) / (high - low) - 1).clip(-1, 1)
    return _split_off_test(name, x.astype(np.float32), y.astype(np.int64))


def _grey(_name: str, paths: tuple[Path, ...]) -> Arrays:
    return images.read_npz(paths) if len(paths) == 1 else images.read_idx(paths)


def _of_votes(_name: str, paths: tuple[Path, ...]) -> Arrays:
    """Return the public inputs that MNIST's teachers voted on, with their true labels, and the other test images."""
    arrays = images.read_npz(paths[:1])
    return {
        f"{key}_{part}": arrays[f"{key}_test"][rows]
        for part, rows in (("train", slice(VOTED)), ("test", slice(VOTED, None)))
        for key in ("x", "y")
    }


def _cifar(_name: str, paths: tuple[Path, ...]) -> Arrays:
    return images.read_webp_sheets(paths) if paths[0].suffix == ".npz" else images.read_cifar_archive(paths)


def _regression(name: str, _paths: tuple[Path, ...]) -> Arrays:
    """Return the linear regression of the weight-decay paper: y = X·w + ε, 1000 records from a public seed."""
    weights, spread = np.asarray(REGRESSIONS[name]), 0.1
    generator = np.random.default_rng(_REGRESSION_SEED)
    x = generator.standard_normal((1000, len(weights)))
    y = x @ weights + spread * generator.standard_normal(1000)
    x, y, test = x.astype(np.float32), y.astype(np.float32), np.arange(1000) >= 800
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


_READERS: dict[str, Callable[[str, tuple[Path, ...]], Arrays]] = {
    "digits": _scikit_learn,
    "breast_cancer": _scikit_learn,
    "iris": _scikit_learn,
    "mnist": _grey,
    "mnist_votes": _of_votes,
    "fashion_mnist": _grey,
    "cifar10": _cifar,
    "cifar10_10k2k": _cifar,
    "adult": _adult,
    "bank": _one_table(BANK),
    "breast_cancer_wisconsin": _one_table(WISCONSIN),
    "kddcup99": _kddcup,
    "credit_card": _one_table(CREDIT_CARD),
    "cifar100_transfer": _transfer,
    "state_union": _speeches,
    **dict.fromkeys(REGRESSIONS, _regression),
}


def read_arrays(info: DatasetInfo, folder: Path) -> Arrays:
    """Return the arrays of a data set. If the records have users, the arrays include `user_train`.

    Shipped images are still unscaled (uint8). All other inputs are scaled already.
    """
    if info.path is not None:
        return read_user(info)
    form, paths = locate(info, folder) if info.forms else ((), ())
    arrays = _READERS[info.name](info.name, paths)
    sizes = len(arrays["y_train"]), len(arrays["y_test"])
    if sizes != (info.public_train_size, info.test_size):
        raise DatasetError(
            "dataset-checksum",
            f"The data set {info.name} has {sizes[0]} training and {sizes[1]} test records instead of "
            f"{info.public_train_size} and {info.test_size}. Download the data set again, or install another version "
            "of scikit-learn.",
        )
    # A sha256 proves the content of a file. The publishers' md5 does not, and scikit-learn's files have no checksum.
    if info.content_sha256 and not (form and all(file.sha256 for file in form)):
        found = content_sha256(arrays)
        if found != info.content_sha256:
            where = f"in {paths[0].parent}" if paths else "of scikit-learn"
            fix = "Remove the files and download them again" if paths else "Install another version of scikit-learn"
            raise DatasetError(
                "dataset-checksum",
                f"The arrays of {info.name} {where} have the checksum {found} instead of {info.content_sha256}. {fix}.",
            )
    return arrays


def _scaled(info: DatasetInfo, x: np.ndarray) -> np.ndarray:
    """Scale bytes to [0, 1] for grey images and to [−1, 1] for colour images. Return other inputs unchanged."""
    if x.dtype != np.uint8:
        return np.ascontiguousarray(x, np.float32)
    if info.input_shape[0] == 1:
        return x.astype(np.float32) / np.float32(255)
    return x.astype(np.float32) / np.float32(127.5) - np.float32(1)


def load_splits(info: DatasetInfo, request: DatasetRequest) -> Splits:
    """Return the training, validation and test records as tensors."""
    import torch

    arrays = read_arrays(info, data_folder(request.data_dir))
    x, y = arrays["x_train"], arrays["y_train"]
    fraction, key = request.validation_fraction, f"validation:{request.split_seed}"
    users = arrays["user_train"] if request.unit == "user" else None
    if users is not None:
        held = aside_by_user(users, fraction=fraction, key=key)
    elif info.path is None and not info.record:  # an edited paragraph moves the numbers of all windows after it
        held = aside(len(y), fraction=fraction, key=key)
    else:
        held = aside_by_content(x, y, fraction=fraction, key=key)
    kept, table, whose = ~held, None, None
    if users is not None:
        rows = np.flatnonzero(~held)
        most, key = request.records_per_user, f"contribution:{request.split_seed}"
        chosen = contributions(x[rows], y[rows], users[rows], most=most, key=key)
        kept = rows[chosen[chosen >= 0]]  # sorted by user
        table = chosen.copy()
        table[chosen >= 0] = np.arange(len(kept))
        whose = np.unique(users[held], return_inverse=True)[1]

    def inputs(rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(_scaled(info, rows))

    def labels(rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows.astype(np.float32 if info.task == REGRESSION else np.int64))

    return Splits(
        x_train=inputs(x[kept]),
        y_train=labels(y[kept]),
        x_validation=inputs(x[held]),
        y_validation=labels(y[held]),
        x_test=inputs(arrays["x_test"]),
        y_test=labels(arrays["y_test"]),
        users_train=None if table is None else torch.from_numpy(table),
        users_validation=None if whose is None else torch.from_numpy(whose),
    )
