"""Stage 3, the clip: the sum over the batch of g_i / max(1, ‖g_i‖₂ / C), one norm over ALL parameters of a sample."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from trainables.engine.per_sample import PerSampleGradients

__all__ = ["clip_factors", "clipped_sum"]


def clip_factors(norms: Tensor, max_grad_norm: float) -> Tensor:
    """min(1, C / ‖g_i‖) for each sample, and 0 where the norm is not finite.

    A gradient that is NaN or infinite has no clipped version. Left in, one record could turn the whole model into
    NaN, which no noise hides; so that record contributes nothing in this step.

    Args:
        norms: ‖g_i‖₂, shape (B,).
        max_grad_norm: C.

    Returns:
        Factors in [0, 1], shape (B,).
    """
    factors = (max_grad_norm / norms).clamp(max=1.0)
    # A subnormal factor has few digits left and may be rounded up by half of itself.
    usable = norms.isfinite() & (factors >= torch.finfo(factors.dtype).tiny)
    return torch.where(usable, factors, 0.0)


def clipped_sum(chunks: Iterable[PerSampleGradients], max_grad_norm: float, *, like: Tensor) -> Tensor:
    """Σ_i ḡ_i over all samples of all chunks, in float64.

    In float32 the sum itself would break the bound: once it is large, small terms are rounded away, and one record more
    decides for all later ones whether they are (Casacuberta et al. 2022; twice C was reached with 4 096 records). In
    float64 what is left of that is below 1e-6 C for a million records.

    Args:
        chunks: the per-sample gradients, a part of the batch at a time; none for an empty batch.
        max_grad_norm: C.
        like: a vector of shape (d,), for shape and device.

    Returns:
        Shape (d,), float64. One sample more or less changes it by at most C in L2 norm.
    """
    total = torch.zeros_like(like, dtype=torch.float64)
    for gradients in chunks:
        total += gradients.weighted_sum(clip_factors(gradients.norms(), max_grad_norm))
    return total
