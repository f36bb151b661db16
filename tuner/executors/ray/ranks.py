"""Trial with several workers on Ray: its own actor is rank 0, and starts one more actor for each further rank.

All of them are in the trial's placement group, so Ray gives them to the trial together and takes them back together.
Rank 0 alone leases, draws, scores, writes checkpoints and reports (`trainables.engine.ranks`). If another rank dies,
rank 0 raises an InfrastructureError, and the trial continues from its checkpoint with new ranks.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trainables.errors import InfrastructureError
from trainables.rungs import Training
from trainables.wall import behind

__all__ = ["RankedTraining"]

_READY_WITHIN = 300.0
"""Seconds within which every worker of a trial must have started and loaded torch."""


@dataclass(frozen=True)
class _Meeting:
    """Where rank 0 waits for the others: its address, its port, and the number of ranks."""

    host: str
    port: int
    size: int


class Helper:
    """Actor that is one of the ranks above 0 of one trial."""

    def ready(self) -> None:
        """Return when torch and the engine are loaded."""
        import trainables.engine.torch_ranks  # noqa: F401

    def help(self, make_training: Any, spec: Any, rank: int, meeting: _Meeting, log: Path) -> None:  # noqa: ANN401
        """Join rank 0, make the training of `spec` and do this rank's share until rank 0 ends.

        Whatever fails here ends this process, and so closes the connection for which rank 0 waits.
        """
        from trainables.charge import NoCharge
        from trainables.engine.torch_ranks import TorchRanks, joined
        from trainables.training import device_of

        def work() -> None:
            ranks = TorchRanks(
                joined(meeting.host, meeting.port),
                rank=rank,
                size=meeting.size,
                host=ray.util.get_node_ip_address(),
                device=device_of(spec),
            )
            training = make_training(spec, NoCharge(), ranks=ranks)
            try:
                training.help()
            except InfrastructureError as error:
                if error.code != "rank-lost":  # rank 0 has ended, or tells why it was lost
                    raise

        try:
            behind(log, work)
        finally:
            os._exit(1)


@dataclass(frozen=True)
class RankedTraining:
    """`trainables.rungs.MakeTraining` for a trial with several workers. It is called in the trial's own actor.

    Attributes:
        make_training: function of a specification, a charge and `ranks`, such as `PrivateTraining`.
        workers: number of ranks, above 1.
        cpus, gpus: resources of one rank.
        log: the operator's log, to which all output of the other ranks goes.
    """

    make_training: Any
    workers: int
    cpus: float
    gpus: float
    log: Path

    def __call__(self, spec: Any, charge: Any) -> Training:  # noqa: ANN401 - of `MakeTraining`
        """Start the other ranks and return the training of rank 0. They end with it.

        Raises:
            InfrastructureError: a worker could not be started, or died.
        """
        from trainables.engine.torch_ranks import TorchRanks, opened
        from trainables.training import device_of

        group = ray.util.get_current_placement_group()
        helpers = [
            ray.remote(Helper)
            .options(
                num_cpus=self.cpus,
                num_gpus=self.gpus,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
            )
            .remote()
            for rank in range(1, self.workers)
        ]
        try:
            # A rank that cannot start is noticed here. The ranks' own connection would wait for it.
            ray.get([helper.ready.remote() for helper in helpers], timeout=_READY_WITHIN)
            host = ray.util.get_node_ip_address()
            store, port = opened(host)
            meeting = _Meeting(host, port, self.workers)
            public = replace(spec, replay_key=None) if getattr(spec, "replay_key", None) else spec
            for rank, helper in enumerate(helpers, 1):
                helper.help.remote(self.make_training, public, rank, meeting, self.log)
            ranks = TorchRanks(store, rank=0, size=self.workers, host=host, device=device_of(spec))
            training: Training = self.make_training(spec, charge, ranks=ranks)
        except ray.exceptions.RayError as error:
            _end(helpers)
            raise InfrastructureError(
                "rank-lost", f"A worker of the trial could not be started ({type(error).__name__})."
            ) from error
        except BaseException:
            _end(helpers)
            raise
        weakref.finalize(training, _end, helpers).atexit = False
        return training


def _end(helpers: Sequence[Any]) -> None:
    for helper in helpers:
        ray.kill(helper)
