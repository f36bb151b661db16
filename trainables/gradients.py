"""Source of a model's per-sample gradients, compared with autograd and tried on hostile inputs before any record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from search_spaces import Words
from trainables.checks import refuse_illegal
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import PASS, PerSampleSource
from trainables.engine.sources import per_sample_source
from trainables.engine.task_losses import summed_loss
from trainables.model_gate import hostile_inputs, public_inputs, refuse_raising
from trainables.tasks import CLASSIFICATION

__all__ = ["gradient_source"]

_AUTOCAST: Final[Mapping[str, torch.dtype | None]] = {"float32": None, "bfloat16": torch.bfloat16}


def gradient_source(
    model: nn.Module,
    layout: Layout,
    input_shape: tuple[int, ...],
    *,
    precision: str,
    task: str = CLASSIFICATION,
    gpu_pass: int = PASS,
) -> PerSampleSource:
    """Return the source of a model's per-sample gradients, after comparing it with autograd on public inputs.

    Raises:
        HyperparameterError: the precision is not 'float32' or 'bfloat16'.
        GateError: the model's per-sample gradients cannot be computed in this precision, or raise for a hostile input.
    """
    refuse_illegal("precision", precision, Words(tuple(_AUTOCAST)))
    device = next(model.parameters()).device
    a, b, c = public_inputs(input_shape).to(device)
    source = per_sample_source(
        model,
        layout,
        # A model may do something else with inputs of at least 1, or with whole numbers.
        example=torch.stack([a, b, c, a, 3 * b, (4 * c).floor()]),
        autocast=_AUTOCAST[precision],
        loss=summed_loss(task),
        gpu_pass=gpu_pass,
    )
    points = Points(centre=layout.flatten(model))

    def run(x: Tensor) -> None:
        list(source.chunks(points, x, torch.zeros(len(x), dtype=torch.int64, device=device)))

    refuse_raising(run, hostile_inputs(input_shape).to(device))
    return source
