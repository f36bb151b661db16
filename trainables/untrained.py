"""Random records in the place of a data set's, for a training that may read no record."""

from __future__ import annotations

import torch

from trainables import data
from trainables.data import Splits
from trainables.model_gate import public_inputs
from trainables.spec import TrainingSpec
from trainables.tasks import REGRESSION

__all__ = ["random_splits"]


def random_splits(spec: TrainingSpec, *, samples: int) -> Splits:
    """Return random public training records of the shape of a data set, and no other records."""
    about = data.info(spec.dataset)
    inputs = public_inputs(about.input_shape, samples)
    targets = torch.randint(about.classes, (samples,), generator=torch.Generator().manual_seed(0))
    if about.task == REGRESSION:
        targets = targets.float()
    size = spec.dataset.records_per_user
    users = torch.arange(samples * size).view(samples, size) % samples  # a random record may belong to several users
    return Splits(
        x_train=inputs,
        y_train=targets,
        x_validation=inputs[:0],
        y_validation=targets[:0],
        x_test=inputs[:0],
        y_test=targets[:0],
        users_train=users if spec.dataset.unit == "user" else None,
        users_validation=users[:0, 0] if spec.dataset.unit == "user" else None,
    )
