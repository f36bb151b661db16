"""Very little and very much noise: no accountant may end in a traceback, and none may say less than holds."""

from __future__ import annotations

import subprocess
import sys
from math import inf, isfinite

import pytest
from errors_helper import raises_code
from independent_bodies import sealed

from tuner.errors import BudgetRefusedError
from tuner.privacy.accountant.filters import from_body
from tuner.privacy.accountant.initial_guess import NOISE_RANGE, guess_on_coarse_grid
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon, epsilon_composed, interval, max_steps
from tuner.privacy.verify.accountant.best_of_runs import renyi
from tuner.privacy.verify.accountant.bounds import epsilon_ranges, epsilon_ranges_of_steps, judge


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("noise", [0.05, 0.12, 0.15, 0.17])
@pytest.mark.parametrize("steps", [1, 10])
def test_a_claim_with_little_noise_is_confirmed(rate: float, noise: float, steps: int) -> None:
    claimed = epsilon(SampledGaussian(rate, noise), steps, 1e-5)
    (found,) = epsilon_ranges_of_steps([(rate, noise, steps)], [1e-5])
    verdict = judge(claimed, found)
    assert verdict.ok, verdict.why
    assert judge(claimed * 0.98, found).ok is not True


def test_little_noise_beside_much_is_confirmed_too() -> None:
    steps = [(0.1, 0.12, 10), (0.5, 5.0, 300)]
    claimed = epsilon_composed([(SampledGaussian(rate, noise), count) for rate, noise, count in steps], 1e-5)
    (found,) = epsilon_ranges_of_steps(steps, [1e-5])
    assert judge(claimed, found).ok


def test_a_sealed_search_with_little_noise_is_confirmed() -> None:
    body = sealed("geometric", 3.0, at_most=500, runs=[{"sample_rate": 0.1, "noise_multiplier": 0.15, "steps": 1}])
    (found,) = epsilon_ranges(body, [1e-5])
    assert judge(from_body(body).claim(1e-5), found).ok


def test_a_large_divergence_settles() -> None:
    """Its logarithm has no eleven digits behind the point: halving the step until it does takes all the memory."""
    code = "from tuner.privacy.verify.accountant.best_of_runs import renyi; print(renyi(0.01, 0.12, 1996.0)[1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) == pytest.approx(1996 / (2 * 0.12**2), rel=1e-3)
    low, high = renyi(1.0, 0.12, 1996.0)
    assert low <= 1996 / (2 * 0.12**2) <= high


@pytest.mark.parametrize("noise", [5e-324, 1e-300, 1e-4])
def test_next_to_no_noise_has_no_claim(noise: float) -> None:
    mechanism = SampledGaussian(0.1, noise)
    assert interval(mechanism, 10) == inf
    assert epsilon(mechanism, 10, 1e-5) == inf
    assert max_steps(mechanism, epsilon=8.0, delta=1e-5) == 0


@pytest.mark.parametrize("noise", [1e150, 1e300, 1.7e308])
def test_noise_beyond_all_measure_is_claimed_as_some_that_is_measured(noise: float) -> None:
    mechanism = SampledGaussian(0.1, noise)
    assert epsilon(mechanism, 10, 1e-5) == 1e-6
    assert interval(mechanism, 10) == interval(SampledGaussian(0.1, 1e6), 10)
    assert max_steps(mechanism, epsilon=8.0, delta=1e-5) > 10


@pytest.mark.parametrize("wanted", [5e-324, 1e-300, 1e-9])
def test_an_epsilon_that_no_noise_reaches_is_refused(wanted: float) -> None:
    with raises_code(BudgetRefusedError, "no-noise-fits"):
        calibrate_noise(sample_rate=0.1, steps=20, epsilon=wanted, delta=1e-5)
    with raises_code(BudgetRefusedError, "no-noise-fits"):
        calibrate_noise(sample_rate=0.1, steps=20, epsilon=wanted, delta=0.5 / 1000)


def test_a_guess_stays_a_number() -> None:
    def flat(noise: float, *, coarser: int) -> float:
        return 1.0 + noise * 1e-12 * coarser

    for wanted in (5e-324, 1e-300, 1e300):
        guess, slope = guess_on_coarse_grid(flat, wanted, 1.0)
        assert isfinite(guess)
        assert guess > 0
        assert slope < 0
    assert guess_on_coarse_grid(lambda noise, *, coarser: 3 / noise + 0 * coarser, 1.5, 1.0)[0] == pytest.approx(2.0)
    assert NOISE_RANGE[0] < 2.0 < NOISE_RANGE[1]
