"""Noise of perturbed minima, from public numbers alone. This module does not import torch.

Formal guarantee: see `docs/guarantees.md`, "A perturbed minimum" and "A perturbed objective".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, hypot, log, log1p, pi, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

__all__ = ["TOLERANCE", "ObjectiveNoise", "gaussian_privacy", "gradient_norm", "objective_noise", "sensitivity"]

TOLERANCE = 1e-9
"""Norm of the gradient at which the solver of a search stops, in units of G (`gradient_norm`). The noise covers it."""
_OUTPUT_SHARE = 0.01
"""Share of μ² = 1/σ² for the noise that covers the solver. The linear term's noise grows by 0.5 %."""
_LARGEST_CURVATURE = 0.5
"""Largest share of the total variation that the change of the curvature may use. λ is raised until it fits."""
_POINTS = np.linspace(-40.0, 40.0, 16001)
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class ObjectiveNoise:
    """Numbers of one objective perturbation. All follow from public numbers.

    Attributes:
        weight_decay: λ of the perturbed objective: the one that was asked for, or a larger one that the noise needs.
        tilt: s, the standard deviation of each entry of b in the objective m·J(θ) + ⟨b, θ⟩.
        output: standard deviation of the noise on each entry of the minimum.
    """

    weight_decay: float
    tilt: float
    output: float


def gradient_norm(clip: float) -> float:
    """Return G = √2·√(C² + 1), the largest norm of a record's gradient: softmax less a unit vector, times the input."""
    return sqrt(2.0) * hypot(clip, 1.0)  # the constant 1 is a feature too


def sensitivity(*, clip: float, normaliser: int, weight_decay: float, tolerance: float) -> float:
    """Return the largest distance between the computed minima of two data sets that differ by one record."""
    return (gradient_norm(clip) / normaliser + 2 * tolerance) / weight_decay


def gaussian_privacy(*, shift: float, curvature: float, classes: int) -> float:
    """Return μ such that the exact minimum of the perturbed objective is μ-Gaussian differentially private.

    Args:
        shift: τ = R/s, the largest norm of an input over the deviation of the linear term.
        curvature: ℓ, the bound of the log-ratio of the Hessians' determinants (`_curvature`).
        classes: k.
    """
    return -2.0 * float(ndtri(exp(-curvature) * _overlap(shift, classes) / 2))


def objective_noise(
    *, clip: float, classes: int, normaliser: int, weight_decay: float, noise_multiplier: float, tolerance: float
) -> ObjectiveNoise:
    """Return the noise with which objective perturbation costs one step with `noise_multiplier` at sample rate 1.

    Args:
        clip: C, the largest norm of an input before the constant 1 is appended.
        classes: k.
        normaliser: m, a PUBLIC number.
        weight_decay: λ that is asked for, above 0.
        noise_multiplier: σ that is charged. 0 gives no noise.
        tolerance: t, the largest norm of the gradient at which the solver stops.
    """
    if noise_multiplier == 0:
        return ObjectiveNoise(weight_decay=weight_decay, tilt=0.0, output=0.0)
    length = hypot(clip, 1.0)
    ours = sqrt(1 - _OUTPUT_SHARE) / noise_multiplier
    largest = -log(2 * float(ndtr(-ours / 2)))  # ℓ with which nothing would be left for the linear term
    # ℓ = (k − 1)·log(1 + R²/(k·λ·m)), solved for λ.
    least = length**2 / (classes * normaliser * expm1(_LARGEST_CURVATURE * largest / (classes - 1)))
    decay = max(weight_decay, least)
    curvature = _curvature(length, classes=classes, regulariser=decay * normaliser)
    low, high = 1e-9 * ours, ours  # shifts; the first fits, and of the second the linear term alone costs more
    for _ in range(100):
        middle = sqrt(low * high)
        fits = gaussian_privacy(shift=middle, curvature=curvature, classes=classes) <= ours
        low, high = (middle, high) if fits else (low, middle)
    return ObjectiveNoise(
        weight_decay=decay,
        tilt=length / low,
        output=2 * tolerance / decay * noise_multiplier / sqrt(_OUTPUT_SHARE),
    )


def _curvature(length: float, *, classes: int, regulariser: float) -> float:
    """Return (k − 1)·log(1 + R²/(k·Λ)), the most that one record adds to the log-determinant of the Hessian."""
    return (classes - 1) * log1p(length**2 / (classes * regulariser))


def _overlap(shift: float, classes: int) -> float:
    """Return k·∫ φ(v)·Φ(−v − τ)^(k−1) dv, the mass that k Gaussians at the corners of a simplex have in common.

    Rounded down. For two classes it is 2·Φ(−τ/√2).
    """
    if classes == 2:
        return 2 * float(ndtr(-shift / sqrt(2))) * (1 - _ROUNDING)
    # The trapezoidal rule errs by less than rounding does, because the integrand is analytic and falls at both ends.
    values = np.exp(-(_POINTS**2) / 2) / sqrt(2 * pi) * ndtr(-_POINTS - shift) ** (classes - 1)
    return classes * float(values.sum() * (_POINTS[1] - _POINTS[0])) * (1 - 10 * _ROUNDING)
