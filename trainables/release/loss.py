"""Debiased cross-entropy for labels that went through randomised response.

Randomised response with k classes reports label j for label i with the probability P[i, j], which is p for i = j and q
for any other j, p + (k − 1)q = 1. So P = (p − q)·I + q·1·1ᵀ, and P⁻¹ = (I − q·1·1ᵀ)/(p − q). With the weights
w_j = row j of P⁻¹, E[Σ_c w_{ỹ, c}·ℓ(c)] = ℓ(y) for every loss ℓ (Natarajan et al. 2013).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["debiased_accuracy", "debiased_cross_entropy", "label_weights"]


def label_weights(kept: float, classes: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return P⁻¹, shape (k, k): the weight of class c for the reported label j at [j, c]. Rows sum to 1.

    `kept` is the probability that a label is reported as it is, above 1/k. 1 gives the identity.
    """
    changed = (1 - kept) / (classes - 1)
    weights = torch.eye(classes, dtype=torch.float64) - changed
    return (weights / (kept - changed)).to(dtype)


def debiased_cross_entropy(logits: Tensor, reported: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of log Σ_c e^{z_c} − Σ_c w_{ỹ, c}·z_c over the rows. It is convex in the logits, shape (n, k).

    Because the weights of a row sum to 1, this is Σ_c w_{ỹ, c} times the cross-entropy of class c.
    """
    return (torch.logsumexp(logits, 1) - (weights[reported] * logits).sum(1)).mean()


def debiased_accuracy(logits: Tensor, reported: Tensor, weights: Tensor) -> Tensor:
    """Return an unbiased estimate of the accuracy on rows whose labels went through randomised response."""
    return weights[reported, logits.argmax(1)].mean()
