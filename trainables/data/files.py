"""Functions that find and check the files of a data set, and convert errors of reading them."""

from __future__ import annotations

import hashlib
import lzma
import os
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from trainables.data.requests import DatasetInfo, FileInfo
from trainables.errors import DatasetError

__all__ = ["data_folder", "locate", "reading"]

_ENVIRONMENT = "DP_TUNER_DATA"
_CHUNK = 1 << 20
_FORMATS = zipfile.BadZipFile, zlib.error, lzma.LZMAError, tarfile.TarError, pickle.UnpicklingError


def data_folder(data_dir: str | None) -> Path:
    """Return the absolute data directory: ``data_dir``, else ``$DP_TUNER_DATA``, else ``./data``."""
    return Path(data_dir or os.environ.get(_ENVIRONMENT) or "data").expanduser().absolute()


def locate(info: DatasetInfo, folder: Path) -> tuple[tuple[FileInfo, ...], tuple[Path, ...]]:
    """Return (form, paths of its files) for the first form that has all its files in ``folder``.

    The forms are alternative sets of files with the same records.

    Raises:
        DatasetError: no form is complete, or a file does not match its checksum.
    """
    for form in info.forms:
        paths = tuple(folder / file.name for file in form)
        if all(path.is_file() for path in paths):
            for file, path in zip(form, paths, strict=True):
                _check(info, file, path)
            return form, paths
    ways = [" and ".join(file.name for file in form) for form in info.forms]
    addresses = list(dict.fromkeys(file.url for file in info.files))
    official = f" Official address: {' '.join(addresses)}." if addresses else ""
    raise DatasetError(
        "dataset-not-found",
        f"The data set {info.name} is not in {folder}. Put {', or '.join(ways)} there, or name another folder with "
        f"--data-dir or {_ENVIRONMENT}.{official}",
    )


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Convert an error that occurs while ``path`` is read to a DatasetError. ``what`` describes the expected file."""
    try:
        yield
    except (OSError, EOFError, KeyError, ValueError, *_FORMATS) as error:
        kind = type(error).__name__
        raise DatasetError("dataset-damaged", f"{path} is not {what} ({kind}). Download the file again.") from error


def _check(info: DatasetInfo, file: FileInfo, path: Path) -> None:
    algorithm, published = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
    try:
        status = path.stat()
        found = _digest(str(path), algorithm, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise DatasetError("file-unreadable", f"{path} cannot be read: {error.strerror or error}.") from error
    if found != published:
        raise DatasetError(
            "dataset-checksum",
            f"{path} of the data set {info.name} has the {algorithm} {found} instead of {published}. Remove the file "
            f"and download it again{f' from {file.url}' if file.url else ''}.",
        )


@lru_cache(maxsize=64)
def _digest(path: str, algorithm: str, _size: int, _changed: int) -> str:
    """Return the checksum of a file. It is cached until the size or the modification time of the file changes."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
