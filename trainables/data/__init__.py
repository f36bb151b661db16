"""Data sets by name. Importing this module reads no file and loads no heavy library.

Records are read behind the wall (`trainables.wall`), so reading them prints nothing and raises no error of a library.

A data set is either shipped (`DATASETS`) or custom. A custom data set is the user's own npz file. Every function raises
`DatasetError` if the data set is unknown, or if a file is missing or damaged.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.checks import near_name_hint
from trainables.data.files import data_folder, locate
from trainables.data.registry import DATASETS
from trainables.data.requests import COUNTS, DatasetInfo, DatasetRequest, Splits
from trainables.errors import DatasetError
from trainables.tasks import BINARY
from trainables.wall import walled

if TYPE_CHECKING:
    import torch

__all__ = [
    "DATASETS",
    "DatasetInfo",
    "DatasetRequest",
    "Splits",
    "as_it_is",
    "block_names",
    "budget_owner",
    "check_present",
    "data_folder",
    "info",
    "is_own",
    "load_records",
    "load_votes",
    "public_train_size",
    "public_validation_size",
    "records_fingerprint",
    "share_records",
]

UNITS = ("record", "user")


def info(request: DatasetRequest) -> DatasetInfo:
    """Return the public facts about a data set. No file is read, except that of a custom data set."""
    check_unit(request)
    if request.path is not None:
        if request.name in DATASETS:
            raise DatasetError(
                "dataset-name-taken",
                f"`dataset.path` must not be set for the shipped data set {request.name} (got {request.path}). Give "
                "your own data another name, because the ledger has one budget for each name.",
            )
        from trainables.data.user import user_info

        return walled(user_info)(request, request.path)
    if request.name not in DATASETS:
        hint = near_name_hint(request.name, DATASETS) or f" The data sets are {', '.join(DATASETS)}."
        raise DatasetError("dataset-unknown", f"There is no data set {request.name!r}.{hint}")
    known = DATASETS[request.name]
    return replace(known, task=BINARY) if request.task == BINARY and known.classes == 2 else known


def check_unit(request: DatasetRequest) -> None:
    """Raise DatasetError if the data set cannot protect the requested unit. No file is read."""
    if request.unit not in UNITS:
        raise DatasetError("unit-unknown", f"`unit` must be one of {', '.join(UNITS)} (got {request.unit!r}).")
    if request.unit == "record":
        return
    if not COUNTS.allows(request.records_per_user):
        raise DatasetError(
            "records-per-user-invalid",
            f"`dataset.records_per_user` must be a whole number of at least 1 (got {request.records_per_user!r}).",
        )
    if request.path is not None:
        if not COUNTS.allows(request.public_users):
            raise DatasetError(
                "public-size-missing",
                f"`dataset.public_users` of {request.name} must be a PUBLIC number of training users, at least 1 "
                f"(got {request.public_users!r}). This number sets the sample rate. The exact number in the file is "
                "private.",
            )
    elif request.name in DATASETS and DATASETS[request.name].users is None:
        shipped = ", ".join(name for name, known in DATASETS.items() if known.users is not None)
        raise DatasetError(
            "users-missing",
            f"`unit: user` needs a data set with users, and {request.name} has none. Use {shipped}, or your own file "
            "with user_train.",
        )


def public_train_size(request: DatasetRequest) -> int:
    """Return the PUBLIC number of training records or users after the validation split.

    The sample rate is computed from this number. The true number is private under add/remove adjacency.
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
            f"`validation_fraction` must leave at least one of {size} records for training (got {fraction}). "
            "Lower the fraction.",
        )
    return left


def public_validation_size(request: DatasetRequest) -> int:
    """Return the PUBLIC number of validation records or users. Protected scores are divided by it. It may be 0."""
    return _public_size(request) - public_train_size(request)


def _public_size(request: DatasetRequest) -> int:
    check_unit(request)
    # If the size is declared, the custom file is not read, because it may be on another machine.
    if request.path is not None and request.name not in DATASETS:
        size = request.public_users if request.unit == "user" else request.public_size
        if size is not None and COUNTS.allows(size):
            return size
    known = info(request)
    return known.users if request.unit == "user" and known.users is not None else known.public_train_size


def check_present(request: DatasetRequest) -> None:
    """Raise DatasetError if a file of the data set is missing or does not match its checksum."""
    known = info(request)
    if known.path is not None:
        return
    if known.forms:
        locate(known, data_folder(request.data_dir))
    elif find_spec("sklearn") is None:
        raise DatasetError(
            "dataset-package-missing", f"The data set {known.name} is part of scikit-learn. Install scikit-learn."
        )


@walled
def as_it_is(request: DatasetRequest) -> DatasetRequest:
    """Return the request for the records that a custom file has now.

    Whoever uses the result gets these records or an error: what the ledger compares and charges is what trains, also if
    the file is replaced between the two, and in every process.
    """
    from trainables.data.user_file import content_of

    known = info(request)
    if known.path is None:
        return request
    _loaded.cache_clear()  # of copies that nobody will ask for again
    return replace(request, content=content_of(Path(known.path)))


@walled
def records_fingerprint(request: DatasetRequest) -> str:
    """Return a hash of the records, which does not depend on the data set's name.

    The hash has no key, so whoever sees it can test a guess of the records. It must not be stored or shown: a ledger
    stores its HMAC with the operator's key (`tuner.sweep.identity`).

    Shipped data sets that share a budget (`DatasetInfo.budget_owner`) have the same fingerprint. A custom data set has
    the fingerprint of a shipped set if it has the same arrays, or the same training records in any order. Otherwise its
    fingerprint is the checksum of its training records in any order, as numbers of any type, without the users. A file
    that shares only some of its records with another file is not detected.
    """
    shipped, content = _identified(info(request))
    return content if shipped is None else _published(shipped)


@walled
def block_names(path: Path) -> tuple[str, ...]:
    """Return the names of the blocks of a custom data set, or nothing if it has no blocks."""
    from trainables.data.user_file import BLOCK, read_arrays_of

    found = read_arrays_of(path, (BLOCK,)).get(BLOCK)
    return () if found is None else tuple(sorted(set(found.astype(str).tolist())))


@walled
def is_own(request: DatasetRequest) -> bool:
    """Return whether the records are the user's own: a custom file that is no copy of a shipped data set."""
    return _identified(info(request))[0] is None


@walled
def budget_owner(request: DatasetRequest) -> str:
    """Return the name under which the ledger charges the records. A copy of a shipped set has the name of the set."""
    shipped, _ = _identified(info(request))
    return request.name if shipped is None else shipped.budget_owner


@walled
def share_records(one: DatasetRequest, other: DatasetRequest) -> bool:
    """Return whether two data sets have the same training records, in any order.

    A partial overlap is not detected, because its detection would reveal whether a record is in the private data.
    """
    if records_fingerprint(one) == records_fingerprint(other):
        return True
    found = _records(one)
    return found != "" and found == _records(other)


def _published(known: DatasetInfo) -> str:
    """Return the fingerprint of a shipped set. A fingerprint must never change, because ledgers store it."""
    owner = DATASETS[known.budget_owner]
    published = "".join(file.sha256 for file in owner.files) or ("" if owner.forms else f"scikit-learn:{owner.name}")
    return hashlib.sha256(published.encode()).hexdigest() if published else owner.content_sha256


def _identified(known: DatasetInfo) -> tuple[DatasetInfo | None, str]:
    """Return (shipped set, checksum of the records).

    For a custom data set, the shipped set is the set that it copies, or None. For a shipped set, the checksum is "".
    """
    from trainables.data import loading, user

    if known.path is None:
        return known, ""
    arrays = user.read_raw(known)
    content, size = loading.content_sha256(arrays), arrays["y_train"].size
    copied = next((each for each in DATASETS.values() if each.content_sha256 == content), None)
    if copied is None and any(each.public_train_size == size for each in DATASETS.values()):
        records = loading.records_sha256(arrays)
        copied = next((each for each in DATASETS.values() if each.records_sha256 == records), None)
    # Without records there is nothing to recognise. Then two empty data sets of different names are different.
    return copied, loading.records_sha256(arrays, scaled=True) or f"{content} {known.name} {known.blocks}"


def _records(request: DatasetRequest) -> str:
    from trainables.data import loading, user

    known = info(request)
    return known.records_sha256 if known.path is None else loading.records_sha256(user.read_raw(known))


@walled
def load_records(request: DatasetRequest) -> Splits:
    """Return the records as tensors. The tensors are cached, so callers must not change them."""
    return _loaded(request)


@walled
def load_votes(request: DatasetRequest) -> torch.Tensor:
    """Return the teachers' votes on the training inputs, in the order of `load_records`, int64, (n, classes). PRIVATE.

    Raise DatasetError if nobody voted on the data set, or if a row has not one vote of each teacher.
    """
    from trainables.data.votes import votes_on

    known = info(request)
    if known.teachers is None:
        raise DatasetError("votes-missing", f"The data set {known.name} has no votes. Use mnist_votes.")
    return votes_on(known, request)


@lru_cache(maxsize=2)
def _loaded(request: DatasetRequest) -> Splits:
    from trainables.data import loading
    from trainables.data.shared import shared_or_loaded

    public_train_size(request)  # refuses an illegal fraction before reading a file
    return shared_or_loaded(request, lambda: loading.load_splits(info(request), request))
