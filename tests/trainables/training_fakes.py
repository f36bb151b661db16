"""A charge in memory, steps over any source, and generators under a known key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainables.engine.per_sample import PerSampleSource
from trainables.engine.random import Generator, SecureGenerator, SeededGenerator
from trainables.engine.step import Mechanism, PrivateStep, Stages
from trainables.engine.update import Sgd
from trainables.training import PrivateTraining, TrainingSpec

MakeSpec = Callable[..., TrainingSpec]
Trained = Callable[..., PrivateTraining]

# Every record in every batch and no noise: what a step does is then no matter of chance.
EXACT: dict[str, Any] = {"private": False, "noise_seed": 1, "noise_multiplier": 0.0, "sample_rate": 1.0}

MARK = 12345.0
"""Value of a marked record, for which a fake raises."""


def marked(x: Tensor) -> bool:
    """Return whether one of these inputs is marked."""
    return bool((x.flatten(1) == MARK).any())


@dataclass
class CountingCharge:
    """Keeps leases and releases in memory; refuses steps that would pass `cap`, and scores that would `most_scores`."""

    cap: int = 10**9
    most_scores: int = 10**9
    leases: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    mechanisms: set[tuple[float, float]] = field(default_factory=set)
    score_noises: set[float] = field(default_factory=set)
    before_lease: Callable[[], None] = lambda: None
    after_lease: Callable[[], None] = lambda: None
    cut_off: int = 0

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        self.before_lease()
        if self.leased() + steps > self.cap:
            raise PermissionError("refused")
        self.leases.append(steps)
        self.mechanisms.add((sample_rate, noise_multiplier))
        self.after_lease()

    def leased(self) -> int:
        return sum(self.leases)

    def restarts(self) -> int:
        return self.cut_off

    def release(self, count: int = 1, *, noise: float) -> None:
        if self.released() + count > self.most_scores:
            raise PermissionError("refused")
        self.releases.append(count)
        self.score_noises.add(noise)

    def released(self) -> int:
        return sum(self.releases)


def raw(training: PrivateTraining) -> torch.Tensor:
    """The weights that the training goes on from, as one vector."""
    return torch.cat([value.flatten() for value in training.state_dict()["model"].values()])


def step_over(
    source: PerSampleSource,
    theta: torch.Tensor,
    *,
    stages: Stages | None = None,
    rate: float = 1.0,
    noise: float = 0.0,
    clip: float = 1.0,
    size: float = 1.0,
    clipping: str = "flat",
) -> PrivateStep:
    """A step of plain SGD; by default every record is in the batch and there is no noise."""
    return PrivateStep(
        mechanism=Mechanism(
            sample_rate=rate, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=size, clipping=clipping
        ),
        stages=stages or Stages(),
        source=source,
        update=Sgd(theta),
        secret=SeededGenerator(0),
        public=torch.Generator().manual_seed(0),
    )


def normals(generator: Generator, size: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Standard Gaussians of a generator."""
    return generator.add_normal(torch.zeros(size, dtype=torch.float64), 1.0, dtype)


def keyed(key: int = 1) -> SecureGenerator:
    """A secret generator under a known key, so that a statistical test gives the same verdict every time."""
    generator = SecureGenerator()
    generator.load_state_dict({"key": torch.full((32,), key, dtype=torch.uint8)})
    return generator
