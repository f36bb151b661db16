"""The lower bound of ε from guesses: against enumeration, and on mechanisms whose ε is known."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb, exp, log

import numpy as np
import pytest
from errors_helper import raises_code
from scipy import stats

from trainables.audit.bound import epsilon_lower_bound, planned_guesses, probability_of_guesses
from trainables.errors import HyperparameterError

M, R, DELTA = 200, 150, 1e-3


def enumerated(*, m: int, r: int, v: int, odds: int, delta: Fraction) -> Fraction:
    """The theorem with exact fractions and no shared code; e^ε = `odds`."""
    law = [Fraction(comb(r, k) * odds**k, (1 + odds) ** r) for k in range(r + 1)]
    alpha = max((sum(law[v - i : v], Fraction(0)) / i for i in range(1, v + 1)), default=Fraction(0))
    return min(sum(law[v:], Fraction(0)) + 2 * m * delta * alpha, Fraction(1))


@pytest.mark.parametrize(("m", "r", "v", "odds", "delta"), [
    (12, 12, 9, 2, Fraction(1, 100)), (40, 12, 12, 3, Fraction(1, 1000)), (9, 5, 0, 1, Fraction(1, 7)),
    (30, 20, 14, 1, Fraction(0)), (7, 7, 7, 5, Fraction(1, 50)),
])  # fmt: skip
def test_the_probability_is_the_enumerated_one(m: int, r: int, v: int, odds: int, delta: Fraction) -> None:
    found = probability_of_guesses(canaries=m, guesses=r, right=v, epsilon=log(odds), delta=float(delta))
    assert found == pytest.approx(float(enumerated(m=m, r=r, v=v, odds=odds, delta=delta)), rel=1e-9)


@cache
def all_bounds(m: int, r: int, delta: float) -> list[float]:
    """Return the bound for each number of right guesses from 0 to r."""
    bounds = [epsilon_lower_bound(canaries=m, guesses=r, right=v, delta=delta) for v in range(r + 1)]
    assert bounds == sorted(bounds)
    return bounds


def exceeding(law: np.ndarray, *, epsilon: float, delta: float, m: int = M) -> float:
    """Exact probability that the bound exceeds ε, for a law of the number of right guesses."""
    r = len(law) - 1
    bounds = all_bounds(m, r, delta)
    return float(sum(share for share, bound in zip(law, bounds, strict=True) if bound > epsilon + 1e-9))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_on_randomised_response_the_bound_exceeds_epsilon_in_one_of_20_audits_at_most(
    epsilon: float, delta: float
) -> None:
    """Three answers of known (ε, δ): each tells the truth with e^ε/(1+e^ε) and more with δ, alone or all together."""
    guesses = np.arange(R + 1)
    share = delta + (1 - delta) * exp(epsilon) / (1 + exp(epsilon))
    alone = stats.binom.pmf(guesses, R, share)
    together = (1 - delta) * stats.binom.pmf(guesses, R, exp(epsilon) / (1 + exp(epsilon)))
    together[R] += delta
    for law in (alone, together):
        assert exceeding(law, epsilon=epsilon, delta=delta) <= 0.05
    if delta == 0:  # the bound is sharp: two right guesses more, and it would be exceeded too often
        assert exceeding(np.roll(alone, 2), epsilon=epsilon, delta=0) > 0.05
    wrong = stats.binom.pmf(guesses, R, exp(2 * epsilon + 1) / (1 + exp(2 * epsilon + 1)))
    assert exceeding(wrong, epsilon=epsilon, delta=0) > 0.5, "the planted error: an answer of twice ε + 1"


def guessed(deviation: float, *, audits: int, m: int, r: int, seed: int = 0) -> list[float]:
    """Bounds of audits of the Gaussian mechanism: m coordinates, each with or without 1, and noise."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(audits):
        entered = draw.random(m) < 0.5
        order = np.argsort(entered + deviation * draw.normal(size=m))
        right = int((~entered[order[: r // 2]]).sum() + entered[order[m - r // 2 :]].sum())
        found.append(epsilon_lower_bound(canaries=m, guesses=r, right=right, delta=1e-5))
    return found


def gaussian_epsilon(deviation: float, delta: float) -> float:
    """Exact ε of the Gaussian mechanism of sensitivity 1 (Balle & Wang 2018), by bisection."""
    normal, low, high = stats.norm.cdf, 0.0, 200.0
    for _ in range(80):
        e = (low + high) / 2
        s = deviation
        exceeds = normal(1 / (2 * s) - e * s) - exp(e) * normal(-1 / (2 * s) - e * s) > delta
        low, high = (e, high) if exceeds else (low, e)
    return high


@pytest.mark.parametrize("deviation", [1.0, 3.0])
def test_on_the_gaussian_mechanism_the_bound_is_below_epsilon_and_not_idle(deviation: float) -> None:
    epsilon, m = gaussian_epsilon(deviation, 1e-5), 1000
    r = planned_guesses(canaries=m, separation=1 / deviation, delta=1e-5)
    bounds = guessed(deviation, audits=100, m=m, r=r)
    assert sum(bound > epsilon for bound in bounds) <= stats.binom.ppf(0.9999, 100, 0.05)
    if deviation == 1.0:
        assert np.median(bounds) > epsilon / 5
    claimed = gaussian_epsilon(4 * deviation, 1e-5) / 2
    assert np.mean([bound > claimed for bound in guessed(deviation / 4, audits=20, m=m, r=r)]) > 0.9, "a planted error"


def test_numbers_out_of_range_are_refused() -> None:
    legal = {"canaries": 10, "guesses": 6, "right": 4, "delta": 0.0}
    assert epsilon_lower_bound(**legal) == 0.0  # type: ignore[arg-type]
    for wrong in (
        {"right": 7},
        {"guesses": 11},
        {"right": -1},
        {"delta": 1.0},
        {"delta": float("nan")},
        {"confidence": 1},
    ):
        with raises_code(HyperparameterError, "audit-number-invalid"):
            epsilon_lower_bound(**(legal | wrong))  # type: ignore[arg-type]
