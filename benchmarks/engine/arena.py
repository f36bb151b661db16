"""The records of a workload in memory, and the contenders on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from benchmarks.engine.contenders import (
    LEARNING_RATE,
    NaiveStep,
    NonPrivateStep,
    Ours,
    PrivateContender,
    VmapStep,
    stages_of,
)
from benchmarks.engine.opacus import GhostStep, HooksPasses, OpacusStep
from benchmarks.engine.workloads import Course, Workload
from trainables.engine.layout import Layout
from trainables.engine.random import SecureGenerator
from trainables.engine.step import Mechanism
from trainables.models import build

_CLASSES = 10
# DPLIS at the rule of thumb of the papers; `mean` is equation 6.
DPLIS: dict[str, object] = {"smoothing_radius": 10.0, "smoothing_samples": 10, "smoothing_reduction": "mean"}
# Samples of one call of the naive loop; its time is scaled to the batch.
NAIVE_SAMPLES = 8

Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The records of a workload and the contenders on them."""

    workload: Workload
    batch: int  # expected size
    device: str
    inputs: Tensor  # all records, shape (n, *input_shape)
    targets: Tensor  # their labels, shape (n,)
    draw: torch.Generator  # of the contenders that are not ours; not secret
    noise_multiplier: float = 1.1
    max_grad_norm: float = 1.0

    @classmethod
    def of(cls, workload: Workload, course: Course, *, batch: int | None = None) -> Arena:
        """Return Gaussian records of the workload's shape, in memory."""
        public = torch.Generator().manual_seed(course.seed)
        count = course.records or workload.records
        inputs = torch.empty(count, *workload.input_shape).normal_(generator=public)
        targets = torch.randint(_CLASSES, (count,), generator=public)
        return cls(
            workload=workload,
            batch=batch or course.batch,
            device=course.device,
            inputs=inputs.to(course.device),
            targets=targets.to(course.device),
            draw=torch.Generator().manual_seed(course.seed + 1),
        )

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of every private contender."""
        return Mechanism(
            sample_rate=self.batch / len(self.inputs),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.batch,
        )

    def module(self) -> nn.Module:
        """Build the model, with the same parameters each time."""
        shape = self.workload.input_shape
        return build(self.workload.model, input_shape=shape, classes=_CLASSES, seed=0).to(self.device)

    def ours(
        self,
        method: str = "dp_sgd",
        parameters: dict[str, object] | None = None,
        secret: SecureGenerator | None = None,
    ) -> Ours:
        """Return the step of the engine with the stages of a method."""
        return Ours(
            self.module(),
            self.mechanism,
            example=torch.randn(3, *self.workload.input_shape).to(self.device),
            method=method,
            parameters=parameters,
            secret=secret,
        )

    def rival(self, name: str, smoothing: dict[str, object] = DPLIS) -> PrivateContender:
        """Return the step of a rival: hooks, hooks_nhwc, ghost, vmap, naive, or hooks_passes with that smoothing."""
        module, mechanism = self.module(), self.mechanism
        if name == "vmap":
            return VmapStep(module, mechanism)
        if name == "naive":
            return NaiveStep(module, mechanism)
        if name == "ghost":
            return GhostStep(module, mechanism, learning_rate=LEARNING_RATE)
        if name == "hooks_passes":
            objective = stages_of("dplis", smoothing, Layout.of(module), batch_size=self.batch).objective_at(0)
            public = torch.Generator().manual_seed(0)
            return HooksPasses(module, mechanism, learning_rate=LEARNING_RATE, objective=objective, public=public)
        if name == "hooks_nhwc":
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return OpacusStep(module, mechanism, learning_rate=LEARNING_RATE)

    def step_of_ours(
        self,
        method: str = "dp_sgd",
        parameters: dict[str, object] | None = None,
        secret: SecureGenerator | None = None,
    ) -> Step:
        """Return a call that takes one step of ours, including its draw."""
        ours = self.ours(method, parameters, secret)
        return lambda: ours.take(self.inputs, self.targets)

    def step_of_rival(self, name: str) -> Step:
        """Return a call that takes one step of a rival; `naive` takes few samples, `hooks_nhwc` is channels-last."""
        rival = self.rival(name)
        if name == "naive":
            return lambda: rival.step(*self.gathered(NAIVE_SAMPLES))
        if name == "hooks_nhwc":
            return lambda: rival.step(*_channels_last(*self.gathered(self._poisson_size())))
        return lambda: rival.step(*self.gathered(self._poisson_size()))

    def step_of_non_private(self, memory_format: torch.memory_format = torch.contiguous_format) -> Step:
        """Return a call that takes one step of plain SGD."""
        contender = NonPrivateStep(self.module(), memory_format=memory_format)
        return lambda: contender.step(*self.gathered(self.batch))

    def gathered(self, size: int) -> tuple[Tensor, Tensor]:
        """Draw a batch of `size` records by index."""
        index = torch.randint(len(self.inputs), (size,), generator=self.draw).to(self.device)
        return self.inputs.index_select(0, index), self.targets.index_select(0, index)

    def _poisson_size(self) -> int:
        # The size of a Poisson batch is binomial; at these rates a Gaussian is close enough for a timing.
        return max(1, round(self.batch + sqrt(self.batch) * float(torch.randn((), generator=self.draw))))


def _channels_last(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return inputs.contiguous(memory_format=torch.channels_last), targets
