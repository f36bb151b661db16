"""Finding, checking and fetching the files of a data set; nothing here knows what is in them."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import IO

from trainables.data.requests import DatasetInfo, FileInfo
from trainables.errors import DatasetError

__all__ = ["ENVIRONMENT", "checksum", "data_folder", "fetch_files", "locate"]

ENVIRONMENT = "DP_TUNER_DATA"
"""The environment variable that names the data directory."""

_TIMEOUT_SECONDS = 60
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


def _open(url: str) -> IO[bytes]:
    if not url.startswith("https://"):
        raise DatasetError(f"data sets are fetched over https only, got {url}")
    stream: IO[bytes] = urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS)
    return stream


def _download(info: DatasetInfo, file: FileInfo, to: Path) -> None:
    """Fetch one file beside its place, compare its checksum, then move it there in one step."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name}.")
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as out, _open(file.url) as stream:
                while chunk := stream.read(_CHUNK):
                    out.write(chunk)
            if file.member:
                partial.write_bytes(_member(partial, file.member))
            digests = {algorithm: checksum(partial, algorithm) for algorithm in ("sha256", "md5")}
            if not _is_published(file, digests):
                raise DatasetError(
                    f"data set {info.name}: what {file.url} sent must have the checksum {file.sha256 or file.md5}, "
                    f"got {digests['sha256' if file.sha256 else 'md5']}. Nothing was kept; try again later."
                )
            partial.replace(to)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
    except (urllib.error.URLError, HTTPException, OSError, zipfile.BadZipFile, KeyError) as error:
        raise DatasetError(
            f"data set {info.name}: {file.url} could not be fetched into {to.parent} ({error}). Where the network is "
            f"closed, put {to.name} there by hand. {_WHERE}."
        ) from error


def _member(archive: Path, member: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as file:
        return file.read(member)


def fetch_files(info: DatasetInfo, folder: Path) -> None:
    """Fetch what is missing of a data set from its official addresses; a set that is there is left alone.

    Raises:
        DatasetError: a file that is there has another checksum, the set has no official address, or an address does
            not answer or sends something else.
    """
    complete = any(all((folder / file.name).is_file() for file in form) for form in info.forms)
    if complete or not info.forms:
        return
    if not info.files:
        raise _missing(info, folder)
    for file in info.files:
        path = folder / file.name
        if path.is_file():
            _check(info, file, path)
        else:
            _download(info, file, path)
