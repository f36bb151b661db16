"""Checks of a model before training: its logits have the right shape, and samples do not affect each other."""

from __future__ import annotations

from math import isfinite, nan
from typing import Final

import torch
from torch import Tensor, nn

from trainables.engine.unrolled import dropout_problem
from trainables.errors import GateError, HyperparameterError

__all__ = ["check_logits", "check_private", "public_inputs"]

# 1.9 and 3 are for models that convert inputs to integers. Every input in [0, 1) would become the same integer, 0.
_OUTLIERS: Final = (0.0, 1.9, 3.0, 1e3, -1e3, 1e30, nan)
_EXAMPLES: Final = 3
_SEED: Final = 0  # a public seed


def public_inputs(input_shape: tuple[int, ...], count: int = _EXAMPLES) -> Tensor:
    """Return `count` random inputs for checking or timing a model: floats in [0, 1), the same at every call."""
    return torch.rand((count, *input_shape), generator=torch.Generator().manual_seed(_SEED))


def check_logits(module: nn.Module, *, input_shape: tuple[int, ...], classes: int) -> None:
    """Raise HyperparameterError unless the model returns one finite number for each class and sample."""
    inputs = public_inputs(input_shape)
    with torch.no_grad():
        outputs = module(inputs)
    wanted = (len(inputs), classes)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted:
        got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        raise HyperparameterError(
            "model-output-shape",
            f"The model must return logits of shape {wanted} for {len(inputs)} inputs of shape {input_shape}, but it "
            f"returned {got}. For example, use nn.Linear(..., {classes}) as its last layer.",
        )
    labels = torch.arange(len(inputs)) % classes
    loss = float(nn.functional.cross_entropy(outputs.double(), labels))
    if not isfinite(loss):
        raise HyperparameterError(
            "model-output-not-finite",
            f"The model must return finite logits for inputs in [0, 1) (got the cross-entropy {loss}).",
        )


def check_private(module: nn.Module, *, input_shape: tuple[int, ...] | None = None) -> None:
    """Raise GateError if the output for one sample depends on other samples or on a hidden random stream.

    Layer types that are known to do so are refused. With `input_shape`, the model also gets random public inputs, first
    in one batch and then one by one. The outputs must be equal.
    """
    problems = [_problem_of_layer(name, layer) for name, layer in module.named_modules()]
    if not any(parameter.requires_grad for parameter in module.parameters()):
        problems.append(("model-not-trainable", "The model has no trainable parameter."))
    GateError.raise_any(problems)
    if input_shape is not None and _samples_mix(module, input_shape):
        raise GateError(
            "samples-mixed",
            f"The output of {type(module).__name__} for a sample must not depend on other samples or on earlier calls.",
        )


def _problem_of_layer(name: str, layer: nn.Module) -> tuple[str, str] | None:
    where = f"Layer {name!r} is {type(layer).__name__}"
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return "samples-mixed", f"{where}, which mixes samples. Use nn.GroupNorm or `normalization: group`."
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return "running-statistics", f"{where}, which stores statistics of the records. Set track_running_stats=False."
    return dropout_problem(name, layer)


def _samples_mix(module: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether the output for a random public sample depends on other samples, or a call changes a buffer.

    Outliers are tried too, because a model may mix samples only if a value exceeds some threshold.
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
    """Return whether an outlier changes the outputs of the other samples.

    The outlier is a sample multiplied by `odd`. If `odd` is not finite, it replaces all values of the sample.
    """
    mixed = inputs.clone()
    mixed[1] = odd * mixed[1] if isfinite(odd) else odd
    try:
        outputs = module(mixed)
    except (RuntimeError, IndexError, ValueError):
        return False  # a model may refuse illegal values, such as indices beyond the rows of an embedding
    others = [0, 2]
    return not torch.allclose(outputs[others], alone[others], rtol=1e-4, atol=1e-5)
