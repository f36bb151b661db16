"""Data classes: public facts about a data set, a request for its records, and its splits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces import Limits
from trainables.tasks import CLASSIFICATION, outputs_of

if TYPE_CHECKING:
    import torch

__all__ = ["COUNTS", "DatasetInfo", "DatasetRequest", "FileInfo", "Splits"]

COUNTS = Limits(low=1, integer=True)
"""Legal range of a number of records or users."""


@dataclass(frozen=True)
class FileInfo:
    """File in the data directory, with its official address and a checksum: sha256, or the publisher's md5."""

    name: str
    sha256: str = ""
    md5: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """Public facts about a data set.

    Attributes:
        name: name in an experiment file.
        public_train_size: PUBLIC number of training records, never counted from private records. For a custom data set,
            it is the declared size, or the declared number of users times `records_per_user`.
        test_size: number of test records.
        input_shape: shape of one input, without the batch.
        classes: number of different labels; 1 for numbers (task regression).
        provenance: origin of the records, and how they are split.
        licence: licence, as the publisher states it.
        files: files that have official addresses; may be empty.
        forms: alternative forms of the data set, best first. Each form is a set of files with all records. Empty for
            data sets of scikit-learn and custom data sets.
        content_sha256: checksum of the decoded arrays, the same for all forms; "" for a custom data set.
        records_sha256: checksum of the training records in any order; "" for a custom data set.
        budget_owner: name under which the ledger charges the records. Data sets with common records share one budget.
        path: npz file of a custom data set; None for a shipped data set.
        users: PUBLIC number of training users before the validation split; None without users.
        blocks: blocks of a custom data set whose training records are used; empty for all records.
        task: task of the labels, one of `trainables.tasks.TASKS`.
        record: what one record is, where it is less than a reader would think; "" otherwise.
        teachers: PUBLIC number of teachers that voted on the training inputs, which are then public; None without
            votes.
        scaling: the constants by which inputs are scaled.
        content: `DatasetRequest.content` of a custom data set.
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
    blocks: tuple[str, ...] = ()
    task: str = CLASSIFICATION
    record: str = ""
    teachers: int | None = None
    scaling: str = "public constants only, and nothing that is learnt from the records"
    content: str = field(default="", repr=False)

    @property
    def outputs(self) -> int:
        """Number of outputs of a model for these records."""
        return outputs_of(self.task, self.classes)


@dataclass(frozen=True, kw_only=True)
class DatasetRequest:
    """Request for the records of one training. It can be pickled.

    Attributes:
        name: name in `trainables.data.DATASETS`, or any other name if ``path`` is set.
        data_dir: folder with the files; None is the default of `data_folder`.
        path: npz file of a custom data set (`trainables.data.user`).
        public_size: PUBLIC number of training records in the file at ``path``. It sets the sample rate.
        validation_fraction: fraction of the training records that becomes the validation records, in [0, 1).
        split_seed: public key of the hash that chooses the validation records.
        unit: 'record' or 'user'. The guarantee protects one unit, and a batch is a random sample of units. If the
            unit is 'user', all records of a user are either training or validation records.
        records_per_user: m, the largest number of records that a user contributes; used only if the unit is 'user'.
        public_users: PUBLIC number of training users in the file at ``path``; used only if the unit is 'user'.
        blocks: blocks of the file at ``path`` whose training records are used, sorted; empty for all records.
        task: what a model learns from the labels, one of `trainables.tasks.TASKS`.
        content: salted checksum of the file at ``path`` (`trainables.data.as_it_is`). Records of a file with another
            one are refused. Without it, any content is read. It is never shown: whoever has it can test a guess.
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
    blocks: tuple[str, ...] = ()
    task: str = CLASSIFICATION
    content: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Training, validation and test records: inputs x (float32, (n, *input_shape)), labels y (int64, (n,)).

    The labels of a regression are float32.

    The last two fields are None unless the unit is a user. Row u of `users_train` has the indices of user u's records
    in `x_train`: int64, shape (users, records_per_user). The index -1 fills up the row of a user with fewer records.
    `users_validation` has the user number of each validation record, counted from 0, shape (n,).
    """

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_validation: torch.Tensor
    y_validation: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    users_train: torch.Tensor | None = None
    users_validation: torch.Tensor | None = None
