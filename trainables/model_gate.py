"""What every model must pass before it is trained: logits of the right shape, and samples that never meet."""

from __future__ import annotations

from math import isfinite, nan
from typing import Final

import torch
from torch import Tensor, nn

from trainables.engine.unrolled import dropout_problem
from trainables.errors import GateError, HyperparameterError

__all__ = ["check_logits", "check_private", "public_inputs"]

# 1.9 and 3 for a model that casts its inputs to numbers of rows: [0, 1) alone is row 0 everywhere.
_OUTLIERS: Final = (0.0, 1.9, 3.0, 1e3, -1e3, 1e30, nan)
_EXAMPLES: Final = 3
_SEED: Final = 0  # public, as all that is drawn with it


def public_inputs(input_shape: tuple[int, ...], count: int = _EXAMPLES) -> Tensor:
    """Random inputs for whatever a model is checked or timed on: floats in [0, 1), the same at every call.

    One maker for all, so that a model that passes one check is not refused by the numbers of the next.

    Args:
        input_shape: shape of one input, without the batch.
        count: how many.
    """
    return torch.rand((count, *input_shape), generator=torch.Generator().manual_seed(_SEED))


def check_logits(module: nn.Module, *, input_shape: tuple[int, ...], classes: int) -> None:
    """Refuses a model whose outputs are not one finite number for each class and sample.

    Args:
        module: the model.
        input_shape: shape of one input, without the batch.
        classes: number of classes.

    Raises:
        HyperparameterError: what it gives instead.
    """
    inputs = public_inputs(input_shape)
    with torch.no_grad():
        outputs = module(inputs)
    wanted = (len(inputs), classes)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted:
        got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        raise HyperparameterError(
            f"a model must give logits of shape (samples, classes), {wanted} for {len(inputs)} inputs of shape "
            f"{input_shape}; got {got}: let it end with one number a class, as nn.Linear(..., {classes}) gives them"
        )
    labels = torch.arange(len(inputs)) % classes
    loss = float(nn.functional.cross_entropy(outputs.double(), labels))
    if not isfinite(loss):
        raise HyperparameterError(
            f"a model must give finite logits; got a cross-entropy of {loss} on random inputs in [0, 1): look for a "
            "division by zero, a logarithm of a number below it, or weights that are too large"
        )


def check_private(module: nn.Module, *, input_shape: tuple[int, ...] | None = None) -> None:
    """Refuses a model whose output for one sample depends on another, or on a hidden random stream.

    Known layers are named. For the others, when `input_shape` is given, random public inputs are put through the
    model alone and in company: the output must be the same. Nothing private is touched.

    Args:
        module: the model.
        input_shape: shape of one input, without the batch.

    Raises:
        GateError: naming the layer, or saying that the outputs differed.
    """
    problems = [problem for name, layer in module.named_modules() if (problem := _problem_of_layer(name, layer))]
    if not any(parameter.requires_grad for parameter in module.parameters()):
        problems.append("the model has no trainable parameter")
    if problems:
        raise GateError("\n".join(problems))
    if input_shape is not None and _samples_meet(module, input_shape):
        raise GateError(
            f"{type(module).__name__} gives a sample another output in company than alone (or changes from call to "
            "call): per-sample clipping cannot bound such a model; make it treat every sample by itself"
        )


def _problem_of_layer(name: str, layer: nn.Module) -> str | None:
    where = f"layer {name!r} is {type(layer).__name__}"
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return f"{where}, which mixes the samples of a batch before the clip: use nn.GroupNorm, or normalization: group"
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return f"{where} with running statistics of the records, which no noise covers: set track_running_stats=False"
    return dropout_problem(name, layer)


def _samples_meet(module: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Whether a random public sample gives another output in company than alone, or a call changes a buffer.

    The company is of its own kind, and then out of the ordinary: a model that divides by the largest value of a batch,
    should that pass some threshold, is found by no ordinary one.
    """
    inputs = public_inputs(input_shape)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        together = module(inputs)
        alone = torch.cat([module(one[None]) for one in inputs])
        disturbed = any(_disturbs(module, inputs, alone, odd) for odd in _OUTLIERS)
    stateful = any(not torch.equal(buffer, buffers[name]) for name, buffer in module.named_buffers())
    return stateful or disturbed or not torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


def _disturbs(module: nn.Module, inputs: Tensor, alone: Tensor, odd: float) -> bool:
    """Whether a sample full of `odd` numbers changes what the others give."""
    mixed = inputs.clone()
    mixed[1] = odd * mixed[1] if isfinite(odd) else odd
    try:
        outputs = module(mixed)
    except (RuntimeError, IndexError, ValueError):
        return False  # a model may refuse what is out of its range, a number of a row that is not there
    others = [0, 2]
    return not torch.allclose(outputs[others], alone[others], rtol=1e-4, atol=1e-5)
