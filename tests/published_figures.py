"""The specification's printed figures (sections 2, 3 and 5) and the same figures computed by the accountant.

ε is at δ = 1e-5 for q = 256/50 000 and noise 1.1 unless a row says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import exp
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.privacy.accountant.initial_guess import guess_gdp
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon, epsilon_composed
from tuner.privacy.accountant.rdp import ORDERS, divergence, epsilon_of_divergence
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import epsilon_selection, poisson_shift, profile

Row: TypeAlias = tuple[str, str, str]
"""What is computed, the printed figure, and the computed one in as many digits."""

DELTA = 1e-5
CIFAR = SampledGaussian(256 / 50_000, 1.1)
STEPS = (7006, 36_424, 117_577)
RUNS = 30
_UNCUT = 1_000_000
"""The printed laws are not cut off; a cut here adds less than the precision of a double."""

HETEROGENEOUS = tuple(
    (SampledGaussian(batch / 60_000, noise), round(25 * 60_000 / batch))
    for noise, batch in product((1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8), (128, 256, 512))
)
"""30 trials of 25 epochs of 60 000 records. The specification does not print its menu; this one gives its figures."""
_BAD_ORDERS = (8.0, 2.1)


def _row(what: str, printed: str, computed: float) -> Row:
    decimals = len(printed.partition(".")[2])
    return what, printed, f"{computed:.{decimals}f}"


def rows() -> list[Row]:
    """Return all rows; this takes about fifteen seconds."""
    return [*_composed_runs(), *_selection(), *_not_hidden(), *_compute(), *_heterogeneous()]


def _composed_runs() -> Iterator[Row]:
    for steps, printed in zip(STEPS, ("14.3", "43.4"), strict=False):  # 30 of the longest are more than we accept
        yield _row(f"30 runs of {steps} steps composed", printed, epsilon(CIFAR, RUNS * steps, DELTA))


def _selection() -> Iterator[Row]:
    figures = {
        "geometric": ("4.36", "9.7", "17.1"),
        "logarithmic": ("3.67", "8.4", "15.3"),
        "poisson": ("8.1", "18.4", "31.8"),
    }
    for name, all_printed in figures.items():
        for steps, printed in zip(STEPS, all_printed, strict=True):
            yield _row(f"{name}, mean 30, of {steps} steps", printed, _winner(name, steps))


def _winner(name: str, steps: int) -> float:
    if name == "poisson":  # a search refuses a mean of 30; the bound is defined for it
        single = profile(CIFAR, steps)
        shift = poisson_shift(RUNS, single.delta)
        return shift.shift + single.epsilon(DELTA / shift.factor)
    return epsilon_selection(RunLaw(name=name, mean=RUNS), ((CIFAR, steps),), DELTA, at_most=_UNCUT)


def _not_hidden() -> Iterator[Row]:
    """Yield lower bounds: the lowest of k answers of the Gaussian mechanism that is exactly (2, 1e-5)-DP wins.

    The answers are N(0, 1) or N(μ, 1), so the probability that the lowest of k is above x is a k-th power. The record
    raises all of them at once.
    """
    from scipy.special import log_ndtr

    mu = guess_gdp(2.0, DELTA)
    x = np.linspace(-9.0, 9.0, 6001)

    def least(k: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
        there, back = (np.diff(np.exp(k[:, None] * log_ndtr(x - shift)), axis=1) for shift in (0.0, mu))
        return np.asarray(np.maximum(there - exp(epsilon) * back, 0.0).sum(axis=1))

    law = RunLaw(name="geometric", mean=RUNS)
    runs = np.arange(1.0, 700.0)
    weights = np.array([law.pmf(int(k)) for k in runs])
    fixed = _solve(lambda at: float(least(np.array([float(RUNS)]), at)[0]))
    revealed = _solve(lambda at: float(weights @ least(runs, at)))
    yield _row("K revealed with the winner, geometric, mean 30, at least", "11.7", revealed)
    yield _row("a fixed K of 30, at least", "9.0", fixed)


def _compute() -> Iterator[Row]:
    for name, quantiles in (("geometric", ("68", "136")), ("logarithmic", ("83", "299"))):
        law = RunLaw(name=name, mean=RUNS)
        for probability, printed in zip((0.9, 0.99), quantiles, strict=True):
            what = f"runs of {name}, mean 30, at its {probability:.0%} quantile"
            yield _row(what, printed, law.quantile(probability))


def _heterogeneous() -> Iterator[Row]:
    yield _row("30 heterogeneous trials, coupon book", "6.5", epsilon_composed(HETEROGENEOUS, DELTA))
    yield _row("the same, one order, the best", "7.1", min(at_order(order) for order in ORDERS))
    for order, printed in zip(_BAD_ORDERS, ("9.6", "11.2"), strict=True):
        yield _row(f"the same, one order, badly guessed: {order:g}", printed, at_order(order))


def at_order(order: float) -> float:
    """Return the ε of `HETEROGENEOUS` by the filter at that order."""
    spent = sum(steps * divergence(mechanism, order) for mechanism, steps in HETEROGENEOUS)
    return epsilon_of_divergence(order, spent, DELTA)


def shuffled_epsilon(noise: float, batches: int, delta: float) -> float:
    """Return a lower bound of ε at `delta` for ONE epoch of shuffled batches, from a test of two neighbours.

    Every record but one has the gradient −C, along one direction. With that record (+C), its batch has a sum 2C above
    the others. Without it that batch is one record short, so its sum is C above. A test that answers "with" when the
    largest noisy sum exceeds a threshold is right with P and wrong with Q, and δ ≥ P − e^ε·Q (after Chua et al. 2024).

    Args:
        noise: noise multiplier.
        batches: number of steps of the epoch.
        delta: where ε is taken.
    """
    from scipy.special import log_ndtr, ndtr

    threshold = np.linspace(0.0, 2 + 12 * noise, 20_001)
    others = np.exp((batches - 1) * log_ndtr(threshold / noise))
    with_it, without = (1 - ndtr((threshold - shift) / noise) * others for shift in (2.0, 1.0))
    return _solve(lambda at: float((with_it - exp(at) * without).max()), delta)


def _solve(delta_of: Callable[[float], float], delta: float = DELTA) -> float:
    """Return the ε at which a falling δ reaches `delta`, from below."""
    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return low
