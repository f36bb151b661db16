"""The one step of a perturbed minimum, in the place of `PrivateStep`: a Gaussian mechanism on all records at once."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from trainables.convex.logistic import problem_of
from trainables.convex.noise import TOLERANCE, gradient_norm
from trainables.convex.objective import objective_perturbation
from trainables.convex.output import output_perturbation, require_convex
from trainables.engine.random import Generator
from trainables.engine.step import Mechanism
from trainables.errors import GateError
from trainables.methods.objective_perturbation import ObjectivePerturbation
from trainables.methods.output_perturbation import OutputPerturbation

__all__ = ["MinimumStep"]


class MinimumStep:
    """Step that returns a perturbed minimum, whatever θ was before. The caller must charge for it before it is taken.

    Formal guarantee: under add/remove-one adjacency of records, the step is dominated by a Gaussian mechanism with the
    mechanism's noise multiplier at sample rate 1.

    Attributes:
        noise_draws: number of steps taken.

    Raises:
        GateError: the loss is not that of logistic regression, a sample is a user, or the sample rate is not 1.
    """

    def __init__(
        self,
        settings: OutputPerturbation,
        *,
        mechanism: Mechanism,
        model: str,
        unit: str,
        classes: int,
        outputs: int,
        secret: Generator,
    ) -> None:
        require_convex(model)
        if unit != "record" or outputs != classes or classes < 2:
            raise GateError(
                "convex-unsupported",
                f"Output and objective perturbation need `unit: record` and a classification (got `unit: {unit}` "
                f"and {outputs} outputs for {classes} classes).",
            )
        if mechanism.sample_rate != 1:
            raise GateError(
                "convex-one-step",
                "Output and objective perturbation read all records, so the sample rate must be 1 (got "
                f"{mechanism.sample_rate!r}).",
            )
        self._settings, self._classes, self._secret = settings, classes, secret
        self.mechanism = replace(mechanism, max_grad_norm=gradient_norm(settings.feature_clip))
        self.noise_draws = 0

    def take(
        self, theta: Tensor, inputs: Tensor, targets: Tensor, *, learning_rate: float, users: Tensor | None = None
    ) -> Tensor:
        """Return the perturbed minimum as the parameters of a linear layer: its weights, then its biases, shape (d,).

        The arguments are those of `PrivateStep.take`. `learning_rate` and `users` are not used.
        """
        del learning_rate, users
        settings, mechanism = self._settings, self.mechanism
        problem = problem_of(
            inputs.cpu(),
            targets.cpu(),
            classes=self._classes,
            clip=settings.feature_clip,
            normaliser=round(mechanism.expected_batch_size),
            weight_decay=settings.weight_decay,
        )
        perturbed = objective_perturbation if isinstance(settings, ObjectivePerturbation) else output_perturbation
        found = perturbed(
            problem,
            clip=settings.feature_clip,
            noise_multiplier=mechanism.noise_multiplier,
            tolerance=TOLERANCE * gradient_norm(settings.feature_clip),
            generator=self._secret,
        )
        self.noise_draws += 1
        rows = found.reshape(self._classes, -1)
        return torch.cat([rows[:, :-1].reshape(-1), rows[:, -1]]).to(theta)

    def rehearse(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        """Compute a gradient of PUBLIC records, and forget it. No random number is drawn."""
        clip, size = self._settings.feature_clip, len(inputs)
        flat = inputs.cpu().reshape(size, prod(inputs.shape[1:]))
        problem = problem_of(flat, targets.cpu(), classes=self._classes, clip=clip, normaliser=size, weight_decay=1.0)
        problem.gradient(theta.cpu().double())
