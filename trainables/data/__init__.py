"""Data sets by name, with provenance and checksums. Importing this reads no file and loads no heavy library."""

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
    "info",
    "load_records",
    "public_train_size",
    "public_validation_size",
    "records_fingerprint",
    "share_records",
    "users_fingerprint",
]

UNITS = ("record", "user")
"""Units that a guarantee can protect."""


def info(request: DatasetRequest) -> DatasetInfo:
    """Return what is public about the data set of a request; a shipped one costs no file access.

    Raises:
        DatasetError: the name is unknown, the user's own file is missing or malformed, or there are no users where
            users are protected.
    """
    check_unit(request)
    if request.path is not None:
        if request.name in DATASETS:
            raise DatasetError(
                "dataset-name-taken",
                f"{request.name} is the name of a shipped data set, which takes no path (got {request.path}). Give "
                "your own data another name: the budget is kept under it.",
            )
        return user_info(request)
    if request.name not in DATASETS:
        near = get_close_matches(request.name, DATASETS, n=1)
        raise DatasetError(
            "dataset-unknown",
            f"There is no data set {request.name!r}. "
            + (f"Did you mean {near[0]!r}? " if near else f"The data sets are {', '.join(DATASETS)}. ")
            + "Your own data need dataset.path and dataset.public_size.",
        )
    return DATASETS[request.name]


def check_unit(request: DatasetRequest) -> None:
    """Check that the unit of a request can be protected, without reading a file.

    Raises:
        DatasetError: unknown unit, a bound or number of users below 1, or a data set whose records have no users.
    """
    if request.unit not in UNITS:
        raise DatasetError("unit-unknown", f"`unit` must be one of {', '.join(UNITS)} (got {request.unit!r}).")
    if request.unit == "record":
        return
    if not _is_count(request.records_per_user):
        raise DatasetError(
            "records-per-user-invalid",
            f"`dataset.records_per_user` must be a whole number of at least 1 (got {request.records_per_user!r}).",
        )
    if request.path is not None:
        if not _is_count(request.public_users):
            raise DatasetError(
                "public-size-missing",
                f"The data set {request.name} needs `dataset.public_users`, a PUBLIC number of training users (got "
                f"{request.public_users!r}). It sets the sample rate; the exact number in the file is private.",
            )
    elif request.name in DATASETS and DATASETS[request.name].users is None:
        having = ", ".join(name for name, known in DATASETS.items() if known.users is not None)
        raise DatasetError(
            "users-missing",
            f"The unit is user, but the data set {request.name} has no users. Use {having}, or a file of your own with "
            "user_train.",
        )


def public_train_size(request: DatasetRequest) -> int:
    """Return the PUBLIC number of training units after the validation split: the n of ``sample_rate``.

    Units are records, or users where users are protected. The realised number may differ by the split's hash and,
    under add/remove adjacency, is private.

    Raises:
        DatasetError: the data set is unknown, or no record is left.
    """
    size = _public_size(request)
    fraction = request.validation_fraction
    if not 0 <= fraction < 1:
        raise DatasetError(
            "validation-fraction-invalid", f"`validation_fraction` must be at least 0 and below 1 (got {fraction})."
        )
    left = round(size * (1 - fraction))
    if left < 1:
        raise DatasetError(
            "split-empty",
            f"Validation leaves none of the {size} training records of {request.name}. Lower its fraction.",
        )
    return left


def public_validation_size(request: DatasetRequest) -> int:
    """Return the PUBLIC number of units set aside for validation, by which protected scores are divided; may be 0."""
    return _public_size(request) - public_train_size(request)


def _public_size(request: DatasetRequest) -> int:
    check_unit(request)
    # A declared size does not need the user's file, which may not be here yet.
    if request.path is not None and request.name not in DATASETS:
        size = request.public_users if request.unit == "user" else request.public_size
        if size is not None and _is_count(size):
            return size
    known = info(request)
    return known.users if request.unit == "user" and known.users is not None else known.public_train_size


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_present(request: DatasetRequest) -> None:
    """Check that the files of the data set are present and have their checksums.

    Raises:
        DatasetError: a file is missing or wrong; it says where to put it and how to get it.
    """
    known = info(request)
    if known.path is not None:
        return
    if known.forms:
        locate(known, data_folder(request.data_dir))
    elif find_spec("sklearn") is None:
        raise DatasetError(
            "dataset-package-missing", f"The data set {known.name} is part of scikit-learn. Install scikit-learn."
        )


def records_fingerprint(request: DatasetRequest) -> str:
    """Return the hash that identifies the records under any name, for the LEDGER, which only operators read.

    Sets that share a budget (`DatasetInfo.budget_owner`) share one fingerprint. That of a user's own file is the
    checksum of its arrays, or that of a shipped set if the file holds the arrays of that set or, in any order, its
    training records. Users are not part of it (`users_fingerprint`). Files that only overlap are not detected.

    Raises:
        DatasetError: the data set is unknown, or a file cannot be read.
    """
    shipped, content = _identified(info(request))
    return content if shipped is None else _published(shipped)


def budget_owner(request: DatasetRequest) -> str:
    """Return the name under which the ledger charges the records; a copy of a shipped set is charged as that set."""
    shipped, _ = _identified(info(request))
    return request.name if shipped is None else shipped.budget_owner


def share_records(one: DatasetRequest, other: DatasetRequest) -> bool:
    """Return whether two data sets are known to have the same training records, in any order.

    Only complete equality is tested: whether FEW records are shared would reveal whether one of them is private.
    """
    if records_fingerprint(one) == records_fingerprint(other):
        return True
    found = _records(one)
    return found != "" and found == _records(other)


def _published(known: DatasetInfo) -> str:
    """Return the fingerprint of a shipped set. Ledgers hold it, so it never changes."""
    owner = DATASETS[known.budget_owner]
    published = "".join(file.sha256 for file in owner.files) or ("" if owner.forms else f"scikit-learn:{owner.name}")
    return hashlib.sha256(published.encode()).hexdigest() if published else owner.content_sha256


def _identified(known: DatasetInfo) -> tuple[DatasetInfo | None, str]:
    """Return the shipped set that it is or that a user's file copies, or None; and the checksum of a file's arrays."""
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
    """Return a hash of the users of the records; None where records are protected, or users of a shipped set."""
    known = info(request)
    if known.path is None or request.unit != "user":
        return None  # the users of a shipped set are fixed by its files
    from trainables.data.loading import users_sha256
    from trainables.data.user import read_raw

    return users_sha256(read_raw(known))


@lru_cache(maxsize=2)
def load_records(request: DatasetRequest) -> Splits:
    """Return the records as tensors, read once per process and shared; callers do not write to them.

    Raises:
        DatasetError: the data set is unknown, or a file is missing or has another checksum.
    """
    from trainables.data.loading import load_splits

    public_train_size(request)  # refuses an illegal fraction before anything is read
    return load_splits(info(request), request)
