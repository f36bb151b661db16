"""Two Gaussian releases on one Poisson sample, the second of which may depend on the first, cost what one costs.

The proof is in `noise_split`. Here the hockey-stick divergence of the adaptive pair is integrated numerically, by
code of its own, and compared with the closed form of the single release and with the accountant.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from trainables.engine.schedules import PROBE_SHARE, noise_split
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon as epsilon_of

Array = NDArray[np.float64]
EPSILONS = (0.0, 0.3, 1.0)
GRID = np.linspace(-12.0, 14.0, 40_001)

ADAPTIVE: dict[str, Callable[[Array], Array]] = {
    "always the longest": np.ones_like,
    "away from the first": lambda x: -np.sign(x),
    "only after a telling first": lambda x: (x > 0.5) * 1.0,
    "longer the more is told": lambda x: np.clip(x, 0.0, 1.0),
}
"""Shift of the second release as a function of the first one's result, in units of its sensitivity."""


def one_release(q: float, sigma: float, epsilon: float, *, removed: bool) -> float:
    """Hockey-stick divergence of a Poisson-sampled Gaussian, by its threshold."""
    shift = 1 / sigma
    if removed:  # (1 - q)N(0, 1) + qN(shift, 1) against N(0, 1)
        if exp(epsilon) <= 1 - q:
            return 1 - exp(epsilon)
        at = (log((exp(epsilon) - 1 + q) / q) + shift**2 / 2) / shift
        return float((1 - q) * norm.sf(at) + q * norm.sf(at - shift) - exp(epsilon) * norm.sf(at))
    if exp(-epsilon) <= 1 - q:
        return 0.0
    at = (log((exp(-epsilon) - 1 + q) / q) + shift**2 / 2) / shift
    return float(norm.cdf(at) - exp(epsilon) * ((1 - q) * norm.cdf(at) + q * norm.cdf(at - shift)))


def two_releases(
    q: float, gradient: float, probe: float, choose: Callable[[Array], Array], epsilon: float, *, removed: bool
) -> float:
    """The same for a pair: the second integral by its threshold, the first by the trapezoidal rule."""
    x, first = GRID, 1 / gradient
    second = np.abs(choose(x)) / probe  # the sign of a shift changes no probability that is integrated here
    ratio = q * np.exp(first * x - first**2 / 2)
    bound = exp(epsilon) if removed else exp(-epsilon)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(
            bound > 1 - q,
            np.where(
                second > 0,
                (np.log((bound - 1 + q) / ratio) + second**2 / 2) / np.where(second > 0, second, 1.0),
                np.where(1 - q + ratio > bound, -np.inf, np.inf),
            ),
            -np.inf,
        )
    if removed:
        inner = (1 - q - exp(epsilon)) * norm.sf(at) + ratio * norm.sf(at - second)
    else:
        inner = (1 - exp(epsilon) * (1 - q)) * norm.cdf(at) - exp(epsilon) * ratio * norm.cdf(at - second)
    return float(np.trapezoid(inner * norm.pdf(x), x))


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("share", [PROBE_SHARE, 0.4])
@pytest.mark.parametrize("q", [0.07, 0.5, 1.0])
def test_no_choice_of_the_second_release_tells_more_than_the_charged_release(
    q: float, share: float, *, removed: bool
) -> None:
    sigma = 0.9
    split = noise_split(sigma, probe_share=share)
    assert split.probe is not None
    for epsilon in EPSILONS:
        charged = one_release(q, sigma, epsilon, removed=removed)
        if charged > 0:
            assert epsilon_of(SampledGaussian(q, sigma), 1, charged) >= epsilon - 1e-9, "the accountant covers it"
        for name, choose in ADAPTIVE.items():
            found = two_releases(q, split.gradient, split.probe, choose, epsilon, removed=removed)
            assert found <= charged + 1e-7, name
            if name in ("always the longest", "away from the first"):
                assert found == pytest.approx(charged, abs=1e-7), "the charge is not too high either"


def test_the_control_probes_that_are_not_charged_tell_more() -> None:
    """The gradient with the charged noise, and the probes on top."""
    sigma, share = 0.9, PROBE_SHARE
    probe = sigma / sqrt(share)
    for removed in (True, False):
        charged = one_release(0.5, sigma, 0.3, removed=removed)
        assert two_releases(0.5, sigma, probe, np.ones_like, 0.3, removed=removed) > charged + 1e-4
