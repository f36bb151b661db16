"""The check before the races: every private contender computes the same clipped sum as ours on one batch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from benchmarks.engine.arena import Arena
from trainables.engine.layout import flat

TOLERANCE = 1e-4
_BATCHES = 3
# Too little noise to hide a difference, but not 0, which would remove the perturbations of DPLIS.
_NOISE_MULTIPLIER = 1e-8
# A perturbation moves a weight by R · η · noise_multiplier · C / b; this makes it about a hundredth.
_PERTURBATION = 0.01


def differences(arena: Arena, rivals: Sequence[str], *, batch: int) -> dict[str, float]:
    """Return the distance of each rival's sum from ours over the norm of ours: the median of three batches.

    More than TOLERANCE is wrong.

    Args:
        arena: the workload.
        rivals: names for `Arena.rival`; `hooks_passes` is compared with our DPLIS step.
        batch: number of samples.
    """
    # A rectifier or a max-pool may be so close to its kink that rounding decides for one sample of one batch.
    each = [_differences_on_one_batch(arena, rivals, batch) for _ in range(_BATCHES)]
    return {name: statistics.median(found[name] for found in each) for name in rivals}


def _differences_on_one_batch(arena: Arena, rivals: Sequence[str], batch: int) -> dict[str, float]:
    quiet = replace(arena, batch=batch, noise_multiplier=_NOISE_MULTIPLIER)
    inputs, targets = quiet.gathered(batch)
    # With C at the median norm, half of the samples are clipped.
    quiet = replace(quiet, max_grad_norm=_median_norm(quiet.module(), inputs[:16], targets[:16]))
    smoothing: dict[str, object] = {
        "smoothing_radius": _PERTURBATION * batch / (0.01 * quiet.mechanism.noise_scale),
        "smoothing_samples": 3,
    }
    plain = quiet.ours().private_gradient(inputs, targets)
    smoothed = quiet.ours("dplis", smoothing).private_gradient(inputs, targets)
    # Negative control: without an effect of the perturbations, the comparison of the passes shows nothing.
    if "hooks_passes" in rivals and not _distance(smoothed, plain) > 10 * TOLERANCE:
        raise RuntimeError("the perturbed step equals the plain one, so its check shows nothing")
    return {
        name: _distance(
            quiet.rival(name, smoothing).private_gradient(inputs, targets),
            smoothed if name == "hooks_passes" else plain,
        )
        for name in rivals
    }


def _distance(found: Tensor, ours: Tensor) -> float:
    return float((found.double() - ours.double()).norm() / ours.double().norm())


def _median_norm(module: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    parameters = list(module.parameters())
    norms = []
    for x, y in zip(inputs, targets, strict=True):
        loss = nn.functional.cross_entropy(module(x[None]), y[None])
        norms.append(float(torch.linalg.vector_norm(flat(torch.autograd.grad(loss, parameters)))))
    return statistics.median(norms)
