"""Stage 3, the clip: each sample adds a vector of length at most C to the sum."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Final

import torch
from torch import Tensor

from trainables.checks import legal_words
from trainables.engine.accelerator import full_float32
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleGradients

__all__ = ["CLIPPINGS", "clip_factors", "clipped_sum", "stretch"]

CLIPPINGS: Final = legal_words("clipping")
"""Ways to clip a sample's gradient to length C."""

_STABILITY: Final = 0.01  # γ of automatic clipping, which bounds the factor of a small gradient (Bu et al. 2022, 4)
_LEAST_FACTOR: Final = 1e-30


def clip_factors(group_norms: Tensor, max_grad_norm: float, *, clipping: str = "flat") -> Tensor:
    """Return a clip factor of at least 0 for each parameter group of each sample's gradient, shape (G, B), float64.

    After each group is multiplied by its factor, a sample's gradient is at most C long. So the sensitivity is C:

    - 'flat': min(1, C / ‖g_i‖), one norm over all parameters (Abadi et al. 2016).
    - 'automatic': C / (‖g_i‖ + 0.01), which brings every gradient near length C (Bu et al. 2022).
    - 'per_layer': each of the G groups is clipped to C/√G (McMahan et al. 2018).

    A gradient that is NaN or infinite gets the factor 0. Otherwise one record could turn the whole model into NaN,
    which no noise hides. C is `max_grad_norm`, and `group_norms` has the shape of the result.
    """
    whole = group_norms[0] if len(group_norms) == 1 else group_norms.square().sum(0).sqrt()
    if clipping == "per_layer":
        factors = (max_grad_norm / sqrt(len(group_norms)) / group_norms).clamp_(max=1.0)
        factors = torch.where(whole.isfinite(), factors, 0.0)
    elif clipping == "automatic":
        factors = (max_grad_norm / (whole + _STABILITY)).expand_as(group_norms)
    else:
        factors = (max_grad_norm / whole).clamp_(max=1.0).expand_as(group_norms)
    # A tiny factor becomes 0 too, because rounding it to float32 may increase it by half. If one group of a sample gets
    # 0, all its groups do: the factors also multiply the weight decay, which alone may be longer than C.
    return torch.where((factors >= _LEAST_FACTOR).all(0), factors, 0.0)


def stretch(points: Points, max_grad_norm: float, *, clipping: str) -> float:
    """Return a bound of ‖w_i·g_i‖ / C, where g_i is a sample's gradient and w_i is its clip factor.

    The bound is 1 without weight decay. With decay, the clip bounds w_i·(g_i + λθ) by C, but w_i·g_i and the decay are
    added separately. So w_i·g_i is at most C + w_i·λ‖θ‖ long. w_i is at most 1, or C / 0.01 for automatic clipping. The
    bound is the same for neighbouring batches, because it depends on θ and not on the batch.
    """
    if points.decay == 0:
        return 1.0
    largest = max_grad_norm / _STABILITY if clipping == "automatic" else 1.0
    return 1.0 + largest * points.decay * float(points.centre.double().norm()) / max_grad_norm


def clipped_sum(
    chunks: Iterable[PerSampleGradients],
    max_grad_norm: float,
    *,
    like: Tensor,
    samples: int,
    counted: int | None = None,
    clipping: str = "flat",
    block: int | None = None,
) -> Tensor:
    """Return the sum of the clipped gradients of all samples in all chunks, shape (d,), float64 or the dtype of `like`.

    Adding or removing one sample changes the sum by at most C in L2 norm, or (1 + slack)·C if `block` is set.

    Args:
        chunks: per-sample gradients of the batch, a chunk of samples at a time; an empty batch has no chunks.
        max_grad_norm: C.
        like: vector with the shape, dtype and device of θ.
        samples: B. If B samples need several chunks, the chunks are added in float64.
        counted: number of samples that are added. The later samples are padding and add 0. None adds all samples.
        clipping: one of CLIPPINGS.
        block: number of samples in a float32 block (`trainables.engine.sums`); None sums in float64.
    """
    total: Tensor | None = None
    left = samples if counted is None else counted
    for gradients in chunks:
        full_float32()  # the pass of the chunk may have switched it off
        norms = gradients.group_norms()
        if total is None:
            short = block is not None and norms.shape[1] >= samples
            total = torch.zeros_like(like, dtype=like.dtype if short else torch.float64)
        factors = clip_factors(norms, max_grad_norm, clipping=clipping)
        if left < norms.shape[1]:
            factors = factors.clone()
            factors[:, max(left, 0) :] = 0.0
        left -= norms.shape[1]
        gradients.add_weighted_sum(total, factors, finite=norms.isfinite().all(0), block=block)
    return torch.zeros_like(like) if total is None else total
