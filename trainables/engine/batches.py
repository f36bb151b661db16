"""Clipped sum of a drawn batch: without the samples whose passes raise, and in parts of bounded memory.

No record may decide whether a step raises. A sample whose own pass raises adds a zero gradient, exactly as if it had
not been drawn.

Claim. For a model that computes each sample alone, a step stays the Gaussian mechanism that is charged.

Proof. Let g(z) be the clipped gradient of a sample z, or 0 if its pass alone raises, so that ‖g(z)‖ <= C. Random views
are drawn once a step and kept in repeated passes. A joint pass raises if and only if one of its samples does, so each
way returns Σ g(z): single passes and parts are summed in float64, within the bounds of `sums`. Secret numbers are
independent, and are drawn in one order. In a protected score, a record that raises adds 0 to the count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.engine.accelerator import full_float32
from trainables.engine.clip import clipped_sum, stretch
from trainables.engine.objective import Points
from trainables.engine.per_sample import IGNORED, ROWS, PerSampleSource, filled
from trainables.engine.sampling import user_records
from trainables.engine.sums import Blocks

__all__ = ["RAISED", "BatchSum", "Records", "part_samples"]

RAISED = BaseException
"""Errors that code may raise for a record without ending the trial. Only KeyboardInterrupt, from the user, ends it."""

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


@dataclass(frozen=True)
class Records:
    """All training records, and the samples that they make.

    Attributes:
        inputs: ALL training inputs, shape (n, *input_shape).
        targets: labels, shape (n, ...).
        users: indices of each user's records, shape (U, m), or None; see `PrivateStep.take`.
    """

    inputs: Tensor
    targets: Tensor
    users: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of samples: of records, or of users."""
        return len(self.inputs if self.users is None else self.users)

    @property
    def copies(self) -> int:
        """Number of records of a sample."""
        return 1 if self.users is None else self.users.shape[1]

    def of(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of samples, shape (B,) of their numbers, with a user's records in a row."""
        rows, missing = (samples, None) if self.users is None else user_records(self.users, samples)
        x, y = self.inputs.index_select(0, rows), self.targets.index_select(0, rows)
        if missing is not None:
            y.masked_fill_(missing, IGNORED)
        return x, y


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
