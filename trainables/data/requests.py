"""Data sets: what is public about one, a request for its records, and the records in their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["DatasetInfo", "DatasetRequest", "FileInfo", "Splits"]


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """One file in the data directory.

    Attributes:
        name: its path in the directory.
        sha256: checksum of the file, or "" when only `md5` is known.
        md5: checksum of the publisher or of the usual loaders; used where no sha256 is known.
        url: official address, or "".
    """

    name: str
    sha256: str = ""
    md5: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """Public facts about a data set.

    Attributes:
        name: its name in an experiment file.
        public_train_size: official number of training records, a public constant; never counted from private records.
            For a user's own file it is declared, or the most that its users may contribute.
        test_size: number of test records.
        input_shape: shape of one input, without the batch.
        classes: number of labels.
        provenance: origin and split.
        licence: its licence, as its publisher states.
        files: the files with an official address; empty when it is part of scikit-learn.
        forms: every set of files from which it can be read, best first; one complete set is enough.
        content_sha256: checksum of the decoded arrays, equal for all forms; "" for a user's own file.
        records_sha256: checksum of the training records in any order; "" for a user's own file.
        budget_owner: the name under which the ledger charges it: sets that share records share one budget.
        path: the user's own file, or None.
        users: PUBLIC number of users of the training records, before the validation split; None without users.
    """

    name: str
    public_train_size: int
    test_size: int
    input_shape: tuple[int, ...]
    classes: int
    provenance: str
    licence: str
    files: tuple[FileInfo, ...] = ()
    forms: tuple[tuple[FileInfo, ...], ...] = ()
    content_sha256: str = ""
    records_sha256: str = ""
    budget_owner: str = ""
    path: str | None = None
    users: int | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetRequest:
    """Request for the records of a training; plain and picklable.

    Attributes:
        name: a name of `trainables.data.DATASETS`, or any name together with ``path``.
        data_dir: folder with the files; None means the environment variable ``DP_TUNER_DATA``, else ``./data``.
        path: the user's own ``.npz`` with x_train, y_train, x_test, y_test (and, if wanted, ``classes``).
        public_size: PUBLIC number of training records in that file, for the sample rate.
        validation_fraction: fraction of the training records set aside, in [0, 1); 0 keeps all for training.
        split_seed: public key of the split.
        unit: unit of the guarantee, 'record' or 'user'. With users, all records of a user are on one side of the split,
            and a sample of the training is one user.
        records_per_user: m, the most records of a user that are trained on; only used with users.
        public_users: PUBLIC number of training users in the file at ``path``; only used with users.
    """

    name: str
    data_dir: str | None = None
    path: str | None = None
    public_size: int | None = None
    validation_fraction: float = 0.1
    split_seed: int = 0
    unit: str = "record"
    records_per_user: int = 16
    public_users: int | None = None


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Records in their three parts, ready for a model.

    Attributes:
        x_train: inputs, float32, shape (n, *input_shape).
        y_train: labels, int64, shape (n,).
        x_validation: inputs of the records set aside, same layout; no rows when the fraction is 0.
        y_validation: their labels.
        x_test: inputs of the official (or fixed public) test set.
        y_test: its labels.
        users_train: rows of x_train of each user, int64, shape (users, records_per_user), -1 where a user has fewer;
            None when the unit is a record.
        users_validation: user of each validation record, numbered from 0, int64, shape (n,); or None.
    """

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_validation: torch.Tensor
    y_validation: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    users_train: torch.Tensor | None = None
    users_validation: torch.Tensor | None = None
