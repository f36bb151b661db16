"""The check before the races: every private contender computes the same clipped sum as ours on one batch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
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


def differences(arena: Arena, rivals: Iterable[str], *, batch: int) -> dict[str, float]:
    """Return, for each rival, the distance of its sum from ours over the norm of ours: the median of three batches.

    More than TOLERANCE is wrong.

    Args:
        arena: the workload.
        rivals: names for `Arena.rival`; `hooks_passes` and `naive_passes` are compared with our DPLIS step.
        batch: number of samples.
    """
    names = list(rivals)
    # A rectifier or a max-pool may be so close to its kink that rounding decides for one sample of one batch.
    each = [_differences_on_one_batch(arena, names, batch) for _ in range(_BATCHES)]
    return {name: statistics.median(found[name] for found in each) for name in names}


def _differences_on_one_batch(arena: Arena, rivals: Iterable[str], batch: int) -> dict[str, float]:
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
    found = {}
    for name in rivals:
        passes = name.endswith("_passes")
        rival = quiet.rival("naive" if name == "naive_passes" else name, smoothing if passes else None)
        found[name] = _distance(rival.private_gradient(inputs, targets), smoothed if passes else plain)
    # Negative control: without an effect of the perturbations, the comparison of the passes shows nothing.
    if any(name.endswith("_passes") for name in found) and not _distance(smoothed, plain) > 10 * TOLERANCE:
        raise RuntimeError("the perturbed step equals the plain one, so its check shows nothing")
    return found


def _distance(found: Tensor, ours: Tensor) -> float:
    return float((found.double() - ours.double()).norm() / ours.double().norm())


def _median_norm(module: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    parameters = list(module.parameters())
    norms = []
    for x, y in zip(inputs, targets, strict=True):
        loss = nn.functional.cross_entropy(module(x[None]), y[None])
        norms.append(float(torch.linalg.vector_norm(flat(torch.autograd.grad(loss, parameters)))))
    return statistics.median(norms)
