"""Mean loss over PUBLIC records as a function of the parameters θ, in double precision, with its gradient."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan, nan

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from trainables.engine.layout import Layout
from trainables.engine.unrolled import unrolled
from trainables.errors import DatasetError, TrainableError

__all__ = ["PublicLoss", "Score"]


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy and accuracy over the records at one θ. The accuracy is NaN if the loss is NaN."""

    loss: float
    accuracy: float


class PublicLoss:
    """Mean cross-entropy L(θ) over PUBLIC records, and its gradient, without noise.

    The model is copied in double precision and stays on its device. `inputs` has the shape (n, *shape), and `targets`
    has the labels, shape (n,). A forward pass has at most `chunk` records, which limits the memory.
    """

    def __init__(self, module: nn.Module, inputs: Tensor, targets: Tensor, *, chunk: int = 2048) -> None:
        if not (len(inputs) == len(targets) and len(inputs) > 0):
            raise DatasetError(
                "records-empty",
                "The loss needs at least one record, and a label for each record (got "
                f"{len(inputs)} records and {len(targets)} labels).",
            )
        self._module = copy.deepcopy(module).double().eval()
        if next(self._module.parameters()).is_cuda:  # cuDNN has no backward pass of an LSTM, GRU or RNN in eval mode
            self._module = unrolled(self._module)
        self.layout = Layout.of(self._module)
        self.theta = self.layout.flatten(self._module)
        if not bool(self.theta.isfinite().all()):
            raise TrainableError("parameters-not-finite", "The parameters of the model must be finite.")
        device = self.theta.device
        self._inputs = (inputs.double() if inputs.is_floating_point() else inputs).to(device)
        self._targets = targets.to(device)
        self._chunk = chunk

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._targets)

    def score(self, theta: Tensor) -> Score:
        """Return loss and accuracy at θ, shape (d,)."""
        loss, correct = 0.0, 0
        with torch.no_grad():
            for logits, targets in self._logits(theta):
                loss += float(cross_entropy(logits, targets, reduction="sum"))
                correct += int((logits.argmax(1) == targets).sum())
        mean = loss / len(self)
        return Score(loss=mean, accuracy=nan if isnan(mean) else correct / len(self))

    def loss(self, theta: Tensor) -> float:
        """Return L(θ) at θ, shape (d,)."""
        return self.score(theta).loss

    def gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient of L at θ, shape (d,)."""
        point = theta.detach().requires_grad_()
        total = torch.zeros_like(theta)
        for logits, targets in self._logits(point):
            (part,) = torch.autograd.grad(cross_entropy(logits, targets, reduction="sum"), point)
            total += part
        return total / len(self)

    def _logits(self, theta: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        views = self.layout.views(theta)
        chunks = (torch.split(each, self._chunk) for each in (self._inputs, self._targets))
        for inputs, targets in zip(*chunks, strict=True):
            yield functional_call(self._module, views, (inputs,)), targets
