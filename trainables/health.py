"""Check of the machine and the model on public inputs: a failure that no record can cause gets an error of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from trainables.engine.batches import RAISED
from trainables.engine.layout import Layout
from trainables.errors import InfrastructureError, TrainableError
from trainables.model_gate import public_inputs
from trainables.scoring import SCORING_ROWS

__all__ = ["HealthCheck"]


class _Step(Protocol):
    def rehearse(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        """Do on PUBLIC samples what a step does on records, without noise, and forget it."""


class HealthCheck:
    """Check of one training. Its outcome depends on θ, public inputs and the machine, never on a record.

    A pass over records that raises becomes zero gradients or wrong answers. So without this check, a broken GPU would
    turn every gradient into zero, and the trial would spend its budget on noise.

    The check is unconditional: its moments follow from the steps taken, whether or not a pass over records has raised.
    A check that only such a pass triggers would fail a trial at a step that a record chose.

    Args:
        private_step: the steps of the training.
        initial: function that returns the model with its initial parameters, which are public.
        input_shape: shape of one input.
        classes: number of classes.
    """

    def __init__(
        self, private_step: _Step, *, initial: Callable[[], nn.Module], input_shape: tuple[int, ...], classes: int
    ) -> None:
        self._private_step = private_step
        self._initial = initial
        self._input_shape = input_shape
        self._inputs = public_inputs(input_shape)
        self._targets = torch.arange(len(self._inputs)) % classes
        self._checked: int | None = None
        self._scored = False

    def check(self, theta: Tensor, *, step: int, at_most_every: int = 0) -> None:
        """Compute a gradient of three public inputs at θ, and forget it. θ comes from charged steps.

        If θ is not finite, the trial has the worst score anyway, and nothing is checked.

        Args:
            theta: θ, shape (d,).
            step: number of steps taken.
            at_most_every: do nothing if the last check was less than this number of steps ago.

        Raises:
            InfrastructureError: the machine fails, at the initial parameters too.
            TrainableError: the model fails at θ, but not at its initial parameters.
        """
        if self._checked is not None and 0 <= step - self._checked < at_most_every:
            return
        self._checked = step
        error = self._failure(theta) if bool(theta.isfinite().all()) else None
        if error is None:
            return
        why = f"on public inputs ({type(error).__name__}). No record was involved."
        model = self._initial()
        if self._failure(Layout.of(model).flatten(model).to(theta.device)) is not None:
            raise InfrastructureError(
                "machine-failed",
                f"The machine failed {why} Check its memory and driver. If the sweep stops, resume it.",
            ) from error
        if self._failure(theta) is not None:  # otherwise the failure has passed
            raise TrainableError(
                "parameters-unusable",
                f"The model failed at step {step} {why} Clamp inside the model, or lower the learning rate.",
            ) from error

    def check_scoring(self, model: nn.Module) -> None:
        """Make one scoring pass over public inputs, at the first protected score of this process.

        Every protected pass has SCORING_ROWS rows. If they did not fit the memory, every answer would be wrong.

        Raises:
            InfrastructureError: the pass raised an error, at the initial parameters too.
            TrainableError: it raised an error at these parameters, but not at the initial ones.
        """
        parameters = list(model.parameters())
        if self._scored or not all(bool(parameter.isfinite().all()) for parameter in parameters):
            return
        error = self._scoring_failure(model)
        if error is not None:
            why = f"to score {SCORING_ROWS} public inputs ({type(error).__name__}). No record was involved."
            if self._scoring_failure(self._initial().to(parameters[0].device)) is not None:
                raise InfrastructureError(
                    "machine-failed",
                    f"The machine failed {why} Check its memory and driver. If the sweep stops, resume it.",
                ) from error
            raise TrainableError(
                "parameters-unusable", f"The model failed {why} Clamp inside the model, or lower the learning rate."
            ) from error
        self._scored = True

    def _scoring_failure(self, model: nn.Module) -> BaseException | None:
        """Return what a scoring pass of public inputs raises; None if it raises nothing."""
        device = next(model.parameters()).device
        try:
            with torch.no_grad():
                model(public_inputs(self._input_shape, SCORING_ROWS).to(device))
        except KeyboardInterrupt:
            raise
        except RAISED as error:
            return error
        return None

    def _failure(self, theta: Tensor) -> BaseException | None:
        """Return what the model or the machine raises for the public inputs at θ; None if it raises nothing."""
        try:
            self._private_step.rehearse(theta, self._inputs.to(theta.device), self._targets.to(theta.device))
        except (KeyboardInterrupt, InfrastructureError):  # such as another rank that was lost
            raise
        except RAISED as error:
            return error
        return None
