"""What is known about a data set before it is read, what is asked for, and what is handed over."""

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
        name: its name there.
        sha256: checksum of the file, or "" when only `md5` is known.
        md5: checksum as its publisher or the field's standard loaders give it; used where no sha256 is known.
        url: official address, or "" when the file cannot be fetched.
    """

    name: str
    sha256: str = ""
    md5: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What is public about a data set.

    Attributes:
        name: its name in an experiment file.
        public_train_size: official number of training records, a public constant; never counted from private records.
            Of a user's own file as it is declared, or as many as its users may contribute.
        test_size: number of test records.
        input_shape: shape of one input, without the batch.
        classes: number of labels.
        provenance: where it comes from and how the split was made.
        licence: its licence, or what its publisher states.
        files: the files that are fetched when the data directory has none; empty when it comes inside scikit-learn.
        forms: every set of files from which it can be read, best first; one complete set is enough.
        content_sha256: checksum of the decoded arrays, equal for all forms; "" for a user's own file.
        records_sha256: checksum of the training records that their order does not change; "" for a user's own file.
        budget_owner: the name under which the ledger books it: sets that share records share one budget.
        path: the user's own file, or None.
        users: PUBLIC number of users whose records are the training records, before the validation split; None where
            the records have no users.
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
    """Which records a training wants; plain and picklable.

    Attributes:
        name: a name of `trainables.data.DATASETS`, or any name together with ``path``.
        data_dir: folder with the files; None means the environment variable ``DP_TUNER_DATA``, else ``./data``.
        path: the user's own ``.npz`` with x_train, y_train, x_test, y_test (and, if wanted, ``classes``).
        public_size: PUBLIC number of training records in that file, for the sample rate.
        validation_fraction: part of the training records set aside, in [0, 1); 0 keeps all for training.
        split_seed: public key of the split.
        unit: whom the guarantee protects, 'record' or 'user'. With users, all records of one are on one side of the
            split, and a sample of the training is one user.
        records_per_user: m, the most records of one user that are trained on; only used with users.
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
    """The records, ready for a model.

    Attributes:
        x_train: inputs, float32, shape (n, *input_shape).
        y_train: labels, int64, shape (n,).
        x_validation: inputs of the records set aside, same layout; no rows when the fraction is 0.
        y_validation: their labels.
        x_test: inputs of the official (or fixed public) test set.
        y_test: its labels.
        users_train: which rows of x_train are each user's, int64, shape (users, records_per_user), -1 where a user has
            fewer; None when the unit is a record.
        users_validation: the number of each validation record's user, counting from 0, int64, shape (n,); or None.
    """

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_validation: torch.Tensor
    y_validation: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    users_train: torch.Tensor | None = None
    users_validation: torch.Tensor | None = None
