"""A charge in memory, and what a training holds: for the tests of trainings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from trainables.training import PrivateTraining, TrainingSpec

MakeSpec = Callable[..., TrainingSpec]

# Every record in every batch and no noise: what a step does is then no matter of chance.
EXACT: dict[str, Any] = {"private": False, "noise_seed": 1, "noise_multiplier": 0.0, "sample_rate": 1.0}


@dataclass
class CountingCharge:
    """Keeps leases and releases in memory; refuses steps that would pass `cap`, and scores that would `most_scores`."""

    cap: int = 10**9
    most_scores: int = 10**9
    leases: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    before_lease: Callable[[], None] = lambda: None
    cut_off: int = 0

    def lease(self, steps: int) -> None:
        self.before_lease()
        if self.leased() + steps > self.cap:
            raise PermissionError("refused")
        self.leases.append(steps)

    def leased(self) -> int:
        return sum(self.leases)

    def restarts(self) -> int:
        return self.cut_off

    def release(self, count: int = 1) -> None:
        if self.released() + count > self.most_scores:
            raise PermissionError("refused")
        self.releases.append(count)

    def released(self) -> int:
        return sum(self.releases)


def raw(training: PrivateTraining) -> torch.Tensor:
    """The weights that the training goes on from, as one vector."""
    return torch.cat([value.flatten() for value in training.state_dict()["model"].values()])
