"""Finding, checking and fetching the files of a data set; nothing here knows what is in them."""

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
_WHERE = f"Name another folder with --data-dir or {ENVIRONMENT}"


def data_folder(data_dir: str | None) -> Path:
    """Return the data directory: ``data_dir``, else the environment variable, else ``data`` here; always absolute."""
    return Path(data_dir or os.environ.get(ENVIRONMENT) or "data").expanduser().absolute()


@lru_cache(maxsize=64)
def _digest(path: str, algorithm: str, _size: int, _changed: int) -> str:
    # Size and time of change are in the key, so that a file is read again only after it has changed.
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file, read once per process as long as it does not change.

    Raises:
        DatasetError: the file cannot be read.
    """
    try:
        status = path.stat()
        return _digest(str(path), algorithm, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise DatasetError(f"{path}: must be a readable file ({error.strerror or error})") from error


def _is_published(file: FileInfo, digest_of: dict[str, str]) -> bool:
    if file.sha256:
        return digest_of["sha256"] == file.sha256
    return digest_of["md5"] == file.md5


def _check(info: DatasetInfo, file: FileInfo, path: Path) -> None:
    algorithm = "sha256" if file.sha256 else "md5"
    found = checksum(path, algorithm)
    if not _is_published(file, {algorithm: found}):
        raise DatasetError(
            f"data set {info.name}: {path} must have the {algorithm} {file.sha256 or file.md5}, got {found}: the file "
            "is damaged or another one. Remove it and get it again"
            + (f" from {file.url}." if file.url else " from where you had it.")
        )


def _missing(info: DatasetInfo, folder: Path) -> DatasetError:
    ways = [" and ".join(file.name for file in form) for form in info.forms]
    addresses = list(dict.fromkeys(file.url for file in info.files))
    official = f" Official address: {' '.join(addresses)}." if addresses else ""
    return DatasetError(
        f"data set {info.name} must be in {folder}, got nothing of it there. Put there {', or '.join(ways)}. "
        f"{_WHERE}.{official}"
    )


def locate(info: DatasetInfo, folder: Path) -> tuple[tuple[FileInfo, ...], tuple[Path, ...]]:
    """Return the first complete form of a data set in ``folder`` and its paths, checksums compared.

    Raises:
        DatasetError: no form is complete, or a file of the first complete one has another checksum.
    """
    for form in info.forms:
        paths = tuple(folder / file.name for file in form)
        if all(path.is_file() for path in paths):
            for file, path in zip(form, paths, strict=True):
                _check(info, file, path)
            return form, paths
    raise _missing(info, folder)
