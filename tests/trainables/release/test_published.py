"""Theorem 1 of the input perturbation paper is false: its claim is exceeded, the more the larger n is, for every c."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
import torch
from scipy import stats
from training_fakes import keyed

from trainables.release.draw import Randomiser, noisy_rows
from trainables.release.loss import debiased_cross_entropy, label_weights
from trainables.release.published import published_noise
from tuner.privacy.accountant.noisy_records import NoisyRecords

CLAIMED = {"epsilon": 1.0, "delta": 1e-5}
"""What the theorem claims of the model after T steps of gradient descent on the perturbed records."""


def noise_of(n: int, constant: float = 1.0) -> float:
    return published_noise(records=n, steps=1, gradient_norm=1.0, strong_convexity=1.0, constant=constant, **CLAIMED)


@pytest.mark.parametrize("constant", [1.0, 1e3, 1e6])
def test_no_constant_repairs_it(constant: float) -> None:
    """One step from θ = 0. A record e₁, or none, among records without a first coordinate.

    The first coordinate of n·θ is ½ or 0, plus ½·N(0, n·s²), so the true ε at δ is that of a Gaussian mechanism with
    μ = 1/(s·√n), which grows as √n.
    """
    exact = []
    for n in (10**3, 10**6, 10**9, 10**12):
        mu = 1 / (noise_of(n, constant) * sqrt(n))
        exact.append(NoisyRecords(clip=0.5, noise=1 / mu, label_epsilon=1e-12, classes=2).epsilon(CLAIMED["delta"]))
    assert exact == sorted(exact)
    assert exact[-1] > 3 * CLAIMED["epsilon"]


def test_the_model_itself_tells_whether_the_record_was_there() -> None:
    """The same by training on drawn rows: 200 models with the record, 200 without, one threshold fixed before."""
    n, d, runs = 1000, 3, 200
    randomiser = Randomiser(clip=1.0, noise=noise_of(n), label_epsilon=None, classes=2)
    weights = label_weights(1.0, 2, dtype=torch.float64)

    def first_weight(*, there: bool, key: int) -> float:
        x, y = torch.zeros(n, d), torch.zeros(n).long()
        x[:, 1] = 1.0
        if there:
            x[0] = torch.tensor([1.0, 0.0, 0.0])
        rows = noisy_rows(x, y, randomiser, rows=n, generator=keyed(key))
        theta = torch.zeros(2, d, dtype=torch.float64, requires_grad=True)
        loss = debiased_cross_entropy(rows.x.double() @ theta.T, rows.y, weights)
        (gradient,) = torch.autograd.grad(loss, theta)
        return float(-n * gradient[0, 0])

    with_it = sum(first_weight(there=True, key=1 + key % 250) > 0.25 for key in range(runs))
    without = sum(first_weight(there=False, key=1 + (key + 37) % 250) > 0.25 for key in range(runs))
    # Clopper-Pearson at 1e-4 each: P[caught | there] ≥ low, P[caught | not there] ≤ high.
    low = float(stats.beta.ppf(1e-4, with_it, runs - with_it + 1)) if with_it else 0.0
    high = float(stats.beta.ppf(1 - 1e-4, without + 1, runs - without)) if without < runs else 1.0
    assert log((low - CLAIMED["delta"]) / high) > 2 * CLAIMED["epsilon"]


def test_ours_is_never_below_what_is_true() -> None:
    """Control: the rigorous noise at the same claim. The exact ε is at most what is claimed."""
    from tuner.privacy.accountant.noisy_records import calibrate_release

    found = calibrate_release(clip=1.0, label_share=0.3, classes=2, **CLAIMED)
    assert found.epsilon(CLAIMED["delta"]) <= CLAIMED["epsilon"]
    assert found.noise > 100 * noise_of(1000)
    assert np.isfinite(found.noise)
