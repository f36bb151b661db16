"""Clipped sum of a drawn batch: without the samples whose passes raise, and in parts of bounded memory.

No record may decide whether a step raises. A sample whose own pass raises adds a zero gradient, exactly as if it had
not been drawn. docs/guarantees.md has the proof, under "What a record can do besides moving a gradient".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.engine.accelerator import full_float32
from trainables.engine.clip import clipped_sum, stretch
from trainables.engine.objective import Points
from trainables.engine.per_sample import ROWS, PerSampleSource, filled
from trainables.engine.sums import Blocks

__all__ = ["RAISED", "BatchSum", "part_samples"]

RAISED = BaseException
"""What code that sees a record may raise without ending a trial. Only KeyboardInterrupt, of the user, goes on."""

_PART_BYTES = 256 * 2**20
_ROW_BYTES = 64  # labels, indices, losses and norms of a row


def part_samples(inputs: Tensor, *, copies: int) -> int:
    """Return P, the largest number of samples that are gathered and clipped together, a multiple of ROWS.

    The inputs of a part take at most 256 MiB, or those of ROWS samples. P depends on public values only: the shape of
    one input and the number of `copies` of a sample (records of a user times views of a record). So the memory of a
    step has a public bound, and no Poisson batch ends a trial by its size. A batch of at most P samples is one part.

    Args:
        inputs: all inputs, shape (n, *input_shape). Only its dtype and the shape of one input are used.
        copies: number of copies of a sample.
    """
    row = inputs.shape[1:].numel() * inputs.element_size() + _ROW_BYTES
    return max(ROWS, _PART_BYTES // (copies * row) // ROWS * ROWS)


@dataclass(kw_only=True, slots=True)
class BatchSum:
    """Sum of the clipped gradients of the samples of one step.

    Formal guarantee: for a model that computes every sample alone, a sample adds a function of this sample alone, at
    most C long: its clipped gradient, or 0 if its own pass raises. Of what a sample raises, only
    KeyboardInterrupt leaves.

    Attributes:
        source: source of the per-sample gradients.
        points: points of this step's objective, the same for all samples.
        max_grad_norm: C.
        clipping: one of CLIPPINGS.
        blocks: settings of float32 blocks, or None for float64 (`trainables.engine.sums`).
    """

    source: PerSampleSource
    points: Points
    max_grad_norm: float
    clipping: str
    blocks: Blocks | None

    def of(self, inputs: Tensor, targets: Tensor, *, copies: int, whole: bool = True) -> Tensor:
        """Return the sum over the samples of one part, shape (d,).

        If the joint pass raises, every sample is tried alone, and those that raise are dropped. The joint pass of the
        others is bit for bit the one of a part without the dropped samples. If it raises too, the passes of the single
        samples are added up in float64.

        Args:
            inputs: shape (B·copies, *input_shape), with the copies of a sample next to each other. B may be 0.
            targets: labels, shape (B·copies, ...), in the same order.
            copies: number of copies of a sample.
            whole: whether this part is the whole batch. Otherwise it is summed in float64, because the bound of
                float32 blocks holds for one sum over the batch.
        """
        blocks = self.blocks if whole else None
        try:
            return self.joint(inputs, targets, copies=copies, blocks=blocks)
        except KeyboardInterrupt:
            raise
        except RAISED:
            pass  # leave this block first, because the traceback keeps the memory of the pass
        centre = self.points.centre
        singles = torch.zeros_like(centre, dtype=torch.float64)
        sound: list[int] = []
        for index, (x, y) in enumerate(zip(torch.split(inputs, copies), torch.split(targets, copies), strict=True)):
            alone = self._tried(x, y, copies=copies, blocks=None)
            if alone is not None:
                sound.append(index)
                singles += alone
        if len(sound) == len(targets) // copies:
            return singles
        kept = torch.tensor(sound, dtype=torch.int64, device=targets.device)
        x, y = (
            each.view(-1, copies, *each.shape[1:]).index_select(0, kept).flatten(0, 1) for each in (inputs, targets)
        )
        others = self._tried(x, y, copies=copies, blocks=blocks)
        return singles if others is None else others

    def joint(self, inputs: Tensor, targets: Tensor, *, copies: int, blocks: Blocks | None) -> Tensor:
        """Return the sum of one pass over all samples. Raise whatever the model or the machine raises."""
        samples = len(targets) // copies
        counted, fill = samples, -samples % ROWS if samples else 0
        if fill:
            inputs, targets = filled(inputs, targets, copies=copies, fill=fill)
            samples += fill
        full_float32()
        longest = stretch(self.points, self.max_grad_norm, clipping=self.clipping) if blocks else 1.0
        return clipped_sum(
            self.source.chunks(self.points, inputs, targets, copies=copies),
            self.max_grad_norm,
            like=self.points.centre,
            clipping=self.clipping,
            samples=samples,
            counted=counted,
            block=blocks.rows(samples, stretch=longest) if blocks else None,
        )

    def _tried(self, inputs: Tensor, targets: Tensor, *, copies: int, blocks: Blocks | None) -> Tensor | None:
        """Return the sum of one pass over all samples, or None if it raises."""
        try:
            return self.joint(inputs, targets, copies=copies, blocks=blocks)
        except KeyboardInterrupt:
            raise
        except RAISED:
            return None
