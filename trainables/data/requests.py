"""Data set: its public facts, a request for its records, and the records in their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["DatasetInfo", "DatasetRequest", "FileInfo", "Splits"]


@dataclass(frozen=True)
class FileInfo:
    """File in the data directory, with its official address and its sha256, or a published md5 if none is known."""

    name: str
    sha256: str = ""
    md5: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """Public facts about a data set.

    Attributes:
        name: name in an experiment file.
        public_train_size: PUBLIC number of training records, never counted from private records. For a user's own file
            it is declared, or the largest number that the declared users may contribute.
        test_size: number of test records.
        input_shape: shape of one input, without the batch.
        classes: number of labels.
        provenance: origin and split.
        licence: licence, as the publisher states it.
        files: files with official addresses; empty if there are none.
        forms: alternative sets of files that contain the data set, best first; empty if it is part of scikit-learn.
        content_sha256: checksum of the decoded arrays, equal for all forms; "" for a user's own file.
        records_sha256: checksum of the training records in any order; "" for a user's own file.
        budget_owner: name under which the ledger charges the records; sets that share records share one budget.
        path: the user's own file, or None.
        users: PUBLIC number of training users before the validation split; None without users.
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
        name: name in `trainables.data.DATASETS`, or any other name together with ``path``.
        data_dir: folder with the files; None is the default of `data_folder`.
        path: the user's own npz file (`trainables.data.user`).
        public_size: PUBLIC number of training records in that file, for the sample rate.
        validation_fraction: fraction of the training records that is set aside, in [0, 1).
        split_seed: public key of the split.
        unit: unit of the guarantee and sample of the training, 'record' or 'user'. All records of a user are on one
            side of the split.
        records_per_user: m, the largest number of a user's records in the training; only used with users.
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
    """Records in three parts, as inputs x (float32, shape (n, *input_shape)) and labels y (int64, shape (n,)).

    If the unit is a user, `users_train` has the rows of x_train of each user, int64, shape (users, records_per_user),
    -1 if a user has fewer. `users_validation` has the user of each validation record, numbered from 0, shape (n,).
    """

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_validation: torch.Tensor
    y_validation: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    users_train: torch.Tensor | None = None
    users_validation: torch.Tensor | None = None
