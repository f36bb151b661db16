"""Stage 3, the clip: each sample adds a vector of length at most C to the sum, in one of three ways."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Final

import torch
from torch import Tensor

from trainables.checks import legal_words
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleGradients

__all__ = ["CLIPPINGS", "clip_factors", "clipped_sum", "stretch"]

CLIPPINGS: Final = legal_words("clipping")
"""Ways to clip a sample's gradient to length C."""

# γ of automatic clipping: keeps the factor of a vanishing gradient bounded (Bu et al. 2022, section 4).
_STABILITY: Final = 0.01
_LEAST_FACTOR: Final = 1e-30


def clip_factors(group_norms: Tensor, max_grad_norm: float, *, clipping: str = "flat") -> Tensor:
    """Return the factors of each group of each sample's gradient, so that the whole is at most C long.

    'flat' is min(1, C / ‖g_i‖), one norm over all parameters (Abadi et al. 2016). 'automatic' is C / (‖g_i‖ + 0.01),
    which brings every gradient near length C (Bu et al. 2022). 'per_layer' clips each of the G groups to C/√G
    (McMahan et al. 2018). The sensitivity of the sum is C in each.

    A gradient that is NaN or infinite has no clipped version. One record could turn the whole model into NaN, which no
    noise hides, so that record contributes nothing in this step.

    Args:
        group_norms: the norm of each group, shape (G, B), float64.
        max_grad_norm: C.
        clipping: one of CLIPPINGS.

    Returns:
        Factors of at least 0, shape (G, B), float64.
    """
    whole = group_norms[0] if len(group_norms) == 1 else group_norms.square().sum(0).sqrt()
    if clipping == "per_layer":
        factors = (max_grad_norm / sqrt(len(group_norms)) / group_norms).clamp_(max=1.0)
        factors = torch.where(whole.isfinite(), factors, 0.0)
    elif clipping == "automatic":
        factors = (max_grad_norm / (whole + _STABILITY)).expand_as(group_norms)
    else:
        factors = (max_grad_norm / whole).clamp_(max=1.0).expand_as(group_norms)
    # Tiny factors are dropped too: as a float32 they keep few digits and may be rounded up by half. A record is left
    # out as a whole, because weight decay is added by these factors, and a group's share of it without the group's
    # gradient may be longer than C.
    return torch.where((factors >= _LEAST_FACTOR).all(0), factors, 0.0)


def stretch(points: Points, max_grad_norm: float, *, clipping: str) -> float:
    """Return the largest length of a sample's term, in units of C, when weight decay is added apart; 1 without decay.

    With decay the clipped gradient is w_i·(g_i + λθ), at most C long, and the sum over the samples is of w_i·g_i, at
    most C + w_i·λ‖θ‖ long. w_i is at most 1, and C / 0.01 in automatic clipping. θ is the same for neighbouring
    batches.
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
    """Return Σ_i ḡ_i over all samples of all chunks.

    Args:
        chunks: the per-sample gradients, a part of the batch at a time; none for an empty batch.
        max_grad_norm: C.
        like: a vector of shape (d,), for shape, dtype and device.
        samples: B; if a chunk has fewer, the chunks are added in float64.
        counted: how many of them count; the later ones only fill the rows of the passes, and add 0. None: all.
        clipping: one of CLIPPINGS.
        block: samples of a float32 block (`trainables.engine.sums`); None sums in float64.

    Returns:
        Shape (d,), float64 or the dtype of `like`. One sample more or less changes it by at most C in L2 norm; where
        there is a `block` by at most (1 + slack)·C.
    """
    total: Tensor | None = None
    left = samples if counted is None else counted
    for gradients in chunks:
        norms = gradients.group_norms()
        if total is None:
            short = block is not None and norms.shape[1] == samples
            total = torch.zeros_like(like, dtype=like.dtype if short else torch.float64)
        factors = clip_factors(norms, max_grad_norm, clipping=clipping)
        if left < norms.shape[1]:
            factors = factors.clone()
            factors[:, max(left, 0) :] = 0.0
        left -= norms.shape[1]
        gradients.add_weighted_sum(total, factors, block=block)
    return torch.zeros_like(like) if total is None else total
