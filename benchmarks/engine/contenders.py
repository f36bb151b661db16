"""The contenders of the engine benchmark except Opacus: our step, the non-private step, torch.func, the naive loop.

Every contender draws the indices of a batch and gathers it. Ours draws as in a training, from the secret generator. The
others draw as cheaply as torch can: private ones a batch whose size varies as in a Poisson sample, the non-private one
a batch of fixed size.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables.engine.layout import Layout, flat
from trainables.engine.per_sample import pass_samples
from trainables.engine.random import SecureGenerator
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Mechanism, PrivateStep, Stages
from trainables.engine.update import Sgd
from trainables.methods import METHODS, from_parameters

LEARNING_RATE = 0.01


class PrivateContender(Protocol):
    """A private step that can be checked and timed."""

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step on a batch."""
        ...

    def private_gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the noised mean of the clipped gradients, shape (d,)."""
        ...


def stages_of(method: str, parameters: dict[str, object], layout: Layout, *, batch_size: int) -> Stages:
    """Return the stages of a method, as in a training."""
    hyperparameters = from_parameters(method, parameters, batch_size=batch_size, steps=1000, noise_multiplier=1.0)
    return METHODS[method].stages(hyperparameters, layout)


class OpenNoise(SecureGenerator):
    """The rivals' noise, torch.randn, which is neither secret nor in double precision."""

    def add_normal(self, total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """Return `total` plus float32 noise."""
        noise = torch.randn(total.shape, dtype=dtype, device=total.device)
        return noise.mul_(scale).add_(total)


class Ours:
    """The engine's step with the stages of a method and the secret generator."""

    def __init__(
        self,
        module: nn.Module,
        mechanism: Mechanism,
        *,
        example: Tensor,
        method: str = "dp_sgd",
        parameters: dict[str, object] | None = None,
        secret: SecureGenerator | None = None,
    ) -> None:
        layout = Layout.of(module)
        self.theta = layout.flatten(module)
        self.source = per_sample_source(
            module, layout, example=example, gpu_pass=pass_samples(mechanism.expected_batch_size)
        )
        self._mechanism = mechanism
        self._make_step = partial(
            PrivateStep,
            stages=stages_of(method, parameters or {}, layout, batch_size=round(mechanism.expected_batch_size)),
            source=self.source,
            update=Sgd(self.theta),
            secret=secret or SecureGenerator(),
            public=torch.Generator().manual_seed(0),
        )
        self._step = self._make_step(mechanism=mechanism)

    def take(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step, which draws its batch from all records."""
        self.theta = self._step.take(self.theta, inputs, targets, learning_rate=LEARNING_RATE)

    def private_gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the private gradient of a given batch, shape (d,)."""
        given = self._make_step(mechanism=replace(self._mechanism, sample_rate=1.0))
        return given.private_gradient(self.theta, inputs, targets, learning_rate=LEARNING_RATE)


class _Written:
    """A private step with torch alone; a subclass computes the clipped sum."""

    def __init__(self, module: nn.Module, mechanism: Mechanism) -> None:
        self._module, self._mechanism = module, mechanism
        self._layout = Layout.of(module)
        self.theta: Tensor = self._layout.flatten(module)

    def clipped_sum(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the clipped gradients, shape (d,)."""
        raise NotImplementedError

    def private_gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the noised mean, shape (d,)."""
        noise = self._mechanism.noise_scale * torch.randn_like(self.theta)
        return (self.clipped_sum(inputs, targets) + noise) / self._mechanism.expected_batch_size

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Update the vector of parameters."""
        self.theta = self.theta - LEARNING_RATE * self.private_gradient(inputs, targets)

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(self._module, parameters, (x[None],)), y[None])


class VmapStep(_Written):
    """A step in torch.func: vmap(grad) over the samples of the batch."""

    def clipped_sum(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the clipped gradients, shape (d,)."""
        gradients = vmap(grad(self._loss), in_dims=(None, 0, 0))(self._layout.views(self.theta), inputs, targets)
        parts = [gradients[name].flatten(1) for name in self._layout.names]
        norms = torch.stack([part.norm(dim=1) for part in parts]).norm(dim=0)
        factors = (self._mechanism.max_grad_norm / norms).clamp(max=1.0)
        return flat(factors @ part for part in parts)


class NaiveStep(_Written):
    """A loop over samples in Python, as in the code of the authors."""

    def clipped_sum(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the clipped gradients, shape (d,)."""
        total = torch.zeros_like(self.theta)
        for x, y in zip(inputs, targets, strict=True):
            views = {name: view.requires_grad_() for name, view in self._layout.views(self.theta.clone()).items()}
            gradient = flat(torch.autograd.grad(self._loss(views, x, y), list(views.values())))
            total += gradient * (self._mechanism.max_grad_norm / gradient.norm()).clamp(max=1.0)
        return total


class NonPrivateStep:
    """Plain SGD on the same module; `memory_format` is the layout of images and kernels."""

    def __init__(self, module: nn.Module, *, memory_format: torch.memory_format = torch.contiguous_format) -> None:
        self._module: nn.Module = module.to(memory_format=memory_format)  # type: ignore[call-overload]
        self._format = memory_format
        self._optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Run forward, backward and update."""
        self._optimizer.zero_grad()
        outputs = self._module(inputs.contiguous(memory_format=self._format))
        nn.functional.cross_entropy(outputs, targets).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
