"""Noise of perturbed minima, from public numbers alone. This module does not import torch.

Formal guarantees: `output` proves that of output perturbation. Objective perturbation releases the solver's minimum
with a little noise. Its distance from θ*, at most t/λ, is covered by a second Gaussian mechanism with noise 2t/λ·σ₂,
where 1/σ² = μ² + 1/σ₂² for the charged σ and the μ of the claim (as in Iyengar et al. 2019). Kifer, Smith & Thakurta
(2012) need the same conditions, with larger constants.

R = √(C² + 1) is the longest input, k >= 2 the number of classes, Λ = λ·m, τ = R/s, and Φ and φ belong to N(0, 1).
ℓ = (k − 1)·log(1 + R²/(k·Λ)) is `_curvature`, o = k·∫ φ(v)·Φ(−v − τ)^(k−1) dv is `_overlap`.

    Claim. The exact minimum θ* of J(θ) + ⟨b, θ⟩/m with b ~ N(0, s²·I) is dominated, for one record added or removed, by
    a Gaussian mechanism with noise multiplier 1/μ, where Φ(−μ/2) = e^(−ℓ)·o/2.

    Proof. Let F(θ) = m·∇J(θ). θ* solves F(θ*) = −b. F is a bijection of the space of all θ, with a Jacobian H ⪰ Λ·I. So
    θ* has the density φ_s(F(θ))·det H(θ), with the density φ_s of N(0, s²·I). Let D′ be D with z = (x, y), let g be the
    gradient of z at θ, A its Hessian and p its softmax. The log-ratio of the densities of D′ and D is
    (‖F‖² − ‖F + g‖²)/(2s²) + c with c = log det(I + H⁻¹A).

    (a) The curvature. 0 <= c <= log det(I + A/Λ), because H⁻¹ ⪯ I/Λ. A = (diag(p) − ppᵀ) ⊗ xxᵀ has at most k − 1
    eigenvalues that are not 0, with the sum ‖x‖²·(1 − Σp²) <= R²·(1 − 1/k). The logarithm is concave, so c <= ℓ.

    (b) The shift. g = (p − e_y)xᵀ. On D let U = F(θ*) = −b, so that V = Ux/(s·‖x‖) is N(0, I_k), and let r = ‖x‖/s.
    The loss log(D/D′) is at most r·⟨p − e_y, V⟩ + r²·‖p − e_y‖²/2. This is convex in p, which depends on θ* and so on V
    in any way, and so is at most its value at a corner of the simplex: 0 or r·X_j + r², with X_j = V_j − V_y for a
    j ≠ y. So it is at most max(0, r·M + r²), M = max_j X_j. For each V this grows with r, so it is at most T, its value
    at r = τ. On D′ the same holds of log(D′/D) with −b = F + g, up to c. In both directions the loss is at most T + ℓ.

    (c) One number is enough. For ε >= 0, H_ε <= E(1 − e^(ε−T−ℓ))₊ = ∫_ε^∞ e^(ε−x)·P[T + ℓ > x] dx. The Gaussian
    mechanism has the same with its loss G = μ·Z + μ²/2. M is √2-Lipschitz in V, so by the Gaussian isoperimetric
    inequality its quantiles rise by at most √2 for each unit of those of Z, and those of T + ℓ by at most √2·τ <= μ (as
    o <= 2·Φ(−τ/√2)). So P[G > x] − P[T + ℓ > x] changes its sign once at most, from − to +, and the integral of e^(−x)
    times it from ε on is smallest, if it is negative anywhere, at ε = 0. There the claim is
    1 − e^(−ℓ)·E e^(−T) <= 1 − 2·Φ(−μ/2). And E e^(−T) = ∫ min_j N(τ·e_j, I_k) = o, because the k parts of the space in
    which one density is the smallest are alike. For ε < 0, H_ε(P, Q) = 1 − e^ε + e^ε·H_(−ε)(Q, P), which the Gaussian
    pair satisfies with equality.
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
"""Share of μ² = 1/σ² that pays for the noise over the solver's error. The noise of the linear term grows by 0.5 %."""
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
