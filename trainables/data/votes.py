"""Votes of teachers on public inputs. They are PRIVATE: each teacher learnt from a part of the private records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainables.data.files import data_folder, locate, reading
from trainables.data.requests import DatasetInfo, DatasetRequest
from trainables.data.splits import aside
from trainables.errors import DatasetError

if TYPE_CHECKING:
    import torch

__all__ = ["read_votes", "require_votes", "votes_on"]


def votes_on(info: DatasetInfo, request: DatasetRequest) -> torch.Tensor:
    """Return the votes on the training inputs of a shipped set, in the order of `load_splits`, int64, (n, classes).

    Raise DatasetError if a row has not one vote of each teacher.
    """
    import torch

    _, paths = locate(info, data_folder(request.data_dir))
    votes = read_votes(paths[1], "mnist")
    require_votes(votes, teachers=info.teachers or 0)
    held = aside(len(votes), fraction=request.validation_fraction, key=f"validation:{request.split_seed}")
    return torch.from_numpy(votes[~held])


def read_votes(path: Path, name: str) -> np.ndarray:
    """Return the votes of 250 teachers of mnist, svhn or adult, int64 of shape (queries, classes)."""
    with reading(path, "an npz file with the votes of 250 teachers"), np.load(path, allow_pickle=False) as file:
        return np.asarray(file[f"{name}_250"], np.int64)


def require_votes(votes: np.ndarray, *, teachers: int) -> None:
    """Raise DatasetError unless each row of `votes`, shape (n, k), has one vote of each of `teachers` teachers.

    Otherwise one teacher might have more than one vote, which the noise does not cover.
    """
    counts = votes.ndim == 2 and votes.dtype.kind in "iu" and bool((votes >= 0).all())
    if not counts or not bool((votes.sum(1) == teachers).all()):
        raise DatasetError(
            "votes-damaged",
            f"Each row of the votes must contain whole numbers whose sum is {teachers}, the number of teachers. "
            "Correct the file.",
        )
