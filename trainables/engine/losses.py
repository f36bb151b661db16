"""Losses of single samples at several parameters, for the private loss probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, nan
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables.engine.accelerator import full_float32
from trainables.engine.batches import RAISED
from trainables.engine.layout import Layout
from trainables.engine.per_sample import ROWS
from trainables.engine.rows import EvenLinear
from trainables.engine.task_losses import each_loss
from trainables.tasks import CLASSIFICATION

__all__ = ["LossPasses"]

_MOST_ROWS: Final = 1024
_PASSES: Final = 4  # an expected batch is taken in about this many passes, so that filling the last one costs little


@dataclass(frozen=True, kw_only=True)
class LossPasses:
    """Forward passes for the losses of single samples, in full precision.

    Formal guarantee: for a model that computes every sample alone, the losses of a sample are a function of this sample
    and the parameters alone. They are NaN if the model raises for it at one of the parameters.

    Every pass has the same public number of rows, filled with copies of its first sample. In a shorter pass, a kernel
    might round all losses differently, and one more sample would change the losses of the others.

    Attributes:
        module: the model. The given parameters replace its own.
        layout: trainable parameters of the model.
        expected_batch_size: expected number of samples of a batch.
        task: task of the model, which has a loss.
    """

    module: nn.Module
    layout: Layout
    expected_batch_size: float
    task: str = CLASSIFICATION

    def of(self, thetas: Sequence[Tensor], inputs: Tensor, targets: Tensor, *, copies: int = 1) -> Tensor:
        """Return the losses of the samples at each θ, shape (points, B), float64. They are NaN for one that raises.

        Args:
            thetas: parameters, each of shape (d,).
            inputs: shape (B·copies, *input_shape), with the records of a sample next to each other.
            targets: labels, shape (B·copies,). A record whose label is IGNORED adds 0.
            copies: number m of records of a sample. The loss of a sample is the sum over its records divided by m.
        """
        rows = self._rows(copies)
        found = [
            self._part(thetas, x, y, copies=copies, rows=rows)
            for x, y in zip(torch.split(inputs, rows), torch.split(targets, rows), strict=True)
            if len(y)
        ]
        return torch.cat(found, 1) if found else torch.zeros(len(thetas), 0, dtype=torch.float64, device=inputs.device)

    def rehearse(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        """Take a pass of full size over PUBLIC samples, and forget it. Raise whatever it raises."""
        rows = self._rows(1)
        times = ceil(rows / len(targets))
        self._losses(theta, inputs.repeat(times, *[1] * (inputs.ndim - 1))[:rows], targets)

    def _rows(self, copies: int) -> int:
        """Return the number of rows of every pass, a multiple of ROWS and of `copies`."""
        unit = ROWS * copies
        wanted = ceil(min(self.expected_batch_size * copies / _PASSES, _MOST_ROWS) / unit)
        return max(1, wanted) * unit

    def _part(self, thetas: Sequence[Tensor], x: Tensor, y: Tensor, *, copies: int, rows: int) -> Tensor:
        """Return the losses of the samples of one pass. If it raises, halve the samples until one is alone."""
        samples, fill = len(y) // copies, (rows - len(y)) // copies
        padded = torch.cat([x, x[:copies].repeat(fill, *[1] * (x.ndim - 1))]) if fill else x
        try:
            losses = [self._losses(theta, padded, y) for theta in thetas]
        except KeyboardInterrupt:
            raise
        except RAISED:
            if samples == 1:
                return torch.full((len(thetas), 1), nan, dtype=torch.float64, device=x.device)
            half = samples // 2 * copies
            halves = ((x[:half], y[:half]), (x[half:], y[half:]))
            return torch.cat([self._part(thetas, *each, copies=copies, rows=rows) for each in halves], 1)
        return torch.stack(losses).view(len(thetas), samples, copies).sum(2) / copies

    def _losses(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the losses of the first records of a pass, which have labels, shape (len(y),), float64."""
        full_float32()
        with EvenLinear(), torch.no_grad():
            logits = functional_call(self.module, self.layout.views(theta), (x,))[: len(y)].double()
            return each_loss(self.task)(logits, y)
