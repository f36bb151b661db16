"""Data sets by name, with provenance and checksum: importing this reads no file and loads no heavy library."""

from __future__ import annotations

import hashlib
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec

from trainables.data.files import data_folder, locate
from trainables.data.registry import DATASETS
from trainables.data.requests import DatasetInfo, DatasetRequest, FileInfo, Splits
from trainables.data.user import user_info
from trainables.errors import DatasetError

__all__ = [
    "DATASETS",
    "DatasetInfo",
    "DatasetRequest",
    "FileInfo",
    "Splits",
    "budget_owner",
    "check_present",
    "check_unit",
    "data_folder",
    "fingerprint",
    "info",
    "load",
    "public_train_size",
    "public_validation_size",
    "same_records",
    "users_fingerprint",
]

UNITS = ("record", "user")
"""Whom a guarantee can protect."""


def info(request: DatasetRequest) -> DatasetInfo:
    """Return what is public about the data set of a request; a shipped one costs no file access.

    Raises:
        DatasetError: the name is unknown, the user's own file is missing or not as it must be, or there are no users
            where they are to be protected.
    """
    check_unit(request)
    if request.path is not None:
        if request.name in DATASETS:
            raise DatasetError(
                f"{request.name} is the name of a shipped data set and takes no path, got {request.path}. Give your "
                "own data a name of their own: the budget is kept under it."
            )
        return user_info(request)
    if request.name not in DATASETS:
        near = get_close_matches(request.name, DATASETS, n=1)
        raise DatasetError(
            f"unknown data set {request.name!r}. "
            + (f"Did you mean {near[0]!r}? " if near else f"Known: {', '.join(DATASETS)}. ")
            + "Your own data need dataset.path and dataset.public_size."
        )
    return DATASETS[request.name]


def check_unit(request: DatasetRequest) -> None:
    """Check that the unit of a request can be had, without a look at any file.

    Raises:
        DatasetError: unknown unit, a bound or number of users below 1, or a data set whose records have no users.
    """
    if request.unit not in UNITS:
        raise DatasetError(f"unit must be one of {', '.join(UNITS)}, got {request.unit!r}")
    if request.unit == "record":
        return
    if not _is_count(request.records_per_user):
        raise DatasetError(f"dataset.records_per_user must be at least 1, got {request.records_per_user!r}")
    if request.path is not None:
        if not _is_count(request.public_users):
            raise DatasetError(
                f"data set {request.name} needs dataset.public_users, a PUBLIC number of training users, got "
                f"{request.public_users!r}. It sets the sample rate; how many the file really has is private."
            )
    elif request.name in DATASETS and DATASETS[request.name].users is None:
        having = ", ".join(name for name, known in DATASETS.items() if known.users is not None)
        raise DatasetError(
            f"unit user needs records that belong to users, got the data set {request.name}. Take {having}, or a file "
            "of your own with user_train."
        )


def public_train_size(request: DatasetRequest) -> int:
    """Return the PUBLIC number of training units after the validation split: the n of ``sample_rate``.

    Units are records, or users where these are protected. The realised number may differ by the split's hash and,
    under add/remove adjacency, is private.

    Raises:
        DatasetError: unknown data set, or a size or fraction that leaves no record.
    """
    size = _public_size(request)
    fraction = request.validation_fraction
    if not 0 <= fraction < 1:
        raise DatasetError(f"validation_fraction must be at least 0 and below 1, got {fraction}")
    left = round(size * (1 - fraction))
    if left < 1:
        raise DatasetError(f"data set {request.name}: validation must leave training records, got none of {size}")
    return left


def public_validation_size(request: DatasetRequest) -> int:
    """Return the PUBLIC number of units set aside for validation: what a protected score is divided by; may be 0.

    Raises:
        DatasetError: as `public_train_size`.
    """
    return _public_size(request) - public_train_size(request)


def _public_size(request: DatasetRequest) -> int:
    check_unit(request)
    # A declared size needs no look at the user's file, which may not be here yet.
    if request.path is not None and request.name not in DATASETS:
        size = request.public_users if request.unit == "user" else request.public_size
        if size is not None and _is_count(size):
            return size
    known = info(request)
    return known.users if request.unit == "user" and known.users is not None else known.public_train_size


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_present(request: DatasetRequest) -> None:
    """Check that the data set can be read: its files are there and have their checksums.

    Raises:
        DatasetError: which file is missing or wrong, where to put it and how to get it.
    """
    known = info(request)
    if known.path is not None:
        return
    if known.forms:
        locate(known, data_folder(request.data_dir))
    elif find_spec("sklearn") is None:
        raise DatasetError(
            f"data set {known.name} comes inside scikit-learn, got no such package. Install scikit-learn."
        )


def fingerprint(request: DatasetRequest) -> str:
    """Return what identifies the records, whatever name they are given: for the LEDGER, which is operator-only.

    Sets that share a budget (`DatasetInfo.budget_owner`) share one fingerprint. That of a user's own file is the
    checksum of its arrays; it is a shipped set's where it holds that set's arrays or, in any order, its training
    records. Not to be shown to analysts; whose the records are is no part of it (`users_fingerprint`). Files that only
    overlap are not found out.

    Raises:
        DatasetError: unknown data set, or an unreadable file.
    """
    shipped, content = _identified(info(request))
    return content if shipped is None else _published(shipped)


def budget_owner(request: DatasetRequest) -> str:
    """Return the name under which the ledger books the records: a copy of a shipped set is booked as that set.

    Raises:
        DatasetError: as `fingerprint`.
    """
    shipped, _ = _identified(info(request))
    return request.name if shipped is None else shipped.budget_owner


def same_records(one: DatasetRequest, other: DatasetRequest) -> bool:
    """Whether two data sets are known to train on the same records: one fingerprint, or the same in another order.

    All of them or nothing: whether FEW of them are shared would tell whether a record is among the private ones.

    Raises:
        DatasetError: as `fingerprint`.
    """
    if fingerprint(one) == fingerprint(other):
        return True
    found = _records(one)
    return found != "" and found == _records(other)


def _published(known: DatasetInfo) -> str:
    """The fingerprint of a shipped set. Ledgers hold it, so it stays what it was when the first search was entered."""
    owner = DATASETS[known.budget_owner]
    published = "".join(file.sha256 for file in owner.files) or ("" if owner.forms else f"scikit-learn:{owner.name}")
    return hashlib.sha256(published.encode()).hexdigest() if published else owner.content_sha256


def _identified(known: DatasetInfo) -> tuple[DatasetInfo | None, str]:
    """The shipped set that it is or that a user's file holds, or None; and the checksum of a file's arrays."""
    if known.path is None:
        return known, ""
    from trainables.data.loading import content_sha256, records_sha256
    from trainables.data.user import read_raw

    arrays = read_raw(known)
    content, size = content_sha256(arrays), arrays["y_train"].size
    copied = next((each for each in DATASETS.values() if each.content_sha256 == content), None)
    if copied is None and any(each.public_train_size == size for each in DATASETS.values()):
        records = records_sha256(arrays)
        copied = next((each for each in DATASETS.values() if each.records_sha256 == records), None)
    return copied, content


def _records(request: DatasetRequest) -> str:
    known = info(request)
    if known.path is None:
        return known.records_sha256
    from trainables.data.loading import records_sha256
    from trainables.data.user import read_raw

    return records_sha256(read_raw(known))


def users_fingerprint(request: DatasetRequest) -> str | None:
    """Return what tells whether records still belong to the same users; None where these are not what is protected.

    Raises:
        DatasetError: as `fingerprint`.
    """
    known = info(request)
    if known.path is None or request.unit != "user":
        return None  # those of a shipped set are its file's
    from trainables.data.loading import users_sha256
    from trainables.data.user import read_raw

    return users_sha256(read_raw(known))


@lru_cache(maxsize=2)
def load(request: DatasetRequest) -> Splits:
    """Return the records as tensors, read once per process and shared: callers do not write to them.

    Raises:
        DatasetError: unknown data set, or a file that is missing or not what its checksum says.
    """
    from trainables.data.loading import load_splits

    public_train_size(request)  # refuses a wrong fraction before anything is read
    return load_splits(info(request), request)
