"""Readers of image files into uint8 arrays: npz, IDX (MNIST), WebP sheets and the CIFAR-10 archive."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trainables.data.files import reading
from trainables.errors import DatasetError

__all__ = ["KEYS", "Arrays", "read_cifar_archive", "read_idx", "read_npz", "read_webp_sheets"]

Arrays: TypeAlias = dict[str, np.ndarray]
"""Name → array. Image files have uint8 images, shape (n, channels, height, width), in ``x_train`` and ``x_test``.

``y_train`` and ``y_test`` have the uint8 labels, shape (n,).
"""

KEYS = ("x_train", "y_train", "x_test", "y_test")
"""Names of the arrays of every data set."""

_SHEET_IMAGES = 500
_SIDE = 32


def read_npz(paths: tuple[Path, ...]) -> Arrays:
    """Return the arrays of an npz file of grey-scale images."""
    what = f"an npz file with the arrays {', '.join(KEYS)}"
    with reading(paths[0], what), np.load(paths[0], allow_pickle=False) as file:
        arrays = {key: file[key] for key in KEYS}
    return {key: array[:, None] if key.startswith("x") else array for key, array in arrays.items()}


def _idx(path: Path) -> np.ndarray:
    with reading(path, "a gzip file"):
        raw = gzip.decompress(path.read_bytes())
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":  # two zero bytes, then 8 for unsigned bytes
        raise DatasetError("dataset-damaged", f"{path} is not an IDX file of unsigned bytes. Download the file again.")
    dimensions = raw[3]
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", raw[4:start]) if len(raw) >= start else (-1,)
    if math.prod(shape) != len(raw) - start:
        raise DatasetError("dataset-damaged", f"The length of {path} differs from its header. Download the file again.")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def read_idx(paths: tuple[Path, ...]) -> Arrays:
    """Return the arrays of four IDX files: train images, train labels, test images, test labels."""
    x_train, y_train, x_test, y_test = (_idx(path) for path in paths)
    return {"x_train": x_train[:, None], "y_train": y_train, "x_test": x_test[:, None], "y_test": y_test}


def read_webp_sheets(paths: tuple[Path, ...]) -> Arrays:
    """Return the arrays of an npz file of lossless WebP sheets. A sheet is a column of 500 images."""
    from PIL import Image

    def images(file: Any, prefix: str, count: int) -> np.ndarray:  # noqa: ANN401 - NpzFile's type is generic since 2.3
        whole = np.empty((count, 3, _SIDE, _SIDE), np.uint8)
        sheets = sorted(key for key in file.files if key.startswith(prefix + "/"))
        for number, key in enumerate(sheets):
            with Image.open(io.BytesIO(file[key].tobytes())) as sheet:
                pixels = np.asarray(sheet.convert("RGB"))
            at = number * _SHEET_IMAGES
            rows = pixels.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
            whole[at : at + len(rows)] = rows
        return whole

    with reading(paths[0], "an npz file of WebP sheets"), np.load(paths[0], allow_pickle=False) as file:
        y_train, y_test = file["y_train"], file["y_test"]
        x_train, x_test = (images(file, f"x_{part}", len(file[f"y_{part}"])) for part in ("train", "test"))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler for bytes, numbers and numpy arrays. It refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - the signature of the base class
        arrays = module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype")
        if arrays or (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a CIFAR-10 batch must not contain {module}.{name}")


def read_cifar_archive(paths: tuple[Path, ...]) -> Arrays:
    """Return the arrays of ``cifar-10-python.tar.gz``, with the records in the published order."""

    def batch(archive: tarfile.TarFile, name: str) -> tuple[np.ndarray, np.ndarray]:
        member = archive.extractfile(f"cifar-10-batches-py/{name}")
        if member is None:
            raise KeyError(name)
        content = _PlainUnpickler(io.BytesIO(member.read()), encoding="bytes").load()
        x, y = (np.asarray(content[key], np.uint8) for key in (b"data", b"labels"))
        return x.reshape(-1, 3, _SIDE, _SIDE), y

    with reading(paths[0], "the CIFAR-10 archive"), tarfile.open(paths[0], "r:gz") as archive:
        parts = [batch(archive, f"data_batch_{number}") for number in range(1, 6)]
        x_test, y_test = batch(archive, "test_batch")
    x_train, y_train = (np.concatenate(each) for each in zip(*parts, strict=True))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
