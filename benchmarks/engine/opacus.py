"""The private steps of Opacus as its users write them, but without its loader, and DPLIS by its hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from trainables.engine.layout import Layout, flat
from trainables.engine.objective import Objective
from trainables.engine.step import Mechanism

# Opacus sets hooks where the inputs need no gradient, and writes gradients channels-first; torch warns about both.
warnings.filterwarnings("ignore", message="Full backward hook is firing")
warnings.filterwarnings("ignore", message="grad and param do not obey")


class OpacusStep:
    """A step with explicit per-sample gradients, which hooks write."""

    def __init__(self, module: nn.Module, mechanism: Mechanism, *, learning_rate: float) -> None:
        self._wrapped: Any = GradSampleModule(module)
        self.optimizer: Any = DPOptimizer(
            torch.optim.SGD(self._wrapped.parameters(), lr=learning_rate),
            noise_multiplier=mechanism.noise_multiplier,
            max_grad_norm=mechanism.max_grad_norm,
            expected_batch_size=mechanism.expected_batch_size,
        )
        self._criterion = nn.CrossEntropyLoss()

    def backward(self, inputs: Tensor, targets: Tensor) -> None:
        """Write the per-sample gradients of a batch to the parameters."""
        self.optimizer.zero_grad()
        self._criterion(self._wrapped(inputs), targets).backward()

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Clip, noise and update."""
        self.backward(inputs, targets)
        self.optimizer.step()

    def private_gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the noised mean that a step would use, shape (d,)."""
        self.backward(inputs, targets)
        self.optimizer.pre_step()
        return flat(parameter.grad for parameter in self.optimizer.params)


class GhostStep(OpacusStep):
    """A step with ghost clipping: norms in a first backward pass, the clipped sum in a second."""

    def __init__(self, module: nn.Module, mechanism: Mechanism, *, learning_rate: float) -> None:
        # The threshold is in the module and the noise scale in the optimizer; both have the same C here.
        self._wrapped = GradSampleModuleFastGradientClipping(module, max_grad_norm=mechanism.max_grad_norm)
        self.optimizer = DPOptimizerFastGradientClipping(
            torch.optim.SGD(self._wrapped.parameters(), lr=learning_rate),
            noise_multiplier=mechanism.noise_multiplier,
            max_grad_norm=mechanism.max_grad_norm,
            expected_batch_size=mechanism.expected_batch_size,
        )
        self._criterion = DPLossFastGradientClipping(self._wrapped, self.optimizer, nn.CrossEntropyLoss())


class HooksPasses(OpacusStep):
    """DPLIS with K passes of the hooks of Opacus, whose own accumulation would clip K·B separate samples.

    Each pass writes a perturbed point into the parameters and takes the per-sample gradients there. These are added in
    place, and their mean is clipped once.

    Args:
        module: the model.
        mechanism: the mechanism of the step.
        learning_rate: the learning rate of the step.
        objective: gives the perturbed points.
        public: draws the perturbations.
    """

    def __init__(
        self,
        module: nn.Module,
        mechanism: Mechanism,
        *,
        learning_rate: float,
        objective: Objective,
        public: torch.Generator,
    ) -> None:
        self._module, self._layout = module, Layout.of(module)
        super().__init__(module, mechanism, learning_rate=learning_rate)
        scale = learning_rate * mechanism.noise_scale / mechanism.expected_batch_size
        self._points: Callable[[Tensor], Any] = lambda theta: objective.points(theta, noise_scale=scale, public=public)

    def backward(self, inputs: Tensor, targets: Tensor) -> None:
        """Write the averaged per-sample gradients of a batch to the parameters."""
        theta = self._layout.flatten(self._module)
        points = self._points(theta)
        self.optimizer.zero_grad()
        parameters = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
        totals: list[Any] = [None] * len(parameters)
        for place in range(len(points)):
            self._layout.write(points.theta(place), self._module)
            self._criterion(self._wrapped(inputs), targets).backward()
            for index, parameter in enumerate(parameters):
                part, parameter.grad_sample = parameter.grad_sample, None  # type: ignore[attr-defined]
                totals[index] = part if totals[index] is None else totals[index].add_(part)
        self._layout.write(theta, self._module)
        for parameter, total in zip(parameters, totals, strict=True):
            parameter.grad_sample = total.mul_(points.scale)  # type: ignore[attr-defined]
