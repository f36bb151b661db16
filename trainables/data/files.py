"""Finding and checking the files of a data set, whatever they contain."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from trainables.data.requests import DatasetInfo, FileInfo
from trainables.errors import DatasetError

__all__ = ["ENVIRONMENT", "checksum", "data_folder", "locate"]

ENVIRONMENT = "DP_TUNER_DATA"
"""The environment variable that names the data directory."""

_CHUNK = 1 << 20
_WHERE = f"Or name another folder with --data-dir or {ENVIRONMENT}"


def data_folder(data_dir: str | None) -> Path:
    """Return the data directory: ``data_dir``, else the environment variable, else ``./data``; always absolute."""
    return Path(data_dir or os.environ.get(ENVIRONMENT) or "data").expanduser().absolute()


@lru_cache(maxsize=64)
def _digest(path: str, algorithm: str, _size: int, _changed: int) -> str:
    # Size and time of change are in the key, so a file is read again only after a change.
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file, computed once per process unless the file changes.

    Raises:
        DatasetError: the file cannot be read.
    """
    try:
        status = path.stat()
        return _digest(str(path), algorithm, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise DatasetError("file-unreadable", f"{path} cannot be read: {error.strerror or error}.") from error


def _is_published(file: FileInfo, digest_of: dict[str, str]) -> bool:
    if file.sha256:
        return digest_of["sha256"] == file.sha256
    return digest_of["md5"] == file.md5


def _check(info: DatasetInfo, file: FileInfo, path: Path) -> None:
    algorithm = "sha256" if file.sha256 else "md5"
    found = checksum(path, algorithm)
    if not _is_published(file, {algorithm: found}):
        raise DatasetError(
            "dataset-checksum",
            f"{path} of the data set {info.name} has the {algorithm} {found} instead of {file.sha256 or file.md5}: it "
            "is damaged or another file. Remove it and download it again" + (f" from {file.url}." if file.url else "."),
        )


def _missing(info: DatasetInfo, folder: Path) -> DatasetError:
    ways = [" and ".join(file.name for file in form) for form in info.forms]
    addresses = list(dict.fromkeys(file.url for file in info.files))
    official = f" Official address: {' '.join(addresses)}." if addresses else ""
    return DatasetError(
        "dataset-not-found",
        f"The data set {info.name} is not in {folder}. Put there {', or '.join(ways)}. {_WHERE}.{official}",
    )


def locate(info: DatasetInfo, folder: Path) -> tuple[tuple[FileInfo, ...], tuple[Path, ...]]:
    """Return the first complete form of a data set in ``folder`` and its paths, after comparing checksums.

    Raises:
        DatasetError: no form is complete, or a file has another checksum.
    """
    for form in info.forms:
        paths = tuple(folder / file.name for file in form)
        if all(path.is_file() for path in paths):
            for file, path in zip(form, paths, strict=True):
                _check(info, file, path)
            return form, paths
    raise _missing(info, folder)
