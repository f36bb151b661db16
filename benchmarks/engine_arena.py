"""A workload's records in memory, and every contender on them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from benchmarks.engine_bars import Workload
from benchmarks.engine_contenders import (
    LEARNING_RATE,
    NaiveStep,
    NonPrivateStep,
    OpenNoise,
    Ours,
    PrivateContender,
    VmapStep,
    stages_of,
)
from benchmarks.engine_opacus import GhostStep, HooksPasses, OpacusStep
from trainables.engine.layout import Layout
from trainables.engine.objective import Objective, Plain
from trainables.engine.random import SecureGenerator
from trainables.engine.step import Mechanism
from trainables.models import build

__all__ = ["DPLIS", "NAIVE_SAMPLES", "Arena"]

_CLASSES = 10
# DPLIS with the papers' rule of thumb; `mean` is equation 6.
DPLIS: dict[str, object] = {"smoothing_radius": 10.0, "smoothing_samples": 10, "smoothing_reduction": "mean"}
# What the loop over samples computes per call; its time is scaled to the batch.
NAIVE_SAMPLES = 8

Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """A workload's records and the contenders on them.

    Attributes:
        workload: which.
        batch: expected size.
        device: 'cpu' or 'cuda'.
        inputs: all records, shape (n, *input_shape).
        targets: their labels, shape (n,).
        draw: of the contenders that are not ours; not secret.
        noise_multiplier: of every private contender.
        max_grad_norm: of every private contender.
        passes_at_once: samples of a micro-batch of `hooks_passes`; None takes the batch whole.
    """

    workload: Workload
    batch: int
    device: str
    inputs: Tensor
    targets: Tensor
    draw: torch.Generator
    noise_multiplier: float = 1.1
    max_grad_norm: float = 1.0
    passes_at_once: int | None = None

    @classmethod
    def of(cls, workload: Workload, *, batch: int, records: int | None = None, device: str = "cpu", seed: int) -> Arena:
        """Gaussian records of the workload's shape, held in memory."""
        public = torch.Generator().manual_seed(seed)
        count = records or workload.records
        inputs = torch.empty(count, *workload.input_shape).normal_(generator=public)
        targets = torch.randint(_CLASSES, (count,), generator=public)
        return cls(
            workload=workload,
            batch=batch,
            device=device,
            inputs=inputs.to(device),
            targets=targets.to(device),
            draw=torch.Generator().manual_seed(seed + 1),
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
        """The model with the same parameters each time."""
        shape = self.workload.input_shape
        return build(self.workload.model, input_shape=shape, classes=_CLASSES, seed=0).to(self.device)

    def ours(
        self,
        method: str = "dp_sgd",
        parameters: dict[str, object] | None = None,
        secret: SecureGenerator | None = None,
    ) -> Ours:
        """The engine's step with a method's stages."""
        return Ours(
            self.module(),
            self.mechanism,
            example=torch.randn(3, *self.workload.input_shape).to(self.device),
            method=method,
            parameters=parameters,
            secret=secret,
        )

    def rival(self, name: str, parameters: dict[str, object] | None = None) -> PrivateContender:
        """A private step that is not ours: hooks, functorch, ew, ghost, vmap, naive, or hooks_passes.

        Args:
            name: which.
            parameters: of DPLIS; None is plain DP-SGD.
        """
        module, mechanism = self.module(), self.mechanism
        objective: Objective = Plain()
        if parameters is not None:
            objective = stages_of("dplis", parameters, Layout.of(module), batch_size=self.batch).objective
        public = torch.Generator().manual_seed(0)
        if name == "hooks_passes":
            return HooksPasses(
                module,
                mechanism,
                learning_rate=LEARNING_RATE,
                objective=objective,
                public=public,
                micro_batch=self.passes_at_once,
            )
        if name == "vmap":
            return VmapStep(module, mechanism)
        if name == "naive":
            return NaiveStep(module, mechanism, objective, public)
        if name == "ghost":
            return GhostStep(module, mechanism, learning_rate=LEARNING_RATE)
        return OpacusStep(module, mechanism, learning_rate=LEARNING_RATE, mode=name)

    def step_of_ours(self, method: str = "dp_sgd", parameters: dict[str, object] | None = None) -> Step:
        """One call is one step of ours, its draw included."""
        ours = self.ours(method, parameters)
        return lambda: ours.take(self.inputs, self.targets)

    def step_with_open_noise(self) -> Step:
        """A step of ours with torch's noise, as the rivals have it."""
        ours = self.ours(secret=OpenNoise())
        return lambda: ours.take(self.inputs, self.targets)

    def step_of_rival(self, name: str, parameters: dict[str, object] | None = None) -> Step:
        """One call is one step of a rival; of `naive`, one on NAIVE_SAMPLES samples; `hooks_nhwc` is channels-last."""
        if name == "hooks_nhwc":
            by_hooks = OpacusStep(
                self.module().to(memory_format=torch.channels_last),  # type: ignore[call-overload]
                self.mechanism,
                learning_rate=LEARNING_RATE,
                mode="hooks",
            )
            return lambda: by_hooks.step(*_channels_last(*self.gathered(self._poisson_size())))
        rival = self.rival(name, parameters)
        if name == "naive":
            return lambda: rival.step(*self.gathered(NAIVE_SAMPLES))
        return lambda: rival.step(*self.gathered(self._poisson_size()))

    def step_of_non_private(self, memory_format: torch.memory_format = torch.contiguous_format) -> Step:
        """One call is one step of plain SGD."""
        contender = NonPrivateStep(self.module(), memory_format=memory_format)
        return lambda: contender.step(*self.gathered(self.batch))

    def gathered(self, size: int) -> tuple[Tensor, Tensor]:
        """A batch of that many records, drawn by index."""
        index = torch.randint(len(self.inputs), (size,), generator=self.draw).to(self.device)
        return self.inputs.index_select(0, index), self.targets.index_select(0, index)

    def _poisson_size(self) -> int:
        # The size of a Poisson batch is binomial; at these rates a Gaussian is near enough for a timing.
        return max(1, round(self.batch + sqrt(self.batch) * float(torch.randn((), generator=self.draw))))


def _channels_last(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return inputs.contiguous(memory_format=torch.channels_last), targets
