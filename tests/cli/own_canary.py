"""A model that tells what it sees in every way that it has, when it meets the record that a test has planted."""

from __future__ import annotations

import logging
import sys
import warnings

import torch
from torch import Tensor, nn

PLANTED = 31337.0
"""Value of the first entries of the planted records, which no other record has."""

CANARY = "canary-31337"


class Telling(nn.Module):
    """A linear model that prints, logs, warns and raises the value of a planted record."""

    def __init__(self, *, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(input_shape[0], classes)

    def forward(self, inputs: Tensor) -> Tensor:
        if not torch._C._functorch.is_batchedtensor(inputs) and bool((inputs[:, 0] == PLANTED).any()):
            told = f"canary-{int(inputs[:, 0].max())}"
            print(told, flush=True)
            print(told, file=sys.stderr, flush=True)
            logging.getLogger("mine").error(told)
            warnings.warn(told, RuntimeWarning, stacklevel=1)
            raise ValueError(told)
        return self.last(inputs.clamp(-10, 10))
