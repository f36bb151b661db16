"""Private steps of one training whose batches are clipped by several processes, the ranks.

Rank 0 is the training: it leases, draws the batch, sends the work, adds the noise and takes the step. The other ranks
have no key and no generator. They clip their share of the batch and send its sum, which only rank 0 receives. So the
noise is added once, by one process, to the sum that a single process would have computed, and a rank that is lost takes
nothing with it but its sum.

A sample's own content decides to which rank it belongs (`owners`). Each rank sums in float64, and so are the sums added
(`trainables.engine.sums` allows any number of parts).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from trainables.engine.accelerator import full_float32
from trainables.engine.batches import RAISED, Records, part_samples
from trainables.engine.gen import LossProbes, ProbePoint
from trainables.engine.objective import Points
from trainables.engine.random import Generator
from trainables.engine.step import PrivateStep
from trainables.errors import GateError

__all__ = ["NoGenerator", "RankedStep", "Ranks", "owners"]


class Ranks(Protocol):
    """The processes of one training, as one of them sees them. Each call is made by all ranks, in the same order.

    Every method raises InfrastructureError (`rank-lost`) if another rank died.
    """

    @property
    def rank(self) -> int:
        """Number of this rank; rank 0 is the training."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def send(self, work: Mapping[str, Any]) -> None:
        """Send numbers, words, tensors, and lists of them from rank 0 to the others."""

    def receive(self) -> dict[str, Any]:
        """Wait for what rank 0 sends, without a limit, and return it."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Return rank 0's tensor on all ranks. The others give one of the same shape, which may be overwritten."""

    def add(self, total: Tensor) -> Tensor:
        """Return the sum of all ranks' tensors on rank 0. On other ranks the result has no meaning."""


def owners(records: Records, size: int) -> Tensor:
    """Return which of `size` ranks each sample belongs to, int64 of shape (n,).

    It depends on the inputs of the sample alone, not on its number. Ranks may round differently, and if one more record
    moved others to another rank, it would change what they add too.
    """
    parts = (part.cpu().contiguous() for part in torch.split(records.inputs, part_samples(records.inputs, copies=1)))
    rows = (row for part in parts for row in part.unsqueeze(-1).flatten(1).view(torch.uint8).numpy())
    found = torch.tensor([zlib.crc32(row) for row in rows], dtype=torch.int64)
    if records.users is not None:
        users = records.users.cpu()
        found = found[users.clamp(min=0)].masked_fill(users < 0, 0).sum(1)
    return found % size


class NoGenerator(Generator):
    """Generator of a rank that must not draw: it refuses every request. Rank 0 alone draws batches, views and noise."""

    def _request(self) -> NoReturn:
        raise GateError("rank-draws", "Only rank 0 of a training draws random numbers. Please report this as a bug.")

    def rekey(self) -> None:
        """Do nothing, because there is no key."""

    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse a state, because a rank has no key."""
        self._request()


class RankedStep(PrivateStep):
    """Private steps whose clipped sums come from several ranks. Rank 0 takes the steps, and the others `help`."""

    def __init__(self, *, ranks: Ranks, **step: Any) -> None:  # noqa: ANN401 - of `PrivateStep`
        super().__init__(**step)
        self._ranks = ranks
        self._owned: tuple[Records, Tensor] | None = None  # the records of the last step, and their owners

    def rehearse(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        """Compute the clipped sum of PUBLIC samples on every rank; see `PrivateStep.rehearse`.

        Raises:
            RuntimeError: another rank's pass raised. That does not depend on a record either.
        """
        self._ranks.send({"kind": "rehearse", "inputs": inputs.cpu(), "targets": targets.cpu()})
        self._ranks.copy(theta)
        error = self._rehearsed(theta, inputs, targets)
        failed = int(self._ranks.add(torch.tensor([float(error is not None)], device=theta.device)))
        if error is not None:
            raise error
        if failed:
            raise RuntimeError(f"{failed} of the other ranks failed")

    def help(self, theta: Tensor, inputs: Tensor, targets: Tensor, *, users: Tensor | None = None) -> None:
        """Do this rank's share of every step until rank 0 ends. The arguments are those of `take`.

        Raises:
            InfrastructureError: rank 0 is gone.
        """
        records = Records(inputs, targets, users)
        full_float32()
        while (work := self._ranks.receive())["kind"] != "end":
            centre = self._ranks.copy(torch.empty_like(theta))
            if work["kind"] == "rehearse":
                error = self._rehearsed(centre, work["inputs"].to(theta.device), work["targets"].to(theta.device))
                self._ranks.add(torch.tensor([float(error is not None)], device=theta.device))
            elif work["kind"] == "clip":
                points = Points(centre=centre, **work["points"], seeds=tuple(work["seeds"]))
                self._ranks.add(self._share(records, work["split"], work["owners"], work["draws"], points))
            else:
                direction = self._ranks.copy(torch.empty_like(theta))
                at = ProbePoint(theta=centre, direction=direction, **work["at"])
                self._ranks.add(self._share_of_probes(records, work["split"], work["owners"], at))

    def end(self) -> None:
        """Let the other ranks return from `help`."""
        self._ranks.send({"kind": "end"})

    def _clipped(self, records: Records, split: Sequence[Tensor], points: Points) -> Tensor:
        augmentation = self._stages.augmentation
        draws = [
            None if augmentation is None else augmentation.draw(len(part) * records.copies, self._secret)
            for part in split
        ]
        numbers, owned = self._owned_parts(records, split)
        self._ranks.send(
            {
                "kind": "clip",
                "split": numbers,
                "owners": owned,
                "draws": draws,
                "seeds": list(points.seeds),
                "points": {"scale": points.scale, "spread": points.spread, "decay": points.decay},
            }
        )
        self._ranks.copy(points.centre)
        return self._ranks.add(self._share(records, numbers, owned, draws, points))

    def _probed(self, probes: LossProbes, records: Records, split: Sequence[Tensor], at: ProbePoint) -> Tensor:
        bounds = {"slope_bound": at.slope_bound, "curvature_bound": at.curvature_bound}
        numbers, owned = self._owned_parts(records, split)
        self._ranks.send(
            {"kind": "probe", "split": numbers, "owners": owned, "at": {"radius": at.radius, **bounds}},
        )
        self._ranks.copy(at.theta)
        self._ranks.copy(at.direction)
        return self._ranks.add(self._share_of_probes(records, numbers, owned, at))

    def _owned_parts(self, records: Records, split: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the numbers of the samples of each part, and the ranks that they belong to. Only rank 0 decides it."""
        known = self._owned
        if known is None or known[0].inputs is not records.inputs or known[0].users is not records.users:
            known = self._owned = records, owners(records, self._ranks.size)
        numbers = [part.cpu() for part in split]
        return numbers, [known[1][part] for part in numbers]

    def _share(
        self,
        records: Records,
        split: Sequence[Tensor],
        owned: Sequence[Tensor],
        draws: Sequence[Tensor | None],
        points: Points,
    ) -> Tensor:
        """Return the sum over this rank's samples of a batch, in float64."""
        sums, views = self._sum(points), self._views
        total = torch.zeros_like(points.centre, dtype=torch.float64)
        for part, owner, drawn in zip(split, owned, draws, strict=True):
            mine = self._mine(owner)
            inputs, targets = records.of(part[mine].to(records.inputs.device))
            if self._stages.augmentation is not None and drawn is not None:
                places = mine.repeat_interleave(records.copies)
                inputs = self._stages.augmentation.views(inputs, drawn[:, places])
                targets = targets.repeat_interleave(views, 0)
            total += sums.of(inputs, targets, copies=records.copies * views, whole=False)
        return total

    def _share_of_probes(
        self, records: Records, split: Sequence[Tensor], owned: Sequence[Tensor], at: ProbePoint
    ) -> Tensor:
        """Return the sum of the probe vectors of this rank's samples, shape (4,), float64."""
        if self._probes is None:
            raise GateError("probes-not-charged", "This rank has no loss probes. Please report this as a bug.")
        device = records.inputs.device
        parts = (records.of(part[self._mine(owner)].to(device)) for part, owner in zip(split, owned, strict=True))
        return self._probes.total(at, parts, copies=records.copies)

    def _mine(self, owner: Tensor) -> Tensor:
        """Return which of the samples, whose owners these are, belong to this rank, shape (B,)."""
        return owner == self._ranks.rank

    def _rehearsed(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> BaseException | None:
        try:
            super().rehearse(theta, inputs, targets)
        except KeyboardInterrupt:
            raise
        except RAISED as error:
            return error
        return None
