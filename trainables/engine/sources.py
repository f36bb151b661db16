"""Function that chooses the source of per-sample gradients: the fastest one that is exact on public inputs."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from math import isfinite
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.engine.accelerator import full_float32
from trainables.engine.bookkeeping import BookkeepingSource, UnknownLayerError, layers_of
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource, is_linear_stack
from trainables.engine.objective import Points
from trainables.engine.per_sample import PASS, Loss, PerSampleSource, TorchFuncSource, cross_entropy
from trainables.engine.unrolled import unrolled
from trainables.errors import GateError

__all__ = ["per_sample_source"]

_LOG = logging.getLogger(__name__)
_TOLERANCE: Final = 1e-3  # far above rounding in float32, far below the error of a wrong rule


def per_sample_source(
    module: nn.Module,
    layout: Layout,
    *,
    example: Tensor | None = None,
    autocast: torch.dtype | None = None,
    loss: Loss = cross_entropy,
    gpu_pass: int = PASS,
) -> PerSampleSource:
    """Return the fastest source that works for a model: stacked linear layers, book-keeping, or torch.func.

    `example` has a few PUBLIC inputs, shape (N, *input_shape). On these inputs, the source must agree with autograd for
    each sample. None skips this check, which known models do not need. `autocast` is the dtype of mixed
    precision, or None. `loss` is the sum of the samples' losses. `gpu_pass` is the largest number of samples of a pass
    on a GPU.

    Raises:
        GateError: no source agrees with autograd on the example.
    """
    if autocast is None and isinstance(module, nn.Sequential) and is_linear_stack(module):
        return LinearStackSource(module, layout, loss, gpu_pass=gpu_pass)
    full_float32()
    name, reason = type(module).__name__, "the gradients differ from autograd's on public random inputs"
    try:
        hooked = unrolled(module)
        layers = layers_of(hooked, layout)
        if example is not None:
            _refuse_decisions(hooked, example)
        for guard in (False, True):
            source = BookkeepingSource(hooked, layout, layers, loss, guard=guard, autocast=autocast, gpu_pass=gpu_pass)
            try:
                if example is None or _holds(replace(source, loss=_probe, autocast=None), module, layout, example):
                    return source
            except (UnknownLayerError, RuntimeError, ValueError, LookupError) as error:
                # torch raises these errors if a tensor is changed in place, or if the first axis is not the samples
                reason = str(error).partition("\n")[0]
    except UnknownLayerError as error:
        reason = str(error)
    if autocast is not None:
        raise GateError(
            "mixed-precision-unsupported",
            f"{name} does not support mixed precision ({reason}). Use `precision: float32`.",
        )
    fallback = TorchFuncSource(unrolled(module), layout, loss, gpu_pass=gpu_pass)
    try:
        right = example is None or _holds(replace(fallback, loss=_probe), module, layout, example)
    except (RuntimeError, ValueError, LookupError) as error:
        right, reason = False, f"{reason}; {str(error).partition(chr(10))[0]}"
    if not right:
        raise GateError(
            "gradients-not-per-sample",
            f"The per-sample gradients of {name} cannot be computed ({reason}). A model must compute each sample "
            "independently of the others, and in the same way at every call.",
        )
    _LOG.warning(
        "torch.func computes the gradients of %s one sample at a time, which is slower. Reason: %s", name, reason
    )
    return fallback


def _refuse_decisions(module: nn.Module, example: Tensor) -> None:
    """Refuse a model that branches on the content of a batch (`if x.max() > 1`).

    In such a model, one record can change the outputs for all other records.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # operations without a batching rule are slower but correct
            vmap(lambda one: module(one[None])[0])(example)
    except RuntimeError as error:
        raise UnknownLayerError(str(error).partition("\n")[0]) from error


def _probe(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a loss that is used for checks. It is defined for outputs of any shape."""
    return (outputs * targets).sum()


def _holds(source: BookkeepingSource | TorchFuncSource, module: nn.Module, layout: Layout, example: Tensor) -> bool:
    """Return whether the source's norms and sums agree with autograd: at two points near the initial θ, and at another.

    At other weights, nothing hides behind initial weights of 0.
    """
    theta = layout.flatten(module)
    two = Points(centre=theta, scale=0.5, seeds=(1, 2), spread=1e-3, decay=0.5)
    one = Points(centre=layout.elsewhere(theta, seed=0), decay=0.5)
    return all(_holds_at(points, source, module, layout, example) for points in (two, one))


def _holds_at(
    points: Points, source: BookkeepingSource | TorchFuncSource, module: nn.Module, layout: Layout, example: Tensor
) -> bool:
    theta = points.centre
    with torch.no_grad():
        outputs = functional_call(module, layout.views(theta), (example,))
    public = torch.Generator().manual_seed(0)
    targets = torch.randn(outputs.shape, generator=public, dtype=theta.dtype).to(theta.device)
    (gradients,) = replace(source, chunk_bytes=2**60).chunks(points, example, targets)
    norms, compared = gradients.group_norms(), 0
    for index in range(len(example)):
        x, y = example[index : index + 1], targets[index : index + 1]
        parts = [_gradient(module, layout, points.theta(place), x, y) for place in range(len(points))]
        expected = points.scale * torch.stack(parts).sum(0) + points.decay * theta
        chosen = torch.zeros_like(norms)
        chosen[:, index] = 1.0
        found = torch.zeros_like(expected)
        gradients.add_weighted_sum(found, chosen, finite=norms.isfinite().all(0), block=None)
        length = float(expected.norm())
        norm = float(norms[:, index].square().sum().sqrt())
        if not isfinite(length):
            if isfinite(norm):  # such a gradient adds nothing to a batch
                return False
            continue
        near = _TOLERANCE * length
        if not (float((found - expected).norm()) <= near and abs(norm - length) <= near):  # so that NaN fails
            return False
        compared += 1
    return compared > 0


def _gradient(module: nn.Module, layout: Layout, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient that autograd computes, shape (d,), float64."""
    leaf = theta.clone().requires_grad_()
    with torch.enable_grad():
        loss = _probe(functional_call(module, layout.views(leaf), (x,)), y)
    (gradient,) = torch.autograd.grad(loss, leaf, materialize_grads=True)
    return gradient.double()
